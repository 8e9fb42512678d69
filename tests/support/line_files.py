"""Queries on a folder of lines, which write to a topic in a session of this process."""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from support import sinks, topics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class Lines:
    """A folder of text files, each of which is a batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.count = 0
        folder.mkdir()

    def add(self, *lines: str) -> None:
        """Add a batch."""
        hidden = self.folder / ".next"
        hidden.write_text("".join(f"{line}\n" for line in lines))
        # Spark takes them in the order of their times.
        os.utime(hidden, (self.count, self.count))
        hidden.rename(self.folder / f"{self.count:05}.txt")
        self.count += 1

    def stream(self) -> DataFrame:
        return self.spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.folder))


class Sink:
    """Queries of one checkpoint that write to one topic."""

    def __init__(self, bootstrap: str, topic: str | None, checkpoint: Path) -> None:
        self.bootstrap, self.topic, self.checkpoint = bootstrap, topic, checkpoint

    def start(
        self,
        df: DataFrame,
        mode: str = "append",
        *,
        name: str = "",
        sink: str = sinks.FORMAT,
        trigger: Mapping[str, Any] = MappingProxyType({"availableNow": True}),
        **options: str,
    ) -> StreamingQuery:
        """Start a query that ends when all is read, unless `trigger` is another."""
        writer = df.writeStream.format(sink).outputMode(mode).trigger(**trigger)
        writer = writer.option("kafka.bootstrap.servers", self.bootstrap)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).options(**options)
        if self.topic and "topic" not in options:
            writer = writer.option("topic", self.topic)
        return (writer.queryName(name) if name else writer).start()

    def run(self, df: DataFrame, mode: str = "append", **options: Any) -> StreamingQuery:
        """Run a query to its end."""
        query = self.start(df, mode, **options)
        query.awaitTermination()
        return query

    def rows(self, topic: str = "") -> list[topics.Row]:
        """Return what a careful reader finds."""
        name = topic or self.topic
        assert name
        topics.settle(self.bootstrap, name)
        return topics.read(self.bootstrap, name)

    def values(self, topic: str = "") -> list[str]:
        return sorted(row.value.decode() for row in self.rows(topic) if row.value is not None)


def failure(query_or_call: Callable[[], Any]) -> str:
    """Return the message of what a query fails with."""
    with pytest.raises(Exception) as failed:  # which one is Spark's affair
        query_or_call()
    return str(failed.value)


def rewind(checkpoint: Path, batch: int) -> None:
    """Take a batch out of the commit log, as a crash before its entry leaves it."""
    for name in (f"{batch}", f".{batch}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)


def set_back(checkpoint: Path, batch: int) -> None:
    """Take a batch out of the offset log as well: Spark plans it anew."""
    rewind(checkpoint, batch)
    for name in (f"{batch}", f".{batch}.crc"):
        (checkpoint / "offsets" / name).unlink(missing_ok=True)
