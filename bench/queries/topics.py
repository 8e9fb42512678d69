"""Input and output in Kafka: a broker on this machine, whose processor time is not the query's."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from statemark import kafka_batch, kafka_sink
from support import topics
from support.brokers import Brokers, jars

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.streaming import DataStreamWriter

_INPUT, _OUTPUT = "input", "output"
#: Of each topic: as many as the query has tasks.
_PARTITIONS = 2
#: Rows that a producer is given before its answers are looked at.
_AT_A_TIME = 10_000


@contextmanager
def broker(source: Path, rows_of_a_batch: int) -> Iterator[str]:
    """Yield where the rows of a folder are: the address of a broker, and how many make a batch."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-queries-kafka-") as folder,
        Brokers(Path(folder)) as brokers,
    ):
        _fill(brokers.bootstrap, source)
        topics.create(brokers.bootstrap, _OUTPUT, partitions=_PARTITIONS)
        yield f"{brokers.bootstrap}/{rows_of_a_batch}"


def _fill(bootstrap: str, source: Path) -> None:
    topics.create(bootstrap, _INPUT, partitions=_PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for file in sorted(source.glob("*.parquet")):
        rows = pq.read_table(file, columns=["key", "value"]).to_pydict()
        for n, (key, value) in enumerate(zip(rows["key"], rows["value"], strict=True)):
            # In turns, so that each micro-batch has the same rows in every run.
            producer.produce(_INPUT, str(value), key, n % _PARTITIONS)
            if n % _AT_A_TIME == 0:
                producer.flush()
        producer.flush()


def connector() -> list[str]:
    """Return the jars of Spark's connector."""
    return jars("spark-connector")


def rows(spark: SparkSession, place: str) -> DataFrame:
    """Read the topic, with the columns of the other queries."""
    bootstrap, rows_of_a_batch = place.split("/")
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", _INPUT)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", rows_of_a_batch)
        .load()
    )
    return source.select(
        sf.col("key").cast("string").alias("key"),
        sf.col("timestamp").alias("ts"),
        sf.col("value").cast("string").cast("long").alias("value"),
    )


def written(results: DataFrame, place: str) -> DataStreamWriter:
    """Write results to a topic, exactly once."""
    bootstrap, _ = place.split("/")
    return kafka_sink(_records(results), bootstrap_servers=bootstrap, topic=_OUTPUT)


def write(results: DataFrame, place: str, batch: int) -> None:
    """Write the results of a micro-batch to the topic, exactly once."""
    bootstrap, _ = place.split("/")
    kafka_batch(_records(results), batch, bootstrap_servers=bootstrap, topic=_OUTPUT)


def _records(results: DataFrame) -> DataFrame:
    return results.select("key", sf.to_json(sf.struct("rows", "sum")).alias("value"))
