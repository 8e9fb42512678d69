"""Queries that are not exactly-once, though they could be, are warned: once in a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from statemark import settings
from support.brokers import with_sparks_source
from support.line_files import failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from support.brokers import Brokers
    from support.line_files import Lines, Sink
    from support.sinks import Log

    Topic = Callable[..., str]

SPARKS = "kafka"
WRITES = "writes to Kafka with Spark's own sink"
READS = "without kafka.isolation.level=read_committed"


@pytest.fixture
def warnings(spark: SparkSession) -> Iterator[Callable[[str], None]]:
    """Return what sets the setting, which is unset after the test."""
    yield lambda value: spark.conf.set(settings.KAFKA_WARNINGS.key, value)
    spark.conf.unset(settings.KAFKA_WARNINGS.key)


def test_output_of_sparks_sink(
    lines: Lines, sink: Sink, log: Log, warnings: Callable[[str], None]
) -> None:
    lines.add("a")
    lines.add("b")
    sink.run(lines.stream(), sink=SPARKS, name="first")
    (line,) = log.lines(WRITES)
    assert line.startswith("WARN Query first writes")
    assert line.endswith(f"{settings.KAFKA_WARNINGS.key}=false silences this line.")
    lines.add("c")
    lines.add("d")
    options = {"kafka.acks": "1", "kafka.linger.ms": "1"}
    sink.run(lines.stream(), sink=SPARKS, name="second", **options)
    assert len(log.lines(WRITES)) == 2
    (line,) = log.lines("idempotence")
    assert "Query second switches the idempotence" in line
    assert "kafka.acks=1" in line
    warnings("false")
    lines.add("e")
    sink.run(lines.stream(), sink=SPARKS)
    warnings("perhaps")
    lines.add("f")
    message = failure(lambda: sink.run(lines.stream(), sink=SPARKS))
    assert "kafka.warnings is 'perhaps', but it must be true or false" in message
    warnings("true")
    sink.run(lines.stream())
    assert len(log.lines(WRITES)) == 2


def test_output_of_sparks_sink_in_for_each_batch(
    lines: Lines, sink: Sink, log: Log, tmp_path: Path
) -> None:
    lines.add("a")
    lines.add("b")

    def write(df: DataFrame, _batch: int) -> None:
        options = {"kafka.bootstrap.servers": sink.bootstrap, "topic": str(sink.topic)}
        for _ in range(2):
            df.write.format(SPARKS).options(**options, **{"kafka.retries": "0"}).save()

    writer = lines.stream().writeStream.foreachBatch(write).queryName("batches")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    (line,) = log.lines(WRITES)
    assert "Query batches" in line
    assert "kafka.retries=0" in log.lines("idempotence")[0]
    # A job is no query: it runs once, and whoever repeats it knows.
    write(lines.spark.read.text(str(lines.folder)), 0)
    assert len(log.lines(WRITES)) == 1


@with_sparks_source
def test_input_that_is_not_committed(
    spark: SparkSession, broker: Brokers, lines: Lines, sink: Sink, topic: Topic, log: Log
) -> None:
    """One thread looks at commit topics, one query after another."""
    lines.add("a")
    ours, theirs, out = topic(), topic(), topic()
    sink.run(lines.stream(), topic=ours)

    def read(name: str, **options: str) -> None:
        source = spark.readStream.format(SPARKS).options(**options)
        source = source.option("startingOffsets", "earliest")
        rows = source.option("kafka.bootstrap.servers", broker.bootstrap).load()
        writer = rows.select("value").writeStream.format("statemark-kafka").queryName(name)
        writer = writer.option("kafka.bootstrap.servers", broker.bootstrap).option("topic", out)
        writer = writer.option("checkpointLocation", str(sink.checkpoint / name))
        writer.trigger(availableNow=True).start().awaitTermination()

    read("careful", subscribe=ours, **{"kafka.isolation.level": "read_committed"})
    read("elsewhere", subscribe=ours, commitTopic=topic())
    read("foreign", subscribe=theirs)
    read("listed", subscribe=f"{theirs},{ours}")
    read("matched", subscribePattern=f"{ours}|none")
    read("assigned", assign=f'{{"{ours}": [0]}}')
    for name in ("listed", "matched", "assigned"):
        line = log.await_line(f"Query {name} reads {ours} {READS}")
        assert line.startswith("WARN"), line
    assert len(log.lines(READS)) == 3, log.lines(READS)


@with_sparks_source
def test_input_whose_commit_topic_cannot_be_read(
    spark: SparkSession, broker: Brokers, sink: Sink, topic: Topic, log: Log
) -> None:
    """The query goes on, and a line says what is not known."""
    source = spark.readStream.format(SPARKS).option("subscribe", topic())
    source = source.option("kafka.bootstrap.servers", broker.bootstrap)
    source = source.option("commitTopic", "no such name")
    sink.run(source.load().select("value"))
    assert log.await_line("could not be found out").startswith("INFO")
