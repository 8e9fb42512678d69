"""A client of a Spark Connect server: runs a query and reads it, or reads that of another.

Its arguments are the server's address, a directory, and the id of a query that another client has
started, if any. It writes what it sees to standard output, as JSON, and ends with its input.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import statemark
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from support.streams import EVENT_SCHEMA


def totals(df: Any) -> Any:
    """What the query computes, and its batch twin."""
    return df.groupBy("key").agg(sf.count("*").alias("n"), sf.sum("value").alias("total"))


def newest(spark: Any, events: str) -> list[list[Any]]:
    """Return the last row of each key by a query that ends."""
    records = (
        spark.readStream.schema(EVENT_SCHEMA)
        .json(events)
        .selectExpr("key", "value", "0 AS partition", "id AS offset", "ts AS timestamp")
    )
    winners = statemark.latest(records).select("key", "value").writeStream.outputMode("complete")
    query = winners.format("memory").queryName("newest").trigger(availableNow=True).start()
    query.awaitTermination()
    return sorted([*row] for row in spark.table("newest").collect())


def main(url: str, directory: Path, query_id: str | None) -> None:
    """Start a query or take that of another client, and read it in every way there is."""
    spark = SparkSession.builder.remote(url).create()
    events = str(directory / "events")
    if query_id is None:
        spark.conf.set("spark.sql.shuffle.partitions", "3")
        query = (
            totals(spark.readStream.schema(EVENT_SCHEMA).json(events))
            .writeStream.outputMode("update")
            .format("noop")
            .option("checkpointLocation", str(directory / "checkpoint"))
            .start()
        )
        query.processAllAvailable()
        query_id = query.id
    position = statemark.position(query_id)
    live = statemark.live(query_id, position_bound=position, timeout=30)
    live.createOrReplaceTempView("live")
    wanted = sorted(totals(spark.read.schema(EVENT_SCHEMA).json(events)).collect())
    keys = [{"key": row.key} for row in wanted]
    found = {
        "session": spark.session_id,
        "query": query_id,
        "wanted": [list(row) for row in wanted],
        "sql": [list(row) for row in spark.sql(_SQL).collect()],
        "live": sorted([row.key.key, *row.value] for row in live.collect()),
        "get": [_flat(statemark.get(query_id, key)) for key in keys[:3]],
        "get_many": [_flat(row) for row in statemark.get_many(query_id, [*keys, {"key": "x"}])],
        "dirty": _flat(statemark.get(query_id, keys[0], isolation_level="READ_UNCOMMITTED")),
        "batch": position.batch_id,
        "newest": newest(spark, events),
        "last": sorted(
            [*row]
            for row in spark.read.schema(EVENT_SCHEMA)
            .json(events)
            .groupBy("key")
            .agg(sf.max_by("value", "id"))
            .collect()
        ),
    }
    print(json.dumps(found), flush=True)
    sys.stdin.read()


_SQL = "SELECT key.key, value.count, value.sum FROM live ORDER BY key"


def _flat(row: Any) -> list[Any] | None:
    return None if row is None else [row.key.key, *row.value]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *(sys.argv[3:] or [None]))
