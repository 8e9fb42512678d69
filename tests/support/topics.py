"""Topics, as tests make, fill and read them: with librdkafka, which shares no code with Kafka.

What a reader at `read_committed` sees of transactions that were committed, aborted or are open is
decided by it alone, so that no mistake of Kafka's own client hides one of ours.
"""

from __future__ import annotations

import contextlib
import enum
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from support.brokers import client_settings
from support.processes import LIMIT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: A first request for a transaction is answered when the broker has loaded its coordinator.
_START_S = 60
_POLL_S = 0.1
_AT_A_TIME = 10_000
#: A broker that is down does not answer; another one is asked soon.
_ANSWER_S = 5
#: What a client is told between the end of a leader and the start of the next.
_ELECTION = {
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}


class Isolation(enum.Enum):
    """Which rows a reader sees."""

    #: Of committed transactions, up to the first row of an open one.
    READ_COMMITTED = "read_committed"
    #: All that the log holds, of aborted transactions too.
    READ_UNCOMMITTED = "read_uncommitted"


@dataclass(frozen=True, order=True)
class Row:
    """
    A row of a topic.

    Attributes
    ----------
    timestamp
        Milliseconds since 1970.
    """

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


def create(
    bootstrap: str,
    topic: str,
    *,
    partitions: int = 1,
    config: Mapping[str, object] | None = None,
    client: Mapping[str, Any] | None = None,
) -> None:
    """
    Create a topic, and wait until each partition has a leader.

    Parameters
    ----------
    bootstrap
        Addresses of brokers.
    topic
        Its name.
    partitions
        How many.
    config
        Of the topic.
    client
        More settings of the client: how it logs in.
    """
    admin = _admin(bootstrap, client)
    new = NewTopic(topic, partitions, config={k: str(v) for k, v in (config or {}).items()})

    def is_made() -> bool:
        # On a busy machine a broker may miss its heartbeats, and counts as gone until the next one.
        try:
            admin.create_topics([new])[topic].result(LIMIT_S)
        except KafkaException as e:
            if e.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
                raise
            return False
        return True

    wait_for(f"topic {topic}", is_made)

    def has_leaders() -> bool:
        with _while_a_leader_is_elected():
            found = admin.list_topics(topic, timeout=_ANSWER_S).topics[topic].partitions
            return len(found) == partitions and all(p.leader >= 0 for p in found.values())
        return False

    wait_for(f"leaders of topic {topic}", has_leaders)

    def has_logs() -> bool:
        try:
            return len(ends(bootstrap, topic, Isolation.READ_UNCOMMITTED, client)) == partitions
        except KafkaException as e:
            if e.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return False

    # A leader is named before its broker knows. Of an idempotent producer it may then refuse the
    # first batch and take the second, and the first is out of order until it expires.
    wait_for(f"logs of topic {topic}", has_logs)


def delete(bootstrap: str, topic: str) -> None:
    """Delete a topic; brokers remove its files later."""
    admin = _admin(bootstrap, None)  # it has to live until the answer is there
    admin.delete_topics([topic])[topic].result(LIMIT_S)


def producer(
    bootstrap: str, transactional_id: str, client: Mapping[str, Any] | None = None
) -> Producer:
    """Return a producer of transactions that has fenced others of its id."""
    made = Producer(
        {**client_settings(bootstrap), "transactional.id": transactional_id, **(client or {})}
    )
    made.init_transactions(_START_S)
    return made


def ends(
    bootstrap: str,
    topic: str,
    isolation: Isolation = Isolation.READ_COMMITTED,
    client: Mapping[str, Any] | None = None,
) -> dict[int, int]:
    """Return for each partition the offset behind the last row that such a reader may see."""
    admin = _admin(bootstrap, client)
    level = IsolationLevel[isolation.name]

    def found() -> dict[int, int] | None:
        with _while_a_leader_is_elected():
            known = admin.list_topics(topic, timeout=_ANSWER_S).topics[topic]
            if known.error is not None:
                raise KafkaException(known.error)
            latest = {TopicPartition(topic, n): OffsetSpec.latest() for n in known.partitions}
            asked = admin.list_offsets(latest, isolation_level=level, request_timeout=_ANSWER_S)
            return {tp.partition: answer.result(LIMIT_S).offset for tp, answer in asked.items()}
        return None

    return dict(wait_for(f"ends of topic {topic}", found))


def settle(bootstrap: str, topic: str, client: Mapping[str, Any] | None = None) -> None:
    """
    Wait until no transaction is open in a topic.

    A commit returns when it is decided; a reader sees its rows when each partition has its mark.
    """

    def is_settled() -> bool:
        read, log = (ends(bootstrap, topic, isolation, client) for isolation in Isolation)
        return read == log

    wait_for(f"the end of transactions in {topic}", is_settled)


def read(
    bootstrap: str,
    topic: str,
    isolation: Isolation = Isolation.READ_COMMITTED,
    client: Mapping[str, Any] | None = None,
) -> list[Row]:
    """
    Read a topic from its first row to what is its end now.

    Ends are taken first, so that rows which arrive meanwhile are left out. Offsets may have gaps:
    marks of transactions, rows of aborted ones, rows that compaction has removed.

    Parameters
    ----------
    bootstrap
        Addresses of brokers.
    topic
        Its name.
    isolation
        Which rows to see.
    client
        More settings of the client: how it logs in.

    Returns
    -------
    list of Row
        In the order of partitions and offsets.
    """
    until = ends(bootstrap, topic, isolation, client)
    consumer = Consumer(
        {
            **client_settings(bootstrap),
            "group.id": "reads to the end",  # required, and not used: nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation.value,
            "auto.offset.reset": "error",
            # The end of a log is told by an answer without rows, which a broker holds back.
            "fetch.wait.max.ms": 10,
            **(client or {}),
        }
    )
    try:
        return sorted(_rows(consumer, topic, until))
    finally:
        consumer.close()


def _rows(consumer: Consumer, topic: str, until: Mapping[int, int]) -> Iterator[Row]:
    left = {partition for partition, end in until.items() if end > 0}
    with _while_a_leader_is_elected():
        # A client that has to find leaders looks for them after half a second.
        consumer.list_topics(topic, timeout=_ANSWER_S)
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in left])
    last = time.monotonic() + LIMIT_S
    while left:
        assert time.monotonic() < last, f"no end of partitions {left} of {topic} in {LIMIT_S} s"
        messages: list[Any] = consumer.consume(_AT_A_TIME, _POLL_S)
        for message in messages:
            partition, offset = message.partition(), message.offset()
            error = message.error()
            if partition not in until:
                continue  # of a broker: it comes back, or is replaced
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if error is None and offset < until[partition]:
                yield _row(message)
            # The end of the log is reported even where the last rows were not for this reader.
            is_read = offset >= until[partition] - (error is None)
            if is_read and partition in left:
                left.remove(partition)
                consumer.incremental_unassign([TopicPartition(topic, partition)])


def _row(message: Any) -> Row:
    _, timestamp = message.timestamp()
    return Row(
        partition=message.partition(),
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
        timestamp=timestamp,
    )


@contextlib.contextmanager
def _while_a_leader_is_elected() -> Iterator[None]:
    """Leave out what the client does not try again by itself; everything else is an error."""
    try:
        yield
    except KafkaException as error:
        if error.args[0].code() not in _ELECTION:
            raise


def _admin(bootstrap: str, client: Mapping[str, Any] | None) -> AdminClient:
    return AdminClient({**client_settings(bootstrap), **(client or {})})
