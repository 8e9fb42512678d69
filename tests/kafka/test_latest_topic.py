"""From records in any order to a compacted topic, which keeps of each key what KIP-280 would."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any

import pytest
import statemark
from confluent_kafka import Producer
from support import rules, topics
from support.brokers import with_sparks_source
from support.kip280 import VERSION, Key, Record, model, number
from support.processes import wait_for
from support.session import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from support.brokers import Brokers
    from support.topics import Row

    Topic = Callable[..., str]

PARTITIONS = 3
#: Segments are closed soon, and all that is closed is compacted; tombstones stay.
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": 200,
    "min.cleanable.dirty.ratio": 0.001,
    "min.compaction.lag.ms": 0,
    "delete.retention.ms": 86_400_000,
}
FILLER = b"filler"
GUIDE = (ROOT / "docs/compaction.md").read_text()


def produce(producer: Producer, topic: str, dice: random.Random) -> None:
    """Send what producers would that do not know of each other."""
    for _ in range(60):
        versions = [number(dice.randrange(-4, 9)) for _ in range(2)]
        headers = dice.choice([[], [b"short"], versions[:1], versions])
        producer.produce(
            topic,
            key=f"key-{dice.randrange(20)}".encode(),
            value=dice.choice([None, b"x", b"y", b"z"]),
            headers=[("version", value) for value in headers],
        )
    producer.flush()


def as_record(row: Row) -> Record:
    headers = tuple((VERSION if name == "version" else name, value) for name, value in row.headers)
    key = Key("", 0, row.key)
    return Record(row.value, row.offset, row.timestamp, row.partition, headers, key)


@with_sparks_source
def test_compaction_of_the_output(
    spark: SparkSession, broker: Brokers, topic: Topic, tmp_path: Path
) -> None:
    """Judged by librdkafka; the way is that of the guide."""
    source, target = topic(partitions=PARTITIONS), topic(partitions=PARTITIONS, config=COMPACTED)
    commits = rules.noted(broker.bootstrap, topic, source, "version")
    (code,) = re.findall(r"^```python\n(def newest.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
    guide: dict[str, Any] = {"statemark": statemark}
    exec(code, guide)
    rows = statemark.kafka_source(
        spark,
        bootstrap_servers=broker.bootstrap,
        topics=source,
        starting_offsets="earliest",
        options={"includeHeaders": True, "commitTopic": commits},
    )
    with pytest.raises(statemark.SettingsError, match=f"refused for topic {source}") as refused:
        statemark.latest(rows)
    assert "repaired by header version, as alice has set it at 2026-" in str(refused.value)
    assert "pass strategy='header', header='version'" in str(refused.value)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    dice = random.Random(280)
    for _ in range(3):
        produce(producer, source, dice)
        writer = statemark.kafka_sink(
            guide["newest"](rows),
            bootstrap_servers=broker.bootstrap,
            topic=target,
            options={"allowShortCompactionLag": True},
        )
        writer = writer.outputMode("update").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    def kept() -> list[Row]:
        return [row for row in topics.read(broker.bootstrap, target) if row.key != FILLER]

    sent = len(kept())
    wanted = model(map(as_record, topics.read(broker.bootstrap, source)), "header")

    def is_compacted() -> bool:
        for partition in range(PARTITIONS):
            producer.produce(target, FILLER, FILLER, partition)
        producer.flush()
        return len(kept()) == len(wanted)

    wait_for("the cleaner", is_compacted)
    assert sent > len(wanted)
    found = {row.key: (row.value, row.headers) for row in kept()}
    assert found == {
        key.key: (row.value, tuple(("version", value) for _, value in row.headers or ()))
        for key, row in wanted.items()
    }
