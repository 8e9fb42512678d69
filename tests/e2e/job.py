"""A job as users write them: nothing in it names a provider; `test_submit` submits it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class Sum(StatefulProcessor):
    """Adds up the ids of a key."""

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "id LONG")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        before = self.total.get()[0] if self.total.exists() else 0
        self.total.update((before + sum(row.id for row in rows),))
        yield Row(key=key[0], id=self.total.get()[0])


def run(df: DataFrame, directory: Path, *, name: str, mode: str) -> StreamingQuery:
    """Process what is there, into a table in memory."""
    query = (
        df.writeStream.outputMode(mode)
        .format("memory")
        .queryName(name)
        .option("checkpointLocation", str(directory / f"checkpoint-{name}"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def main(directory: Path) -> None:
    """Add up ids per key in two streams, compare with the batch, and write what was found."""
    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    events = str(directory / "events")
    for i in range(2):
        ids = spark.range(i * 100, (i + 1) * 100).selectExpr("id % 7 AS key", "id")
        ids.coalesce(1).write.mode("append").parquet(events)
    stream = spark.readStream.schema("key LONG, id LONG").option("maxFilesPerTrigger", 1)
    rows = stream.parquet(events)
    query = run(rows.groupBy("key").sum("id"), directory, name="totals", mode="complete")
    wanted = sorted(spark.read.parquet(events).groupBy("key").sum("id").collect())
    found = {
        "equal": sorted(spark.table("totals").collect()) == wanted,
        "metrics": sorted(query.lastProgress.stateOperators[0].customMetrics),
    }
    grouped = rows.groupBy("key")
    if hasattr(grouped, "transformWithState"):  # from Spark 4.1 on
        summed = grouped.transformWithState(Sum(), "key LONG, id LONG", "Update", "None")
        run(summed, directory, name="summed", mode="update")
        last = spark.table("summed").groupBy("key").max("id").collect()
        found["transformed"] = sorted(last) == wanted
    (directory / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
