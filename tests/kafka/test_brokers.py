"""Brokers keep what was acknowledged, and readers see what the two levels of isolation promise."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from confluent_kafka import KafkaException, Producer
from support import topics
from support.brokers import Brokers, client_settings, jars
from support.modes import IS_WHOLE
from support.processes import LIMIT_S
from support.session import LINE, ROOT
from support.topics import Isolation

if TYPE_CHECKING:
    from collections.abc import Callable

    Topic = Callable[..., str]

PARTITIONS = 3
#: Environment of a process that finds our helpers.
PATHS = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
BOTH = (Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED)


def send(producer: Producer, topic: str, *values: str) -> None:
    """Send values to the partitions in turn, and wait until all are acknowledged."""
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value.encode(),
            key=value[0].encode(),
            partition=number % PARTITIONS,
            headers=[("from", b"test"), ("from", None)],
            timestamp=1_000 + number,
        )
    assert producer.flush(LIMIT_S) == 0


def values(bootstrap: str, topic: str, isolation: Isolation) -> list[str]:
    return [row.value.decode() for row in topics.read(bootstrap, topic, isolation) if row.value]


def assert_refused(bootstrap: str) -> None:
    host, port = bootstrap.split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


def transactions(bootstrap: str, topic: str) -> Producer:
    """
    Send a transaction that is committed and one that is aborted, and begin one that stays open.

    The coordinator lets it begin when the others have their marks.
    """
    producer = topics.producer(bootstrap, f"of-{topic}")
    producer.begin_transaction()
    send(producer, topic, "a1", "a2", "a3", "a4")
    producer.commit_transaction()
    producer.begin_transaction()
    send(producer, topic, "b1", "b2")
    producer.abort_transaction()
    producer.begin_transaction()
    send(producer, topic, "c1")
    return producer


COMMITTED = ["a1", "a4", "a2", "a3"]
ALL = ["a1", "a4", "b1", "c1", "a2", "b2", "a3"]


def test_rows_of_transactions_at_both_levels(broker: Brokers, topic: Topic) -> None:
    name = topic(partitions=PARTITIONS)
    producer = transactions(broker.bootstrap, name)
    read, log = (values(broker.bootstrap, name, isolation) for isolation in BOTH)
    assert (read, log) == (COMMITTED, ALL)
    producer.commit_transaction()
    topics.settle(broker.bootstrap, name)
    assert values(broker.bootstrap, name, Isolation.READ_COMMITTED) == [
        value for value in ALL if value[0] != "b"
    ]


def test_a_row_has_all_that_was_sent(broker: Brokers, topic: Topic) -> None:
    name = topic(partitions=PARTITIONS)
    transactions(broker.bootstrap, name)
    rows = topics.read(broker.bootstrap, name, Isolation.READ_UNCOMMITTED)
    # Marks of the two transactions that have ended take an offset each.
    assert [row.offset for row in rows] == [0, 1, 3, 5, 0, 2, 0]
    third = rows[2]
    assert (third.partition, third.key, third.value, third.timestamp) == (0, b"b", b"b1", 1_000)
    assert third.headers == (("from", b"test"), ("from", None))


def test_a_reader_stops_at_the_end_that_it_has_found(broker: Brokers, topic: Topic) -> None:
    name = topic(partitions=PARTITIONS)
    transactions(broker.bootstrap, name)
    read, log = (topics.ends(broker.bootstrap, name, isolation) for isolation in BOTH)
    assert read == {0: 5, 1: 4, 2: 2}
    assert log == {0: 6, 1: 4, 2: 2}
    assert topics.read(broker.bootstrap, topic()) == []


def test_a_topic_has_to_be_created(broker: Brokers) -> None:
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        topics.read(broker.bootstrap, "nobody-made-it")


def test_the_console_consumer_reads_the_same(broker: Brokers, topic: Topic) -> None:
    """Kafka's own client, asked for as many rows as are committed: an aborted row comes earlier."""
    name = topic()
    producer = topics.producer(broker.bootstrap, f"of-{name}")
    for number in range(4):
        producer.begin_transaction()
        producer.produce(name, f"row {number}".encode())
        producer.commit_transaction() if number % 2 else producer.abort_transaction()
    topics.settle(broker.bootstrap, name)
    rows = values(broker.bootstrap, name, Isolation.READ_COMMITTED)
    java = ["java", "-XX:TieredStopAtLevel=1", "-cp", ":".join(jars("console-consumer"))]
    consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    options = ["--bootstrap-server", broker.bootstrap, "--topic", name, "--from-beginning"]
    options += ["--isolation-level", "read_committed", "--max-messages", str(len(rows))]
    done = subprocess.run(
        [*java, consumer, *options],
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_S,
    )
    assert done.stdout.splitlines() == rows == ["row 1", "row 3"]


