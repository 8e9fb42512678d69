"""Small streams with a batch twin: files that arrive one by one, sinks that can be read back."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql.streaming.query import StreamingQuery

#: Real rows lie before this moment; one row per stream lies after it and closes all windows.
END = "2024-02-01 00:00:00"
_FAR_FUTURE = "2024-06-01 00:00:00"
_TIMEOUT_S = 120

EVENT_SCHEMA = "id LONG, key STRING, value LONG, ts TIMESTAMP"
Event = tuple[object, ...]
Transform = Callable[[DataFrame], DataFrame]


def events(start: int, count: int, *, keys: int = 20, repeat_every: int = 0) -> list[Event]:
    """
    Make events, one per minute from 2024-01-01 on, in order of time.

    Parameters
    ----------
    start
        Number of the first event; its id and its minute.
    count
        Number of distinct events.
    keys
        Number of different keys, taken in turns of unequal length.
    repeat_every
        If > 0, each such event comes twice in a row.
    """
    rows: list[Event] = []
    for i in range(start, start + count):
        moment = f"2024-01-{1 + i // 1440:02d} {i // 60 % 24:02d}:{i % 60:02d}:00"
        row = (i, f"k{i * i % keys}", i * 7 % 101, moment)
        rows += [row, row] if repeat_every and i % repeat_every == 0 else [row]
    return rows


def far_future() -> list[Event]:
    """One row that moves the watermark past all real ones."""
    return [(-1, "end", 0, _FAR_FUTURE)]


def before_end(df: DataFrame, column: str = "ts") -> DataFrame:
    """
    Drop the row that only moves the watermark.

    To be used above `withWatermark`: on the event time, Spark does not push the filter below it.
    """
    return df.where(f"{column} < TIMESTAMP '{END}'")


class Arrivals:
    """
    A directory in which files arrive.

    Parameters
    ----------
    directory
        Where the files lie; it is created.
    schema
        Of the files.
    """

    def __init__(self, directory: Path, schema: str = EVENT_SCHEMA) -> None:
        self.directory, self.schema = directory, schema
        self.count = 0
        self._start = int(time.time()) - 24 * 3600
        directory.mkdir(parents=True)

    def add(self, *files: Sequence[Event]) -> None:
        """Let files arrive, each with the rows of one micro-batch."""
        for rows in files:
            names = [field.split()[0] for field in self.schema.split(", ")]
            lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
            file = self.directory / f"{self.count:04d}.json"
            staged = file.with_name(f".{file.name}")
            staged.write_text("\n".join(lines))
            # Spark reads in the order of modification times, and ignores hidden files.
            os.utime(staged, (self._start + self.count,) * 2)
            staged.rename(file)
            self.count += 1


class Source(Arrivals):
    """
    Files that arrive; a stream reads one per micro-batch, in order.

    Parameters
    ----------
    spark
        The session.
    directory, schema
        As for `Arrivals`.
    """

    def __init__(self, spark: SparkSession, directory: Path, schema: str = EVENT_SCHEMA) -> None:
        super().__init__(directory, schema)
        self.spark = spark

    def add(self, *files: Sequence[Event]) -> Source:
        """Let files arrive; return the source, so that a query can begin with it."""
        super().add(*files)
        return self

    def stream(self) -> DataFrame:
        """Read as a stream."""
        reader = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.directory))

    def batch(self) -> DataFrame:
        """Read what has arrived, all at once."""
        return self.spark.read.schema(self.schema).json(str(self.directory))


@dataclass
class Run:
    """
    One streaming query with its own checkpoint and results, which can be stopped and started.

    Attributes
    ----------
    directory
        For checkpoint and results.
    mode
        Spark's output mode; `result` reads accordingly.
    key
        For `update`: the columns of which the last row counts.
    """

    directory: Path
    mode: str = "append"
    key: tuple[str, ...] = ()

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint"

    def start(self, df: DataFrame) -> StreamingQuery:
        """Start, or start again, and go on until it is stopped."""
        query: StreamingQuery = self._writer(df).start()
        return query

    def to_end(self, df: DataFrame) -> StreamingQuery:
        """Start and process all that has arrived; return the ended query."""
        query: StreamingQuery = self._writer(df).trigger(availableNow=True).start()
        assert query.awaitTermination(_TIMEOUT_S), f"not finished in {_TIMEOUT_S} s: {query.status}"
        return query

    def result(self, spark: SparkSession) -> DataFrame:
        """Read what the query has emitted, as one table."""
        emitted = spark.read.parquet(str(self.directory / "out"))
        if self.mode == "append":
            return emitted.drop("batch")
        # In complete mode the last batch has all keys, in update mode each key has a last batch.
        last = sf.max("batch").over(Window.partitionBy(*self.key))
        return emitted.withColumn("last", last).where("batch = last").drop("batch", "last")

    def _writer(self, df: DataFrame) -> Any:
        out = str(self.directory / "out")

        def write(batch: DataFrame, batch_id: int) -> None:
            # Overwriting a directory named by the batch makes a repeated batch harmless.
            batch.write.mode("overwrite").parquet(f"{out}/batch={batch_id:06d}")

        return (
            df.writeStream.outputMode(self.mode)
            .option("checkpointLocation", f"counting://{self.checkpoint}")
            .foreachBatch(write)
        )


def assert_same(got: DataFrame, wanted: DataFrame) -> None:
    """Fail unless two tables hold the same rows, and at least one."""
    assert_df_equality(
        got.select(wanted.columns),
        wanted,
        ignore_row_order=True,
        # Files keep neither what is not null nor what marks a column as a window.
        ignore_nullable=True,
        ignore_metadata=True,
    )
    assert wanted.count() > 0
