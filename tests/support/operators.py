"""Queries with every kind of stateful operator, for tests of what can be read of their state."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from support.session import LINE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Workers cannot import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

HOUR = "1 hour"


@dataclass(frozen=True)
class Operator:
    """A query with one stateful operator, over `support.streams.events`.

    Attributes
    ----------
    name : str
        What a test is called by.
    over : callable
        The query over its input.
    mode : str
        Output mode.
    read : dict
        Arguments of `statemark.live` that name its state.
    has_many : bool
        A key may have several rows.
    """

    name: str
    over: Callable[[DataFrame], DataFrame]
    mode: str = "update"
    read: dict[str, Any] = field(default_factory=dict)
    has_many: bool = False


def _timed(df: DataFrame) -> DataFrame:
    return df.withWatermark("ts", HOUR)


def _aggregation(df: DataFrame) -> DataFrame:
    return df.groupBy("key").agg(sf.count("*").alias("n"), sf.sum("value").alias("total"))


def _windows(df: DataFrame) -> DataFrame:
    return _timed(df).groupBy(sf.window("ts", "3 hours"), "key").agg(sf.max("value").alias("top"))


def _sessions(df: DataFrame) -> DataFrame:
    return _timed(df).groupBy(sf.session_window("ts", "7 minutes"), "key").count()


def _join(df: DataFrame) -> DataFrame:
    left = _timed(df)
    right = left.select(
        sf.col("key").alias("item"), sf.col("ts").alias("seen"), sf.col("value").alias("w")
    )
    near = (left.key == right.item) & (right.seen == left.ts) & (right.w == left.value)
    return left.join(right, near)


def _running(df: DataFrame) -> DataFrame:
    def total(
        key: tuple[Any, ...], batches: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        n = (state.get[0] if state.exists else 0) + sum(len(batch) for batch in batches)
        state.update((n,))
        yield pd.DataFrame({"key": [key[0]], "n": [n]})

    return df.groupBy("key").applyInPandasWithState(
        total, "key STRING, n LONG", "n LONG", "update", GroupStateTimeout.NoTimeout
    )


class _Remembering(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n LONG")
        self.seen = handle.getListState("seen", "value LONG")
        self.by_half = handle.getMapState("by_half", "half LONG", "n LONG")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        values = (
            [v for batch in rows for v in batch["value"]]
            if LINE == "4.0"
            else [row.value for row in rows]
        )
        n = (self.count.get()[0] if self.count.exists() else 0) + len(values)
        self.count.update((n,))
        self.seen.appendList([(int(v),) for v in values[:3]])
        for v in values:
            half = (int(v) % 2,)
            before = self.by_half.getValue(half)[0] if self.by_half.containsKey(half) else 0
            self.by_half.updateValue(half, (before + 1,))
        out = {"key": key[0], "n": n}
        yield pd.DataFrame([out]) if LINE == "4.0" else Row(**out)

    def close(self) -> None:
        pass


def _transform(df: DataFrame) -> DataFrame:
    groups = df.groupBy("key")
    # PySpark 4.0 has data frames alone.
    transform = groups.transformWithStateInPandas if LINE == "4.0" else groups.transformWithState
    return transform(_Remembering(), "key STRING, n LONG", "update", "none")


OPERATORS = [
    Operator("aggregation", _aggregation),
    Operator("windows", _windows),
    Operator("sessions", _sessions, mode="append"),
    Operator("deduplication", lambda df: df.dropDuplicates(["id"])),
    Operator("deduplication-within", lambda df: _timed(df).dropDuplicatesWithinWatermark(["id"])),
    Operator("join-left", _join, mode="append", read={"join_side": "left"}, has_many=True),
    Operator("join-right", _join, mode="append", read={"join_side": "right"}, has_many=True),
    Operator("in-pandas-with-state", _running),
    Operator("value", _transform, read={"state_var_name": "count"}),
    Operator("list", _transform, read={"state_var_name": "seen"}, has_many=True),
    Operator("map", _transform, read={"state_var_name": "by_half"}, has_many=True),
]
