"""A client of a Spark Connect server, which writes to Kafka in every way that Python has.

Its argument is JSON: the server's address, the brokers', a directory of lines, one for checkpoints,
topics, and whether batches fail after they are written. What it reads back, it prints as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import statemark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession


def main(asked: dict[str, Any]) -> None:
    """Run a query through the sink, and one through `foreachBatch`, and read what is there."""
    spark = SparkSession.builder.remote(asked["server"]).create()
    brokers, stream, batches = asked["brokers"], asked["stream"], asked["batches"]
    fails = asked["fails"]

    def write(df: DataFrame, batch_id: int) -> None:
        statemark.kafka_batch(
            df, batch_id, bootstrap_servers=brokers, topic=batches, app_id="connect"
        )
        if fails:
            message = "injected"
            raise ValueError(message)

    lines = spark.readStream.text(asked["lines"])
    writers = [
        statemark.kafka_sink(lines, bootstrap_servers=brokers, topic=stream).queryName(
            f"{stream} by name"
        ),
        lines.groupBy("value").count().writeStream.outputMode("update").foreachBatch(write),
    ]
    errors = []
    for number, writer in enumerate(writers):
        writer = writer.option("checkpointLocation", f"{asked['checkpoints']}/{number}")
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except PySparkException as error:
            errors.append(str(error))
    waited = [wait(spark, brokers, name) for name in (f"{stream} by name", "nobody")]
    rows = statemark.kafka_source(
        spark, bootstrap_servers=brokers, topics=[stream, batches], streaming=False
    )
    found = rows.selectExpr("topic", "CAST(value AS STRING) AS value").collect()
    told = {"errors": errors, "waited": waited, "rows": sorted([*row] for row in found)}
    print(json.dumps(told), flush=True)


def wait(spark: SparkSession, brokers: str, query: str) -> int | str:
    """Wait for the output of a query; return the batch, or the kind of the failure."""
    anywhere = statemark.Position(0, ())
    try:
        return statemark.wait_for(
            spark, anywhere, query=query, bootstrap_servers=brokers, timeout=0
        )
    except statemark.EngineError as error:
        return type(error).__name__


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
