"""Winners of keys that state forgets: `latest` with a ``ttl``, by Spark's transformWithState."""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

    import pandas as pd
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import (
        StatefulProcessor,
        StatefulProcessorHandle,
        TimerValues,
    )
    from pyspark.sql.types import StructType

    Values = tuple[Any, ...]


def functions_of(df: DataFrame) -> ModuleType:
    """Return the functions whose columns are of the kind that the DataFrame is of."""
    is_remote = type(df).__module__.startswith("pyspark.sql.connect")
    return import_module(f"pyspark.sql{'.connect' if is_remote else ''}.functions")


#: Timestamps have microseconds, and a zone.
_FORMATS = {"timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSSXXX"}


def remembered(
    candidates: DataFrame, names: Sequence[str], schema: StructType, ttl: timedelta
) -> DataFrame:
    """Return winners of keys that state forgets."""
    functions, types = functions_of(candidates), dict(candidates.dtypes)
    # Numbers are texts there: a column of pandas that has nulls rounds them.
    numbers = (
        f"CAST({number} AS STRING) AS {name}"
        for name, number in {
            "version": "candidate.version",
            "place": "candidate.partition",
            "position": "candidate.offset",
            "time": "unix_micros(candidate.timestamp)",
        }.items()
    )
    rows = candidates.selectExpr(*names, *numbers, "candidate.row").withColumn(
        "row", functions.to_json("row", _FORMATS)
    )
    winners = rows.groupBy(*names).transformWithStateInPandas(
        _processor([*names, "row"], round(ttl / timedelta(milliseconds=1))),
        outputStructType=", ".join([*(f"{name} {types[name]}" for name in names), "row string"]),
        outputMode="Update",
        timeMode="ProcessingTime",
    )
    parsed = functions.from_json("row", schema, _FORMATS).alias("winner")
    return winners.select(parsed).selectExpr("winner.*")


def _processor(columns: Sequence[str], ttl_ms: int) -> StatefulProcessor:
    """Make the processor; its class goes to the workers as it is: they may not have the package."""
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Winners(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            place = "version bigint, offset bigint, time bigint, row string"
            self.winners = handle.getMapState("winners", "partition int", place, ttl_ms)

        def handleInputRows(
            self,
            key: Values,
            rows: Iterator[pd.DataFrame],
            timerValues: TimerValues,  # noqa: ARG002
        ) -> Iterator[pd.DataFrame]:
            def rank(value: int | None) -> tuple[bool, int]:
                return value is not None, value or 0

            before = {place: tuple(winner) for (place,), winner in self.winners.iterator()}
            kept = dict(before)
            for frame in rows:
                for record in frame.itertuples(index=False):
                    version, time = (
                        None if text is None else int(text)
                        for text in (record.version, record.time)
                    )
                    found = (version, int(record.position), time, record.row)
                    best = kept.setdefault(int(record.place), found)
                    if (rank(found[0]), found[1]) > (rank(best[0]), best[1]):
                        kept[int(record.place)] = found
            for place, winner in kept.items():
                if before.get(place) != winner:
                    self.winners.updateValue((place,), winner)
            best = max(kept, key=lambda p: (rank(kept[p][0]), rank(kept[p][2]), p))
            yield pd.DataFrame([[*key, kept[best][3]]], columns=columns)

    return Winners()
