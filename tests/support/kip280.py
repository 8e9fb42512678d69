"""A plain model of KIP-280: which record of a key is kept."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA = (
    "topic string, story int, key binary, value binary, partition int, offset bigint, "
    "timestamp timestamp, headers array<struct<key: string, value: binary>>"
)
EPOCH = datetime(2026, 1, 1, tzinfo=timezone.utc)
#: Key of the header with the version.
VERSION = "v'1`"


class Key(NamedTuple):
    """Whose records are compared: stories have nothing to do with each other."""

    topic: str
    story: int
    key: bytes | None


ONE_KEY = Key("t", 0, b"k")


@dataclass(frozen=True)
class Record:
    """A record as Spark's Kafka source returns it; `time` in milliseconds."""

    value: bytes | None
    offset: int
    time: int = 0
    partition: int = 0
    headers: tuple[tuple[str, bytes | None], ...] | None = None
    key: Key = ONE_KEY

    def version(self, strategy: str) -> int | None:
        """Return what decides first; None where there is none."""
        if strategy == "timestamp":
            return self.time
        found = [value for name, value in self.headers or () if name == VERSION]
        if strategy == "offset" or not found or found[-1] is None or len(found[-1]) != 8:
            return None
        return int(struct.unpack(">q", found[-1])[0])

    def row(self) -> tuple[object, ...]:
        headers = None if self.headers is None else list(self.headers)
        time = EPOCH + timedelta(milliseconds=self.time)
        return (*self.key, self.value, self.partition, self.offset, time, headers)


def model(records: Iterable[Record], strategy: str) -> dict[Key, Record]:
    """Return the winner of each key: of each partition first, then of those."""

    def version(record: Record) -> tuple[bool, int]:
        found = record.version(strategy)
        return found is not None, found or 0

    within: dict[tuple[Key, int], Record] = {}
    for record in records:
        place = (record.key, record.partition)
        if record.key.key is not None:
            best = max(within.get(place, record), record, key=lambda r: (version(r), r.offset))
            within[place] = best
    across: dict[Key, Record] = {}
    for (key, _), record in within.items():
        across[key] = max(
            across.get(key, record), record, key=lambda r: (version(r), r.time, r.partition)
        )
    return across


def number(value: int) -> bytes:
    return struct.pack(">q", value)


def headed(*values: bytes | None) -> tuple[tuple[str, bytes | None], ...]:
    """Return headers with these versions, and one that has nothing to do with it."""
    return (("other", number(99)), *((VERSION, value) for value in values), ("more", b""))
