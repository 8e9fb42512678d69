"""`statemark topic compact`: topics of any order are repaired, while producers go on writing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from support import rules, topics
from support.brokers import jars, with_sparks_source
from support.kip280 import VERSION, Key, Record, model, number
from support.modes import IS_WHOLE
from support.processes import LIMIT_S, Daemon, group, wait_for
from support.topics import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from support.brokers import Brokers

    Topic = Callable[..., str]
    Place = tuple[int, bytes]

PARTITIONS, KEYS = 3, 50
#: The cleaner could take all that is closed, if the lag let it.
SWEPT = {
    "cleanup.policy": "compact",
    "segment.ms": 200,
    "min.cleanable.dirty.ratio": 0.001,
    "delete.retention.ms": 86_400_000,
}
FOREVER = 2**63 - 1
#: What a repair that was killed leaves of a lag of 0.
HELD = 5 * 10**18
LAG = "min.compaction.lag.ms"
FILLER = b"filler"
CONNECTOR = ",".join(jars("spark-connector"))


class Writer:
    """
    Producers that do not know of each other: records of any version, in any order.

    Every record has a header of its own, by which copies are known.

    Attributes
    ----------
    rows
        What was written, also where the cleaner has taken it since.
    filled
        Records that say nothing.
    """

    count = filled = 0

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        self.topic, self.dice = topic, random.Random(seed)
        self.rows: list[Row] = []
        self.producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})

    def write(self, count: int, *, keys: int = KEYS) -> None:
        for _ in range(count):
            self.count += 1
            if self.count % 50_000 == 0:
                self.producer.flush()
            versions = [number(self.dice.randrange(-4, 40)) for _ in range(2)]
            headers = self.dice.choice([[], [b"short"], versions[:1], versions[:1], versions])
            key = f"key-{self.dice.randrange(keys)}".encode()
            value = self.dice.choice([None, b"x", b"y", b"z"])
            partition = self.dice.randrange(PARTITIONS)
            timestamp = 1_700_000_000_000 + self.dice.randrange(50)
            marked = [*((VERSION, value) for value in headers), ("id", number(self.count))]
            self.producer.produce(
                self.topic,
                key=key,
                value=value,
                headers=marked,
                partition=partition,
                timestamp=timestamp,
                on_delivery=partial(self._keep, key, value, tuple(marked), timestamp),
            )
        self.producer.flush()

    def _keep(
        self,
        key: bytes,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...],
        timestamp: int,
        error: KafkaError | None,
        at: Message,
    ) -> None:
        assert error is None, error
        partition, offset = at.partition(), at.offset()
        assert partition is not None
        assert offset is not None
        self.rows.append(Row(partition, offset, key, value, headers, timestamp))

    def fill(self) -> None:
        """Close segments: the last one is never cleaned."""
        for partition in range(PARTITIONS):
            self.producer.produce(self.topic, FILLER, FILLER, partition)
        self.filled += PARTITIONS
        self.producer.flush()


def compact(bootstrap: str, topic: str, strategy: str, *words: str) -> list[str]:
    header = ["--header", VERSION] if strategy == "header" else []
    return [
        *(sys.executable, "-m", "statemark", "topic", "compact", topic),
        *("--bootstrap-servers", bootstrap, "--jars", CONNECTOR),
        *("--strategy", strategy, *header, *words),
    ]


def done(command: list[str], code: int = 0) -> dict[str, Any]:
    """Run a command to its end; return the object that it prints."""
    end = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert end.returncode == code, (command, end.stdout, end.stderr)
    return dict(json.loads(end.stdout))


def as_record(row: Row) -> Record:
    key = Key("", row.partition, row.key)  # of each partition by itself, as in the KIP
    return Record(row.value, row.offset, row.timestamp, row.partition, row.headers, key)


def winners(rows: list[Row], strategy: str) -> dict[Place, tuple[Any, ...]]:
    """What KIP-280 keeps of the records that producers wrote; a copy is none."""
    found = model(map(as_record, originals(rows).values()), strategy)
    return {
        (key.story, key.key or b""): (of.value, of.time, of.headers) for key, of in found.items()
    }


def ident(row: Row) -> bytes:
    """Return what a record shares with its copies alone."""
    return row.headers[-1][1] or b""


def originals(rows: list[Row]) -> dict[bytes, Row]:
    return {ident(row): row for row in sorted(rows, reverse=True) if row.key != FILLER}


def best(rows: Iterable[Row], strategy: str) -> dict[Place, bytes]:
    """Return the winner of each key."""
    found = model(map(as_record, rows), strategy)
    return {(key.story, key.key or b""): of.headers[-1][1] for key, of in found.items()}


def unsettled(rows: list[Row], strategy: str, ends: Mapping[int, int]) -> list[Place]:
    """Return keys whose winner before the ends has nothing as good behind all that lose to it."""
    first = originals(rows)
    wanted = best((r for r in first.values() if r.offset < ends[r.partition]), strategy)

    def is_right(place: Place, winner: bytes) -> bool:
        of = [row for row in rows if (row.partition, row.key) == place]
        losers = [r.offset for r in of if r.offset < ends[r.partition] and ident(r) != winner]
        behind = {ident(row) for row in of if row.offset > max(losers, default=-1)}
        return any(
            best([first[winner], first[other]], strategy)[place] == other for other in behind
        )

    return [place for place, winner in wanted.items() if not is_right(place, winner)]


def buried(rows: list[Row], strategy: str) -> list[Place]:
    """Return keys whose last record is a copy although there is a better one."""
    first, wanted = originals(rows), best(originals(rows).values(), strategy)
    last = {(row.partition, row.key or b""): row for row in sorted(rows) if row.key != FILLER}
    return [
        place
        for place, row in last.items()
        if row != first[ident(row)] and ident(row) != wanted[place]
    ]


def kept(rows: list[Row]) -> dict[Place, tuple[Any, ...]]:
    """What Kafka's compaction leaves: the last record of each key in each partition."""
    return {
        (row.partition, row.key or b""): (row.value, row.timestamp, row.headers)
        for row in sorted(rows)
        if row.key != FILLER
    }


