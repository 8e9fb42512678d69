"""A job as users write them: nothing in it names a provider; `test_submit` submits it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(directory: Path) -> None:
    """Count events per key in a stream, compare with the batch, and write what was found."""
    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    events = str(directory / "events")
    for i in range(2):
        ids = spark.range(i * 100, (i + 1) * 100).selectExpr("id % 7 AS key", "id")
        ids.coalesce(1).write.mode("append").parquet(events)
    stream = spark.readStream.schema("key LONG, id LONG").option("maxFilesPerTrigger", 1)
    query = (
        stream.parquet(events)
        .groupBy("key")
        .sum("id")
        .writeStream.outputMode("complete")
        .format("memory")
        .queryName("totals")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    wanted = spark.read.parquet(events).groupBy("key").sum("id").collect()
    found = {
        "equal": sorted(spark.table("totals").collect()) == sorted(wanted),
        "metrics": sorted(query.lastProgress.stateOperators[0].customMetrics),
    }
    (directory / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
