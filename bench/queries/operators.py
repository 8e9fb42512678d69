"""The queries that are measured, one for each stateful operator, and the input of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from queries.processor import in_python, without_state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Event time that a micro-batch covers.
MINUTE_MS = 60_000
_BEGIN_MS = 1_700_000_000_000
STRING, LONG, STRUCT = "STRING", "LONG", "STRUCT<part: INT, id: STRING>"


@dataclass(frozen=True, kw_only=True)
class Operator:
    """
    A query with one stateful operator.

    Attributes
    ----------
    name
        As on the command line.
    title
        For people.
    rows
        Of each micro-batch.
    keys
        What keys are drawn from; None where some of a batch's are new, and some were there before.
    new
        Share of a batch's keys that are new, where `keys` is None.
    first
        Rows of the first micro-batch, where it has more of them: each has a key of its own.
    key
        Type of the keys.
    query
        From the input, which has a watermark where `delay` says so.
    mode
        Of the output.
    delay
        Of the watermark.
    in_memory
        Whether Spark's in-memory provider can run it.
    floor
        The query without its state, where it is another one.
    topics
        Whether input and output are topics of Kafka.
    """

    name: str
    title: str
    rows: int
    keys: int | None
    query: Callable[[DataFrame], DataFrame]
    new: float = 0.5
    first: int = 0
    key: str = STRING
    mode: str = "append"
    delay: str | None = None
    in_memory: bool = True
    floor: Callable[[DataFrame], DataFrame] | None = None
    topics: bool = False

    @property
    def grows(self) -> bool:
        """Tell whether state grows for as long as the query runs."""
        return self.keys is None and self.delay is None

    def takes(self, contender: str) -> bool:
        """Tell whether a contender can run it."""
        return self.in_memory or contender != "memory"

    def of_size(self, share: float) -> Operator:
        """Return the same with fewer rows and keys."""
        keys = None if self.keys is None else int(self.keys * share)
        return replace(self, rows=int(self.rows * share), keys=keys, first=int(self.first * share))

    @property
    def schema(self) -> str:
        """Columns of the input."""
        return f"key {self.key}, ts TIMESTAMP, value LONG, side INT"

    def rows_of(self, batch: int) -> int:
        """Return how many rows a micro-batch has."""
        return self.rows if batch else max(self.first, self.rows)

    def write(self, directory: Path, batches: int) -> None:
        """Write the input, a file for each micro-batch: equal numbers give equal files."""
        directory.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(7)
        known = 0
        for batch in range(batches):
            file = directory / f"{batch:04d}.parquet"
            rows = self.rows_of(batch)
            if self.keys is None:
                new = rows if rows > self.rows else int(rows * self.new)
                fresh = np.arange(known, known + new)
                again = random.integers(0, max(1, known), rows - new)
                ids = random.permutation(np.concatenate([fresh, again]))
                known += new
            elif rows > self.rows:
                ids = random.permutation(rows)
            else:
                ids = random.integers(0, self.keys, rows)
            ms = _BEGIN_MS + batch * MINUTE_MS + random.integers(0, MINUTE_MS, rows)
            value = random.integers(0, 1000, rows)
            if not file.exists():
                table = pa.table(
                    {
                        "key": self._keys(ids),
                        "ts": pa.array(ms, pa.timestamp("ms", "UTC")),
                        "value": value,
                        "side": pa.array(np.arange(rows) % 2, pa.int32()),
                    }
                )
                pq.write_table(table, file)

    def _keys(self, ids: np.ndarray) -> pa.Array:
        # A bijection, so that keys that come one after another are not neighbours.
        mixed = (ids.astype(np.uint64) * np.uint64(0x9E3779B1)) % np.uint64(1 << 32)
        if self.key == LONG:
            return pa.array(mixed.astype(np.int64))
        texts = pa.array([f"key{k:010d}" for k in mixed.tolist()])
        if self.key == STRING:
            return texts
        parts = pa.array((mixed % np.uint64(100)).astype(np.int32))
        return pa.StructArray.from_arrays([parts, texts], ["part", "id"])

    def stream(self, rows: DataFrame) -> DataFrame:
        """Make the streaming query over its input."""
        return self.query(rows.withWatermark("ts", self.delay) if self.delay else rows)


def _totals(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").agg(sf.count("*").alias("rows"), sf.sum("value").alias("sum"))


def _windows(rows: DataFrame) -> DataFrame:
    return rows.groupBy(sf.window("ts", "1 minute"), "key").agg(
        sf.count("*").alias("rows"), sf.sum("value").alias("sum")
    )


def _sessions(rows: DataFrame) -> DataFrame:
    return rows.groupBy(sf.session_window("ts", "2 minutes"), "key").agg(
        sf.count("*").alias("rows"), sf.sum("value").alias("sum")
    )


def _join(rows: DataFrame) -> DataFrame:
    left = rows.where("side = 0").select("key", "ts", "value")
    right = rows.where("side = 1").selectExpr("key AS k", "ts AS t", "value AS v")
    near = sf.expr("key = k AND t BETWEEN ts - INTERVAL 1 MINUTE AND ts + INTERVAL 1 MINUTE")
    return left.join(right, near)


def _chained(rows: DataFrame) -> DataFrame:
    ends = _windows(rows).groupBy(sf.window(sf.window_time("window"), "5 minutes"), "rows")
    return ends.agg(sf.count("*").alias("keys"), sf.sum("sum").alias("sum"))


def _scala(name: str) -> Callable[[DataFrame], DataFrame]:
    """Return a query of the benchmarks' jar."""

    def query(rows: DataFrame) -> DataFrame:
        spark = rows.sparkSession
        queries = spark._jvm.statemark.bench.StatefulQueries
        return DataFrame(getattr(queries, name)(rows._jdf), spark)

    return query