def alter(bootstrap: str, topic: str, name: str, value: object) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entry = ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(LIMIT_S)


def lag(bootstrap: str, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return int(admin.describe_configs([resource])[resource].result(LIMIT_S)[LAG].value)


def cleaned(bootstrap: str, topic: str, writer: Writer, wanted: Mapping[Place, Any]) -> list[Row]:
    """Let the cleaner do its work; return what it leaves of the keys."""

    def left() -> list[Row]:
        return [row for row in topics.read(bootstrap, topic) if row.key != FILLER]

    def is_clean() -> bool:
        writer.fill()
        return len(left()) <= len(wanted)

    alter(bootstrap, topic, LAG, 0)
    wait_for(f"the cleaner of {topic}", is_clean)
    return left()


@pytest.mark.parametrize("seed", range(20 if IS_WHOLE else 2))
def test_repaired_while_producers_write(broker: Brokers, topic: Topic, seed: int) -> None:
    """Judged by librdkafka: up to where the repair ended, and again when the cleaner has been."""
    strategy = ("header", "timestamp")[seed % 2]
    name = topic(partitions=PARTITIONS, config={**SWEPT, LAG: FOREVER})
    writer = Writer(broker.bootstrap, name, seed)
    writer.write(400)
    before = topics.read(broker.bootstrap, name)
    seen = done(compact(broker.bootstrap, name, strategy, "--dry-run", "--json"), code=1)
    wrong = sum(kept(before)[place] != row for place, row in winners(before, strategy).items())
    # Of equal records the later one is right, and looks the same.
    assert seen["records"] == len(before)
    assert seen["wrong"] >= wrong > 0

    is_over = threading.Event()

    def go_on() -> None:
        while not is_over.is_set():
            writer.write(5)

    beside = threading.Thread(target=go_on)
    beside.start()
    try:
        told = done(compact(broker.bootstrap, name, strategy, "--json"))
    finally:
        is_over.set()
        beside.join()
    rows = topics.read(broker.bootstrap, name)
    ends = {int(partition): offset for partition, offset in told["upTo"].items()}
    assert told["appended"] > 0
    assert sum(ends.values()) > len(before), "producers wrote meanwhile"
    assert unsettled(rows, strategy, ends) == []
    assert buried(rows, strategy) == []

    assert done(compact(broker.bootstrap, name, strategy, "--json"))["left"] == 0
    rows = topics.read(broker.bootstrap, name)
    wanted = winners(rows, strategy)
    left = cleaned(broker.bootstrap, name, writer, wanted)
    assert len(left) == len(wanted)
    assert kept(left) == wanted


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[list[str]], Daemon]]:
    """Start a command that goes on; it is gone when the test is."""
    daemons: list[Daemon] = []

    def start(command: list[str]) -> Daemon:
        daemons.append(Daemon(command, tmp_path / f"command-{len(daemons)}.log", {}))
        return daemons[-1]

    yield start
    for daemon in daemons:
        daemon.kill()