def test_what_was_acknowledged_outlives_a_kill(tmp_path: Path) -> None:
    """The open transaction too, which its producer then commits."""
    with Brokers(tmp_path) as one:
        topics.create(one.bootstrap, "kept", partitions=PARTITIONS)
        producer = transactions(one.bootstrap, "kept")
        before = topics.read(one.bootstrap, "kept", Isolation.READ_UNCOMMITTED)
        one.kill(1)
        assert one.running == []
        one.start(1)
        one.wait()
        assert topics.read(one.bootstrap, "kept", Isolation.READ_UNCOMMITTED) == before
        assert values(one.bootstrap, "kept", Isolation.READ_COMMITTED) == COMMITTED
        producer.commit_transaction(LIMIT_S)
        topics.settle(one.bootstrap, "kept")
        assert "c1" in values(one.bootstrap, "kept", Isolation.READ_COMMITTED)


def test_a_node_that_does_not_start_is_told_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(
        AssertionError, match=r"node 1 of Kafka ended(.|\n)*node-1/log(.|\n)*num\.io"
    ):
        Brokers(tmp_path, settings={"num.io.threads": 0})


def test_brokers_for_people(tmp_path: Path) -> None:
    folder = tmp_path / "up"

    def run(what: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "support.kafka_up", what, "--directory", str(folder)],
            env=PATHS,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )

    try:
        up = run("up")
        assert up.returncode == 0, up.stderr
        bootstrap = up.stdout.strip()
        topics.create(bootstrap, "mine")
        again = run("up")
        assert (again.returncode, "make kafka-down" in again.stdout) == (1, True)
    finally:
        down = run("down")
    assert (down.returncode, folder.exists()) == (0, False)
    assert_refused(bootstrap)


def test_brokers_for_other_languages(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "support.broker_server", str(tmp_path)]
    with subprocess.Popen(
        [*command, "--set", "auto.create.topics.enable=true"],
        env=PATHS,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin
        assert server.stdout

        def ask(line: str) -> str:
            print(line, file=server.stdin, flush=True)
            return server.stdout.readline().strip()

        bootstrap = server.stdout.readline().strip()
        assert "runs already" in ask("start 1")
        assert ask("wait") == "done"
        producer = Producer(client_settings(bootstrap))
        producer.produce("made-by-itself", b"value")
        assert producer.flush(LIMIT_S) == 0
        assert values(bootstrap, "made-by-itself", Isolation.READ_COMMITTED) == ["value"]
        assert ask("kill 1") == "done"
        assert_refused(bootstrap)
        assert ask("start 1") == "done"
        server.stdin.close()
        assert server.wait(LIMIT_S) == 0
    assert_refused(bootstrap)


@pytest.mark.skipif(LINE != "4.2", reason="the connector is the default line's")
def test_the_connector_brings_nothing_that_spark_has() -> None:
    connector = {Path(jar).parents[1].name for jar in jars("spark-connector")}
    assert {"spark-sql-kafka-0-10_2.13", "kafka-clients"} <= connector
    names = [jar.name for jar in (Path(pyspark.__file__).parent / "jars").iterdir()]
    assert [n for a in connector for n in names if re.match(rf"{re.escape(a)}-\d", n)] == []


@pytest.mark.skipif(not IS_WHOLE, reason="three nodes: `make test-full PART=kafka`")
def test_two_of_three_nodes_go_on(tmp_path: Path) -> None:
    with Brokers(tmp_path, nodes=3) as three:
        topics.create(three.bootstrap, "kept", partitions=PARTITIONS)
        producer = transactions(three.bootstrap, "kept")
        for node in three.numbers:
            three.kill(node)
            three.wait()
            send(producer, "kept", f"d{node}")
            read, log = (values(three.bootstrap, "kept", isolation) for isolation in BOTH)
            assert read == COMMITTED
            assert sorted(log) == sorted([*ALL, *(f"d{n}" for n in range(1, node + 1))])
            three.start(node)
            three.wait()
        producer.commit_transaction(LIMIT_S)
        topics.settle(three.bootstrap, "kept")
        read = values(three.bootstrap, "kept", Isolation.READ_COMMITTED)
        assert sorted(read) == sorted([*COMMITTED, "c1", "d1", "d2", "d3"])
