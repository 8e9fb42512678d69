"""Rules of repaired topics, written as FORMAT.md has them by code that is none of the product's."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from confluent_kafka import Producer

if TYPE_CHECKING:
    from collections.abc import Callable

_WORD = 0xFFFFFFFF


def noted(bootstrap: str, topic: Callable[..., str], of: str, header: str) -> str:
    """Return a new commit topic in which a topic is repaired by a header."""

    def text(text: str) -> bytes:
        return struct.pack(">i", len(text)) + text.encode()

    commits = topic(partitions=16, config={"cleanup.policy": "compact"})
    key = struct.pack(">bbH", 2, 5, len(of)) + of.encode()
    since_ms, nothing = struct.pack(">q", 1_790_000_000_000), b"\0"
    value = bytes([1, 5, 2]) + text(header) + text("alice") + since_ms + nothing + nothing
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(commits, value, key, partition=(_murmur2(of.encode()) & 0x7FFFFFFF) % 16)
    producer.flush()
    return commits


def _murmur2(of: bytes) -> int:
    """Return the hash by which Kafka's clients place keys."""
    mix = 0x5BD1E995
    found = 0x9747B28C ^ len(of)
    whole = len(of) - len(of) % 4
    for (word,) in struct.iter_unpack("<I", of[:whole]):
        mixed = word * mix & _WORD
        mixed = (mixed ^ mixed >> 24) * mix & _WORD
        found = found * mix & _WORD ^ mixed
    if whole < len(of):
        found = (found ^ int.from_bytes(of[whole:], "little")) * mix & _WORD
    found = (found ^ found >> 13) * mix & _WORD
    return found ^ found >> 15