def test_killed_and_told_to_end(
    broker: Brokers, topic: Topic, started: Callable[[list[str]], Daemon]
) -> None:
    """The lag stays raised where a repair is killed, until one has come to its end."""
    name = topic(partitions=PARTITIONS, config={**SWEPT, LAG: 1234})
    writer = Writer(broker.bootstrap, name, 7)
    alter(broker.bootstrap, name, LAG, FOREVER)  # until all of it is there
    writer.write(200_000, keys=40_000)
    rows = topics.read(broker.bootstrap, name)
    wanted = winners(rows, "header")
    alter(broker.bootstrap, name, LAG, 86_400_000)
    command = compact(broker.bootstrap, name, "header", "--set-lag")

    def written() -> int:
        return sum(topics.ends(broker.bootstrap, name).values()) - len(rows)

    orphan = started(command)
    wait_for("a copy", written)
    os.kill(orphan.process.pid, signal.SIGKILL)
    orphan.process.wait(LIMIT_S)
    wait_for("the end of the virtual machine", lambda: not group(orphan.process.pid))
    assert lag(broker.bootstrap, name) == 86_400_000, "it has stopped in its own way"
    copies = written()

    first = started(command)
    wait_for("another copy", lambda: written() > copies)
    first.kill()
    assert lag(broker.bootstrap, name) > FOREVER / 4
    copies = written()

    second = started(command)
    wait_for("another copy", lambda: written() > copies)
    os.kill(second.process.pid, signal.SIGTERM)
    assert second.process.wait(LIMIT_S) == 128 + signal.SIGTERM
    assert not group(second.process.pid)
    assert "for the next time" in second.log.read_text()
    assert "min.compaction.lag.ms of" in second.log.read_text(), (
        "what the first left is not looked for"
    )
    assert lag(broker.bootstrap, name) > FOREVER / 4

    third = done([*command, "--json"])
    assert third["left"] == 0
    assert third["minCompactionLagMs"] == 86_400_000
    assert kept(topics.read(broker.bootstrap, name)) == wanted
    assert lag(broker.bootstrap, name) == 86_400_000


def test_the_cleaner_waits(
    broker: Brokers, topic: Topic, started: Callable[[list[str]], Daemon]
) -> None:
    """The cleaner is kept away by the raised lag alone, which a repair before has left."""
    name = topic(partitions=PARTITIONS, config={**SWEPT, LAG: HELD})
    writer = Writer(broker.bootstrap, name, 13)
    writer.write(40_000, keys=4_000)
    command = started(compact(broker.bootstrap, name, "header", "--set-lag", "--json"))
    while command.process.poll() is None:
        # Copies of the other keys stay to be seen, however long it takes.
        writer.write(100, keys=400)
        writer.fill()
    assert command.process.returncode == 0
    told = json.loads(command.log.read_text().splitlines()[-1])
    assert told["minCompactionLagMs"] == lag(broker.bootstrap, name) == 0
    ends = {int(partition): offset for partition, offset in told["upTo"].items()}
    rows = topics.read(broker.bootstrap, name)
    written = {(row.partition, row.offset) for row in writer.rows}
    first = {
        row.partition: row.offset
        for row in sorted(rows, reverse=True)
        if row.key != FILLER and (row.partition, row.offset) not in written
    }
    beside = [row for row in writer.rows if first[row.partition] < row.offset < ends[row.partition]]
    assert beside, "written while winners were copied"

    since = {(row.partition, row.key) for row in writer.rows if row.offset >= ends[row.partition]}
    found = kept(rows)
    wanted = winners(writer.rows, "header")
    assert [p for p, row in wanted.items() if p not in since and found[p] != row] == []

    def is_swept() -> bool:
        writer.fill()
        return len(topics.read(broker.bootstrap, name)) < len(writer.rows)

    wait_for("the cleaner, which would have come", is_swept)


