"""Checkpoints of Spark 3.5's default provider, the queries that left them, and their batch twins.

Spark 3.5 writes no metadata of operators. The checkpoints in `tests/e2e/spark35` were written by
this script, with pyspark 3.5.7 on Java 17 and Python 3.11 and with pandas 2.2, numpy 1.26 and
pyarrow 15, which the current Spark does not go with, in an environment of their own:

    python tests/support/spark35.py tests/e2e/spark35
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Workers cannot import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: Files that Spark 3.5 has processed, and those that come after it.
BEFORE, AFTER = range(3), range(3, 5)
_SCHEMA = "id LONG, key LONG, ts TIMESTAMP"
_LATE = "10 seconds"
_PER_FILE = 40
#: Where the checkpoints were written.
_ROOT = Path("/tmp/spark-3.5")
#: More than Spark 3.5 has let through.
LIMIT = 140
_END = 10_000


@dataclass(frozen=True)
class Query:
    """A stateful query over files of events.

    Attributes
    ----------
    name
        Of its checkpoint.
    over
        The query over its input.
    mode
        Output mode.
    twin
        What gives the same rows over a table; None for `over`.
    is_refused_by_spark
        The current Spark takes columns of its state for nullable that were not in 3.5, and refuses
        to go on while it compares schemas, whatever the provider.
    """

    name: str
    over: Callable[[DataFrame], DataFrame]
    mode: str = "append"
    twin: Callable[[DataFrame], DataFrame] | None = None
    is_refused_by_spark: bool = False


def _timed(df: DataFrame) -> DataFrame:
    return df.withWatermark("ts", _LATE)


def _counts(df: DataFrame) -> DataFrame:
    return df.groupBy("key").agg(sf.count("*").alias("n"), sf.max("ts").alias("last"))


def _windows(df: DataFrame) -> DataFrame:
    return _timed(df).groupBy(sf.window("ts", "5 seconds"), "key").count()


def _distinct(df: DataFrame) -> DataFrame:
    return df.dropDuplicates(["key"]).select("key")


def _distinct_within(df: DataFrame) -> DataFrame:
    return _timed(df).dropDuplicatesWithinWatermark(["id"]).select("id", "key")


def _sessions(df: DataFrame) -> DataFrame:
    return _timed(df).groupBy("key", sf.session_window("ts", "3 seconds")).count()


def _join(df: DataFrame, how: str) -> DataFrame:
    left = _timed(df)
    right = (
        df.where("id % 3 != 0")
        .select(
            sf.col("id").alias("other"),
            (sf.col("ts") + sf.expr("INTERVAL 8 SECONDS")).alias("seen"),
        )
        .withWatermark("seen", _LATE)
    )
    near = sf.expr("id = other AND seen >= ts AND seen <= ts + INTERVAL 9 SECONDS")
    return left.join(right, near, how)


def _running(df: DataFrame) -> DataFrame:
    def total(
        key: tuple[Any, ...], batches: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        n = (state.get[0] if state.exists else 0) + sum(len(batch) for batch in batches)
        state.update((n,))
        yield pd.DataFrame({"key": [key[0]], "n": [n]})

    return df.groupBy("key").applyInPandasWithState(
        total, "key LONG, n LONG", "n LONG", "update", GroupStateTimeout.NoTimeout
    )


def _two(df: DataFrame) -> DataFrame:
    once = _timed(df).dropDuplicates(["id", "ts"])
    return once.groupBy(sf.window("ts", "5 seconds")).count()


QUERIES = [
    Query("aggregation", _counts, "update"),
    Query("windowed-aggregation", _windows),
    Query("deduplication", _distinct),
    Query(
        "deduplication-within-watermark",
        _distinct_within,
        twin=lambda df: df.dropDuplicates(["id"]).select("id", "key"),
    ),
    Query("session-window", _sessions),
    Query("inner-join", lambda df: _join(df, "inner"), is_refused_by_spark=True),
    Query("left-outer-join", lambda df: _join(df, "left_outer")),
    Query(
        "groups-with-state",
        _running,
        "update",
        twin=lambda df: df.groupBy("key").agg(sf.count("*").alias("n")),
    ),
    Query("limit", lambda df: df.limit(LIMIT).select("key"), twin=lambda df: df.select("key")),
    Query("two-operators", _two),
]


class History:
    """The input, the checkpoint and the output of one query, in a directory."""

    def __init__(self, spark: SparkSession, query: Query, directory: Path) -> None:
        self.spark, self.query, self.directory = spark, query, directory
        self.checkpoint = directory / "checkpoint"
        (directory / "events").mkdir(parents=True, exist_ok=True)
        (directory / "output").mkdir(exist_ok=True)

    def arrive(self, files: range) -> None:
        """Let files arrive; the last one of all has an event that closes every window."""
        for number in files:
            file = self.directory / f"events/{number:04d}.json"
            rows = [_event(number * _PER_FILE + i) for i in range(_PER_FILE)]
            rows += rows[::7]
            rows += [{"id": -1, "key": -1, "ts": _time(_END)}] if number == AFTER[-1] else []
            file.write_text("\n".join(json.dumps(row) for row in rows))
            # Spark reads in the order of modification times.
            os.utime(file, (1_700_000_000 + number,) * 2)

    def run(self) -> dict[str, int]:
        """Process what has arrived; return the metrics of the first operator's stores."""
        events = self.spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1)
        out = self.directory / "output"

        def write(rows: DataFrame, batch: int) -> None:
            (out / f"{batch:04d}").write_text("\n".join(_lines(rows)))

        query = (
            self.query.over(events.json(str(self.directory / "events")))
            .writeStream.outputMode(self.query.mode)
            .option("checkpointLocation", str(self.checkpoint))
            .foreachBatch(write)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        progress = query.lastProgress
        return dict(progress["stateOperators"][0]["customMetrics"]) if progress else {}

    def emitted(self) -> Counter[str]:
        """Rows of all batches; in update mode the last row of each key."""
        lines = [
            line
            for file in sorted((self.directory / "output").iterdir())
            for line in file.read_text().splitlines()
        ]
        if self.query.mode == "update":
            lines = list({json.loads(line)["key"]: line for line in lines}.values())
        return _rows(lines)

    def wanted(self) -> Counter[str]:
        """Rows of the batch job over everything that has arrived."""
        table = self.spark.read.schema(_SCHEMA).json(str(self.directory / "events"))
        return _rows(_lines((self.query.twin or self.query.over)(table)))


def _lines(rows: DataFrame) -> list[str]:
    return [row[0] for row in rows.select(sf.to_json(sf.struct("*"))).collect()]


def _rows(lines: list[str]) -> Counter[str]:
    """Rows without the one that closes windows, which no batch emits in append mode."""
    closing = (_time(_END), '"key":-1')
    return Counter(line for line in lines if not any(mark in line for mark in closing))


def _event(number: int) -> dict[str, object]:
    """One event a second, among few keys that come back."""
    return {"id": number, "key": number * number % 17, "ts": _time(number)}


def _time(second: int) -> str:
    return f"2024-01-01T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}.000Z"


def unpacked(spark: SparkSession, query: Query, archives: Path, directory: Path) -> History:
    """Return the history of a query as Spark 3.5 left it."""
    with tarfile.open(archives / f"{query.name}.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    for log in directory.glob("checkpoint/sources/*/[0-9]*"):
        # The files of events lay elsewhere.
        log.write_text(log.read_text().replace(_ROOT.as_uri(), directory.as_uri()))
        log.with_name(f".{log.name}.crc").unlink()
    history = History(spark, query, directory)
    history.arrive(BEFORE)
    return history


def _main(archives: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    archives.mkdir(parents=True, exist_ok=True)
    for query in QUERIES:
        shutil.rmtree(_ROOT, ignore_errors=True)
        history = History(spark, query, _ROOT)
        history.arrive(BEFORE)
        history.run()
        with tarfile.open(archives / f"{query.name}.tar.gz", "w:gz") as archive:
            for name in ("checkpoint", "output"):
                archive.add(_ROOT / name, name, filter=_plain)
    shutil.rmtree(_ROOT)
    spark.stop()


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out who wrote the files."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
