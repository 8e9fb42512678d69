"""The functions of the Python package for Kafka, beside a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import statemark
from pyspark.errors import AnalysisException, StreamingQueryException
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


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ("value", {"kafka.acks": "1"}, "Option 'kafka.acks' is refused: "),
        ("value AS name", {}, "Rows have no column 'value': they have name; "),
        ("length(value) AS value", {}, "Column 'value' is of a type that cannot be written: it is"),
    ],
)
def test_a_query_does_not_start_with_what_the_sink_refuses(
    lines: Lines,
    spark: SparkSession,
    broker: Brokers,
    tmp_path: Path,
    columns: str,
    options: Any,
    reason: str,
) -> None:
    rows = lines.stream().selectExpr(columns)
    writer = statemark.kafka_sink(
        rows, bootstrap_servers=broker.bootstrap, topic="never", options=options
    )
    with pytest.raises(AnalysisException) as refused:
        writer.option("checkpointLocation", str(tmp_path)).start()
    error = statemark.error_of(refused.value)
    assert type(error) is statemark.RefusedSettingError
    assert error.reason.startswith(reason)
    assert error.remedy
    assert not spark.streams.active


def test_a_batch_that_the_sink_refuses_is_told_by_its_query(
    lines: Lines, broker: Brokers, tmp_path: Path
) -> None:
    lines.add("a")
    raised: list[statemark.SinkError] = []

    def write(df: DataFrame, batch_id: int) -> None:
        try:
            statemark.kafka_batch(
                df,
                batch_id,
                bootstrap_servers=broker.bootstrap,
                topic="never",
                options={"kafka.acks": "1"},
            )
        except statemark.RefusedSettingError as e:
            raised.append(e)
            raise

    with pytest.raises(StreamingQueryException) as failed:
        run(lines.stream().writeStream.foreachBatch(write), tmp_path)
    told = statemark.error_of(failed.value)
    (own,) = raised
    assert type(told) is type(own)
    assert str(told) == str(own)
    assert own.reason.startswith("Option 'kafka.acks' is refused: ")


def test_a_query_that_is_stopped_in_a_write_has_not_failed(
    lines: Lines, spark: SparkSession, tmp_path: Path
) -> None:
    lines.add("a")
    nobody = "127.0.0.1:1"

    def write(df: DataFrame, batch_id: int) -> None:
        statemark.kafka_batch(df, batch_id, bootstrap_servers=nobody, topic="never")

    writer = lines.stream().writeStream.foreachBatch(write)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    jvm: Any = spark._jvm
    while not any(
        "statemark.kafka.driver.BatchCoordinator" in frame.getClassName()
        for frames in dict(jvm.java.lang.Thread.getAllStackTraces()).values()
        for frame in frames
    ):
        assert query.isActive
    query.stop()
    assert query.exception() is None


def test_a_table_of_a_catalog_is_a_sink(
    spark: SparkSession, lines: Lines, sink: Sink, tmp_path: Path
) -> None:
    """Such a table has no columns of its own."""
    lines.add("a", "b")
    options = f"`kafka.bootstrap.servers` '{sink.bootstrap}', topic '{sink.topic}'"
    spark.sql(f"CREATE TABLE out USING `statemark-kafka` OPTIONS ({options})")
    writer = lines.stream().writeStream.option("checkpointLocation", str(tmp_path))
    writer.trigger(availableNow=True).toTable("out").awaitTermination()
    assert sink.values() == ["a", "b"]
    with pytest.raises(AnalysisException, match="does not support"):
        spark.table("out").collect()
    spark.sql("DROP TABLE out")