@with_sparks_source
def test_repaired_for_good(
    broker: Brokers, topic: Topic, tmp_path: Path, started: Callable[[list[str]], Daemon]
) -> None:
    """A query, killed in between, goes on repairing; it knows deletions that the topic forgot."""
    name = topic(partitions=PARTITIONS, config={"cleanup.policy": "compact", LAG: 3_600_000})
    writer = Writer(broker.bootstrap, name, 11)
    command = compact(
        *(broker.bootstrap, name, "header", "--continuous", "--lateness", "1s"),
        *(
            "--checkpoint",
            str(tmp_path / "checkpoint"),
            "--trigger",
            "100ms",
            "--master",
            "local[2]",
        ),
        *("--conf", "spark.sql.shuffle.partitions=2"),
    )

    def is_right() -> bool:
        rows = topics.read(broker.bootstrap, name)
        return kept(rows) == winners(rows, "header")

    query = started(command)
    query.said("is repaired as query (.*), until")
    for _ in range(3):
        writer.write(40)
    wait_for("the right records", is_right)
    query.kill()
    writer.write(40)
    again = started(command)
    wait_for("the right records again", is_right)

    place = 1, b"deleted"

    def write(version: int, value: bytes | None) -> None:
        headers = [(VERSION, number(version)), ("id", number(-version))]
        writer.producer.produce(name, value, place[1], place[0], headers=headers)
        writer.producer.flush()

    write(9, None)
    rows = len(topics.read(broker.bootstrap, name))
    write(8, b"late")

    def is_deleted_again() -> bool:
        found = topics.read(broker.bootstrap, name)
        return len(found) > rows + 1 and kept(found)[place][0] is None

    wait_for("the tombstone", is_deleted_again)
    writer.write(50_000, keys=20_000)  # the end comes into the middle of a batch
    os.kill(again.process.pid, signal.SIGTERM)
    assert again.process.wait(LIMIT_S) == 128 + signal.SIGTERM
    assert not group(again.process.pid)
    said = again.log.read_text()
    assert "stops once nothing is lost by it" in said
    assert "ERROR" not in said
    assert "Exception" not in said

    last = started(command)
    last.said("is repaired as query (.*), until")
    alter(broker.bootstrap, name, LAG, 0)
    assert last.process.wait(LIMIT_S) == 2
    assert f"{LAG} is 0, and 1501000 are needed" in last.log.read_text()


def test_what_is_refused(broker: Brokers, topic: Topic) -> None:
    """Before anything is written, with what to do; what no broker is asked for, unit tests have."""
    name = topic(partitions=1, config=SWEPT)
    commits = rules.noted(broker.bootstrap, topic, name, "other")
    noted = ("timestamp", "--commit-topic", commits)
    cases = {
        noted: "it is repaired by header other, as alice has set it at 2026-",
        ("header",): "add --set-lag, which raises it for the time and puts it back",
        ("header", "--continuous", "--checkpoint", "/c"): "add --lateness",
    }
    started = [
        subprocess.Popen(compact(broker.bootstrap, name, *words), stderr=subprocess.PIPE, text=True)
        for words in cases
    ]
    for process, (words, wanted) in zip(started, cases.items(), strict=True):
        _, said = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 2, (words, said)
        assert wanted in said, (words, said)
