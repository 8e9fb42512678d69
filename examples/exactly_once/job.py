"""Running totals of flights, from a topic to a topic, each update exactly once.

    spark-submit --jars CONNECTOR examples/exactly_once/job.py --bootstrap HOST:PORT \
      --input flights --output totals --checkpoint /checkpoints/totals

CONNECTOR: the jars of Spark's connector for Kafka, or `--packages` with its coordinate, as
docs/kafka.md says. What makes the output exactly-once is `statemark.kafka_sink` and nothing else.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import statemark
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "carrier STRING, flight INT, origin STRING, dest STRING, delay_min INT"
ROUTE = ("carrier", "flight", "origin", "dest")


def main() -> None:
    """Run until somebody ends it; whatever ends it, start it again with the same checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("bootstrap", "input", "output", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    builder = SparkSession.builder.appName("flights").config("spark.sql.shuffle.partitions", 4)
    spark = statemark.configure(builder).getOrCreate()
    rows = totals(flights(spark, options.bootstrap, options.input))
    writer = statemark.kafka_sink(rows, bootstrap_servers=options.bootstrap, topic=options.output)
    writer = writer.outputMode("update").option("checkpointLocation", options.checkpoint)
    writer.trigger(processingTime="1 second").start().awaitTermination()


def flights(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """Stream the flights of a topic, only what is committed there."""
    rows = statemark.kafka_source(
        spark,
        bootstrap_servers=bootstrap,
        topics=topic,
        starting_offsets="earliest",
        options={"maxOffsetsPerTrigger": 20_000},
    )
    return rows.select(sf.from_json(sf.col("value").cast("string"), SCHEMA).alias("flight")).select(
        "flight.*"
    )


def totals(flights: DataFrame) -> DataFrame:
    """Count flights and sum delays of each flight number and route, as rows for Kafka."""
    counted = flights.groupBy(*ROUTE).agg(
        sf.count("*").alias("flights"),
        sf.sum(sf.coalesce("delay_min", sf.lit(0))).alias("delay_min"),
    )
    return counted.select(
        sf.concat_ws(" ", *ROUTE).alias("key"),
        sf.to_json(sf.struct("flights", "delay_min")).alias("value"),
    )


if __name__ == "__main__":
    main()
