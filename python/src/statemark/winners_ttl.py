"""Winners of keys that state forgets: `latest` with a ``ttl``, by Spark's transformWithState."""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

from statemark.arguments import is_of_connect
from statemark.errors import SettingsError

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
    return import_module(f"pyspark.sql{'.connect' if is_of_connect(df) else ''}.functions")


#: How rows are written as JSON, and read again: times to the microsecond, with zones to the second.
_WRITTEN = {
    "timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSSXXXXX",
    "timestampNTZFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS",
}
_READ = {**_WRITTEN, "mode": "FAILFAST", "columnNameOfCorruptRecord": "_statemark_corrupt"}
#: Types of keys that are equal in Python where they are in Spark.
_COMPARABLE = ("binary", "string", "boolean", "tinyint", "smallint", "int", "bigint", "date")


def require_comparable(df: DataFrame, keys: Sequence[str]) -> None:
    """Refuse columns that Python groups, or JSON keeps, otherwise than Spark.

    Parameters
    ----------
    df : DataFrame
        The records.
    keys : sequence of str
        Its key columns.

    Raises
    ------
    SettingsError
        If a key is of another type, or two columns have one name.
    """
    types = {name.lower(): of for name, of in df.dtypes}
    for key in keys:
        of = types.get(key.lower(), "string")
        if of not in _COMPARABLE and not of.startswith("decimal"):
            problem = f"key {key!r} is refused with ttl="
            raise SettingsError(
                problem,
                reason=f"it is of type {of}, whose values are compared in Python with a ttl",
                remedy="make a text or a number of it, or leave ttl out",
            )
    if len(types) < len(df.columns):
        problem = f"columns {', '.join(df.columns)} are refused with ttl="
        raise SettingsError(
            problem,
            reason="rows are kept as JSON with a ttl, and two of them have one name",
            remedy="rename one of them",
        )


def remembered(
    candidates: DataFrame, names: Sequence[str], schema: StructType, ttl: timedelta
) -> DataFrame:
    """Return winners of keys that state forgets.

    Parameters
    ----------
    candidates : DataFrame
        The key columns, and the column `candidate` as ``statemark_latest`` takes it.
    names : sequence of str
        Of the key columns.
    schema : StructType
        Of the records, which are fields `row` of the candidates.
    ttl : timedelta
        For how long.

    Returns
    -------
    DataFrame
        Records.
    """
    functions = functions_of(candidates)
    # A column of pandas that has nulls makes floats of numbers, and so rounds them.
    numbers = (
        f"CAST({number} AS STRING) AS {name}"
        for name, number in {
            "version": "candidate.version",
            "topic": "candidate.topic",
            "place": "candidate.`partition`",
            "position": "candidate.`offset`",
            "time": "unix_micros(candidate.`timestamp`)",
            "rule": "candidate.rule",
        }.items()
    )
    rows = candidates.selectExpr(*names, *numbers, "candidate.row").withColumn(
        "row", functions.to_json("row", _WRITTEN)
    )
    winners = rows.groupBy(*names).transformWithStateInPandas(
        _processor(round(ttl / timedelta(milliseconds=1))),
        outputStructType="row string",
        outputMode="Update",
        timeMode="ProcessingTime",
    )
    parsed = functions.from_json("row", schema, _READ).alias("winner")
    return winners.select(parsed).selectExpr("winner.*")


def _processor(ttl_ms: int) -> StatefulProcessor:
    """Make the processor. Its class is pickled by value: workers may not have this package."""
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Winners(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            winner = "version bigint, offset bigint, time bigint, rule bigint, row string"
            place = "topic string, partition int"
            self.winners = handle.getMapState("winners", place, winner, ttl_ms)

        def handleInputRows(
            self,
            key: Values,  # noqa: ARG002
            rows: Iterator[pd.DataFrame],
            timerValues: TimerValues,  # noqa: ARG002
        ) -> Iterator[pd.DataFrame]:
            def number(text: str | None) -> int | None:
                return None if text is None or pd.isna(text) else int(text)

            def rank(value: int | None) -> tuple[bool, int]:
                return value is not None, value or 0

            before = {tuple(place): tuple(winner) for place, winner in self.winners.iterator()}
            kept = dict(before)
            for frame in rows:
                for record in frame.itertuples(index=False):
                    position, partition = number(record.position), number(record.place)
                    if position is None or partition is None:
                        problem = "a record without partition or offset was given to latest"
                        raise ValueError(problem)
                    # Rows, as they are kept, have no null in what they are found by.
                    place = ("" if pd.isna(record.topic) else record.topic, partition)
                    found = (
                        number(record.version),
                        position,
                        number(record.time),
                        number(record.rule),
                        record.row,
                    )
                    best = kept.setdefault(place, found)
                    if best[3] != found[3]:
                        problem = (
                            "this checkpoint belongs to another strategy, header or list of "
                            "columns of statemark.latest: use a new checkpoint, or ask as before"
                        )
                        raise ValueError(problem)
                    if (rank(found[0]), found[1]) > (rank(best[0]), best[1]):
                        kept[place] = found
            for place, winner in kept.items():
                if before.get(place) != winner:
                    self.winners.updateValue(place, winner)
            best = max(kept, key=lambda p: (rank(kept[p][0]), rank(kept[p][2]), p))
            yield pd.DataFrame({"row": [kept[best][4]]})

    return Winners()
