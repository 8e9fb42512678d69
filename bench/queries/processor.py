"""The query whose state is the user's own, in Python: workers beside the executor run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        StatefulProcessorHandle,
        TimerValues,
    )

_SCHEMA = "key STRING, rows LONG, sum LONG"
_KEPT_MS = 2 * 60 * 1000


class Totals(StatefulProcessor):
    """Totals of a key until it was not seen for two minutes: a value, a list, a map, a timer."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self._handle = handle
        self._total = handle.getValueState("total", "rows LONG, sum LONG")
        self._last = handle.getListState("last", "value LONG")
        self._sides = handle.getMapState("sides", "side INT", "rows LONG")

    def handleInputRows(
        self,
        key: tuple[str],
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: ARG002
    ) -> Iterator[pd.DataFrame]:
        """Add rows, and emit the totals."""
        found = pd.concat(rows)
        count, total = self._total.get() if self._total.exists() else (0, 0)
        after = (count + len(found), total + int(found["value"].sum()))
        self._last.appendList([(int(value),) for value in found["value"]])
        for side, values in found.groupby("side")["value"]:
            place = (int(side),)
            before = self._sides.getValue(place) if self._sides.containsKey(place) else (0,)
            self._sides.updateValue(place, (before[0] + int(values.sum()),))
        self._total.update(after)
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(int(found["ts"].max().timestamp() * 1000) + _KEPT_MS)
        yield _row(key, *after)

    def handleExpiredTimer(
        self,
        key: tuple[str],
        timerValues: TimerValues,  # noqa: ARG002
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002
    ) -> Iterator[pd.DataFrame]:
        """Emit what is known of a key, and forget it."""
        yield _row(key, *self._total.get())
        yield _row(key, len(list(self._last.get())), sum(n for (n,) in self._sides.values()))
        self._total.clear()
        self._last.clear()
        self._sides.clear()


def _row(key: tuple[str], rows: int, total: int) -> pd.DataFrame:
    return pd.DataFrame({"key": [key[0]], "rows": [rows], "sum": [total]})


def in_python(rows: DataFrame) -> DataFrame:
    """Make the query with state."""
    return rows.groupBy("key").transformWithStateInPandas(
        Totals(), _SCHEMA, outputMode="Append", timeMode="EventTime"
    )


def without_state(rows: DataFrame) -> DataFrame:
    """Make the query without it: totals of these rows."""

    def totals(key: tuple[str], found: pd.DataFrame) -> pd.DataFrame:
        return _row(key, len(found), int(found["value"].sum()))

    return rows.groupBy("key").applyInPandas(totals, _SCHEMA)
