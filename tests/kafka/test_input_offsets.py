"""How far a query has read, where its output is: a consumer group, and readers that wait."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import statemark
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from pyspark.errors import StreamingQueryException
from support import topics
from support.brokers import client_settings, with_sparks_source
from support.processes import LIMIT_S, wait_for
from support.session import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from support.brokers import Brokers
    from support.line_files import Lines

    Topic = Callable[..., str]

PARTITIONS = 2
_COORDINATORS = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
PAGE = (ROOT / "docs/kafka-input.md").read_text()


class Pipe:
    """A query from a topic to a topic, which drops some rows."""

    def __init__(self, spark: SparkSession, address: str, topic: Topic, folder: Path) -> None:
        self.spark, self.address, self.folder = spark, address, folder
        self.first, self.second = topic(partitions=PARTITIONS), topic()
        self.group = f"lag of {self.first}"
        self.client = client_settings(address)

    def add(self, *values: str) -> statemark.Position:
        """Add records to the first topic; return the position behind them."""
        producer = Producer(self.client)
        for number, value in enumerate(values):
            producer.produce(self.first, value.encode(), partition=number % PARTITIONS)
        assert producer.flush(LIMIT_S) == 0
        return statemark.Position(0, (json.dumps({self.first: self.ends()}),))

    def ends(self) -> dict[int, int]:
        return topics.ends(self.address, self.first)

    def committed(self) -> dict[int, int]:
        """Return what a client that shares no code with Kafka finds of the group."""
        consumer = Consumer({**self.client, "group.id": self.group})
        places = [TopicPartition(self.first, number) for number in range(PARTITIONS)]

        def answer() -> list[TopicPartition] | None:
            # The first question makes the brokers' topic of offsets.
            try:
                return list(consumer.committed(places, timeout=LIMIT_S))
            except KafkaException as e:
                if e.args[0].code() not in _COORDINATORS:
                    raise
                return None

        found = wait_for("committed offsets", answer)
        consumer.close()
        return {place.partition: place.offset for place in found}

    def rows(self, *, address: str = "") -> DataFrame:
        source = statemark.kafka_source(
            self.spark,
            bootstrap_servers=address or self.address,
            topics=self.first,
            starting_offsets="earliest",
        )
        return source.selectExpr("CAST(value AS STRING) AS value").where("value != 'dropped'")

    def writer(self, rows: DataFrame, **more: Any) -> Any:
        writer = statemark.kafka_sink(
            rows,
            bootstrap_servers=self.address,
            topic=self.second,
            kafka_consumer_group=self.group,
            **more,
        )
        return writer.queryName(self.second).option("checkpointLocation", str(self.folder))

    def run(self, writer: Any) -> None:
        writer.trigger(availableNow=True).start().awaitTermination()

    def wait(self, position: statemark.Position, **more: Any) -> int:
        asked = {"query": self.second, "timeout": LIMIT_S, **more}
        return statemark.wait_for(self.spark, position, bootstrap_servers=self.address, **asked)

    def values(self) -> list[str]:
        found = topics.read(self.address, self.second)
        return sorted(row.value.decode() for row in found if row.value)


@pytest.fixture
def pipe(spark: SparkSession, broker: Brokers, topic: Topic, tmp_path: Path) -> Pipe:
    return Pipe(spark, broker.bootstrap, topic, tmp_path / "checkpoint")


@with_sparks_source
def test_a_group_and_readers_follow_a_query(pipe: Pipe) -> None:
    there = pipe.add("a", "b", "c")
    assert set(pipe.committed().values()) == {-1001}, "nobody has committed anything"
    # Another address of the same cluster.
    rows = pipe.rows(address=pipe.address.replace("127.0.0.1", "localhost"))
    pipe.run(pipe.writer(rows))
    assert pipe.wait(there) == 0
    assert pipe.values() == ["a", "b", "c"]
    assert pipe.committed() == pipe.ends()

    there = pipe.add("dropped")
    pipe.run(pipe.writer(rows))
    assert pipe.wait(there, sink_name=pipe.second) == 1, "a batch without rows"
    assert pipe.committed() == pipe.ends()

    query = pipe.writer(rows).start()
    there = pipe.add("d")
    assert pipe.wait(there, query=query) == 2
    assert "d" in pipe.values()
    assert pipe.committed() == pipe.ends()
    assert pipe.wait(statemark.position(query), query=query.id) == 2
    member = Consumer({**pipe.client, "group.id": pipe.group})
    member.subscribe([pipe.first])
    wait_for("a member", lambda: member.poll(0.1) is None and member.assignment())
    pipe.add("e")
    with pytest.raises(StreamingQueryException) as failed:
        query.awaitTermination()
    member.close()
    error = statemark.error_of(failed.value)
    assert type(error) is statemark.RefusedSettingError
    assert "Option 'kafkaConsumerGroup' is refused: it has 1 members" in error.reason
    assert "e" not in pipe.values()


@with_sparks_source
def test_what_the_page_prints_runs(pipe: Pipe) -> None:
    printed: dict[str, Any] = {}
    for code in re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE):
        exec(code, printed)
    query = printed["start_copies"](
        pipe.spark, pipe.address, pipe.first, pipe.second, str(pipe.folder)
    )
    batch = -1  # the first may have come before the first value
    for value in ("a", "b"):
        covered = printed["write_and_wait"](pipe.spark, pipe.address, pipe.first, value)
        assert covered > batch
        assert value in pipe.values()
        batch = covered
    query.stop()


@with_sparks_source
def test_a_group_in_foreach_batch(pipe: Pipe) -> None:
    there = pipe.add("a", "b")

    job = f"job of {pipe.second}"

    def write(df: DataFrame, batch_id: int) -> None:
        statemark.kafka_batch(
            df,
            batch_id,
            app_id=job,
            bootstrap_servers=pipe.address,
            topic=pipe.second,
            kafka_consumer_group=pipe.group,
        )

    writer = pipe.rows().writeStream.queryName(pipe.second).foreachBatch(write)
    query = writer.option("checkpointLocation", str(pipe.folder)).trigger(availableNow=True).start()
    query.awaitTermination()
    for named in (query, query.id, pipe.second, job):
        assert pipe.wait(there, query=named) == 0
    assert pipe.committed() == pipe.ends()


def test_a_group_without_a_source_of_the_cluster_is_refused(
    pipe: Pipe, lines: Lines, spark: SparkSession
) -> None:
    lines.add("a")
    with pytest.raises(StreamingQueryException) as failed:
        pipe.run(pipe.writer(lines.stream()))
    error = statemark.error_of(failed.value)
    assert type(error) is statemark.RefusedSettingError
    assert "the query reads no topic with Spark's source 'kafka'" in error.reason
    with pytest.raises(statemark.RefusedSettingError, match="not known as a query's"):
        statemark.kafka_batch(
            spark.sql("SELECT 'a' AS value"),
            0,
            app_id="job",
            bootstrap_servers=pipe.address,
            topic=pipe.second,
            kafka_consumer_group=pipe.group,
        )


def test_what_a_wait_says(pipe: Pipe, lines: Lines) -> None:
    there = statemark.Position(0, (f'{{"{pipe.first}":{{"0":1}}}}',))
    with pytest.raises(statemark.PositionBoundError) as late:
        pipe.wait(there, timeout=0)
    told = f"The output of {pipe.second} is at no batch, as commit topic statemark-commits knows no"
    assert late.value.reason.startswith(told)
    assert "such sink, after 0 ms, and the read is bound to [" in late.value.reason
    assert "Wait longer with option timeout" in late.value.remedy
    files = statemark.Position(0, ('{"logOffset":3}',))
    with pytest.raises(statemark.RefusedSettingError, match="it is no offset of Kafka's"):
        pipe.wait(files)
    lines.add("a")
    writer = statemark.kafka_sink(
        lines.stream(), bootstrap_servers=pipe.address, topic=pipe.second
    ).queryName(pipe.second)
    pipe.run(writer.option("checkpointLocation", str(pipe.folder)))
    with pytest.raises(
        statemark.PositionBoundError, match=f"which has read nothing of {pipe.first}-0, after"
    ):
        pipe.wait(there, timeout="100ms")
