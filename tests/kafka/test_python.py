"""The functions of the Python package for Kafka, beside a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import statemark
from support.brokers import with_sparks_source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from support.brokers import Brokers
    from support.line_files import Lines, Sink

    Topic = Callable[..., str]


def run(writer: Any, checkpoint: Path) -> None:
    """Run a query to its end."""
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer.start().awaitTermination()


@with_sparks_source
def test_from_a_topic_to_a_topic(
    spark: SparkSession, lines: Lines, sink: Sink, broker: Brokers, topic: Topic, tmp_path: Path
) -> None:
    first, second = topic(), topic()
    lines.add("a", "b")
    writer = statemark.kafka_sink(lines.stream(), bootstrap_servers=broker.bootstrap, topic=first)
    run(writer, tmp_path / "first")
    rows = statemark.kafka_source(
        spark, bootstrap_servers=broker.bootstrap, topics=first, starting_offsets="earliest"
    )

    def write(df: DataFrame, batch_id: int) -> None:
        statemark.kafka_batch(df, batch_id, bootstrap_servers=[broker.bootstrap], topic=second)

    run(rows.select("key", "value").writeStream.foreachBatch(write), tmp_path / "second")
    assert sink.values(first) == sink.values(second) == ["a", "b"]
    table = statemark.kafka_source(
        spark, bootstrap_servers=broker.bootstrap, topics=[first, second], streaming=False
    )
    assert table.count() == 4