OPERATORS = {
    operator.name: operator
    for operator in (
        Operator(
            name="dedup",
            title="`dropDuplicates`",
            rows=300_000,
            keys=None,
            query=lambda rows: rows.dropDuplicates(["key"]),
        ),
        Operator(
            name="group",
            title="`groupBy(key)`, update",
            rows=300_000,
            keys=900_000,
            query=_totals,
            mode="update",
        ),
        Operator(
            name="session",
            title="session windows",
            rows=60_000,
            keys=200_000,
            query=_sessions,
            delay="1 minute",
        ),
        Operator(
            name="join",
            title="stream-stream join",
            rows=120_000,
            keys=200_000,
            query=_join,
            delay="1 minute",
        ),
        Operator(
            name="window",
            title="windows with watermark, append",
            rows=200_000,
            keys=1_000_000,
            query=_windows,
            delay="2 minutes",
        ),
        Operator(
            name="within",
            title="`dropDuplicatesWithinWatermark`",
            rows=300_000,
            keys=None,
            query=lambda rows: rows.dropDuplicatesWithinWatermark(["key"]),
            delay="9 minutes",
            floor=lambda rows: rows.dropDuplicates(["key"]),
        ),
        Operator(
            name="chained",
            title="windows, then windows of those",
            rows=200_000,
            keys=1_000_000,
            query=_chained,
            delay="2 minutes",
        ),
        Operator(
            name="groups",
            title="`mapGroupsWithState`, timeouts",
            rows=60_000,
            keys=200_000,
            query=_scala("mapGroups"),
            mode="update",
            delay="1 minute",
            floor=_scala("stateless"),
        ),
        Operator(
            name="transform",
            title="`transformWithState`: value, list, map, timers",
            rows=30_000,
            keys=100_000,
            query=_scala("transform"),
            delay="1 minute",
            in_memory=False,
            floor=_scala("stateless"),
        ),
        Operator(
            name="python",
            title="`transformWithState` in Python: value, list, map, timers",
            rows=500,
            keys=2_000,
            query=in_python,
            delay="1 minute",
            in_memory=False,
            floor=without_state,
        ),
        Operator(
            name="kafka",
            title="Kafka to `statemark-kafka`, `groupBy(key)`",
            rows=100_000,
            keys=300_000,
            query=_totals,
            mode="update",
            topics=True,
        ),
    )
}
