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
        statemark.kafka_sink(lines, bootstrap_servers=brokers, topic=stream),
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
    rows = statemark.kafka_source(
        spark, bootstrap_servers=brokers, topics=[stream, batches], streaming=False
    )
    found = rows.selectExpr("topic", "CAST(value AS STRING) AS value").collect()
    print(json.dumps({"errors": errors, "rows": sorted([*row] for row in found)}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
