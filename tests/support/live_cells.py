"""What reads of a running query have to show, whatever its operator and wherever its stores are.

The oracle is Spark's own data source, which reads the same batch from the files of the checkpoint.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import statemark
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from support.session import STATE_STORE
from support.streams import Source, events

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql.streaming.query import StreamingQuery

    from support.operators import Operator

BATCHES = 3


@dataclass(frozen=True)
class Running:
    """
    A query that has read all there is, and goes on.

    Attributes
    ----------
    operator
        Its stateful operator.
    query
        The query.
    directory
        Its checkpoint location.
    checkpoint_format
        Of that: "1" or "2".
    """

    operator: Operator
    query: StreamingQuery
    directory: Path
    checkpoint_format: str

    def live(self, **options: Any) -> DataFrame:
        """Read its state."""
        return statemark.live(self.query, **self.operator.read, **options)


def start(
    spark: SparkSession, operator: Operator, directory: Path, checkpoint_format: str
) -> Running:
    """Start a query over some batches of events, and wait until it has read them."""
    source = Source(spark, directory / "events")
    source.add(*[events(i * 60, 60, keys=7) for i in range(BATCHES)])
    with _session_of(spark, checkpoint_format):
        query = (
            operator.over(source.stream())
            .writeStream.outputMode(operator.mode)
            .format("noop")
            .option("checkpointLocation", str(directory / "checkpoint"))
            .start()
        )
    query.processAllAvailable()
    return Running(operator, query, directory / "checkpoint", checkpoint_format)


@contextmanager
def _session_of(spark: SparkSession, checkpoint_format: str) -> Iterator[None]:
    key = f"{STATE_STORE}.checkpointFormatVersion"
    spark.conf.set(key, checkpoint_format)
    try:
        yield
    finally:
        spark.conf.unset(key)


def in_files(spark: SparkSession, running: Running, **options: str) -> tuple[list[str], list[Row]]:
    """Return columns and rows of the state as Spark's data source reads it from the checkpoint."""
    names = {"state_var_name": "stateVarName", "join_side": "joinSide"}
    named = {names[k]: v for k, v in running.operator.read.items()}
    batch = statemark.position(running.query).batch_id
    reader = spark.read.format("statestore").options(batchId=batch, **named, **options)
    # Spark's source needs to be told the format; reads of a running query know it.
    with _session_of(spark, running.checkpoint_format):
        rows = reader.load(str(running.directory))
        return rows.columns, ordered(rows)


def ordered(rows: DataFrame) -> list[Row]:
    """Return the rows in an order of their own."""
    return sorted(rows.collect(), key=repr)


def live_shows_what_the_files_of_the_batch_hold(spark: SparkSession, running: Running) -> None:
    """Compare rows and columns."""
    rows = running.live()
    columns, wanted = in_files(spark, running)
    assert rows.columns == columns
    assert ordered(rows) == wanted
    assert rows.count() > 0
    if "state_var_name" in running.operator.read:
        whole = in_files(spark, running, flattenCollectionTypes="false")[1]
        assert ordered(running.live(flatten_collection_types=False)) == whole


def get_finds_each_key_and_no_other(spark: SparkSession, running: Running) -> None:
    """Look every key up, and one that is not there."""
    read = running.operator.read
    whole = {"flattenCollectionTypes": "false"} if "state_var_name" in read else {}
    by_key: dict[str, list[Row]] = {}
    for row in in_files(spark, running, **whole)[1]:
        by_key.setdefault(repr(row.key), []).append(row)
    one = [rows[0] for rows in by_key.values() if len(rows) == 1]
    several = [rows[0] for rows in by_key.values() if len(rows) > 1]
    assert one or several
    keys = [row.key.asDict(recursive=True) for row in one]
    assert statemark.get_many(running.query, keys, **read) == one
    assert [statemark.get(running.query, key, **read) for key in keys[:3]] == one[:3]
    for row in several[:2]:
        with pytest.raises(statemark.LiveReadError, match="rows"):
            statemark.get(running.query, row.key.asDict(recursive=True), **read)
    other = (one or several)[0].key.asDict(recursive=True)
    name = list(other)[-1]
    assert isinstance(other[name], str | int | datetime)
    other[name] = {str: "nobody", int: -5, datetime: datetime(1970, 1, 1, tzinfo=UTC)}[
        type(other[name])
    ]
    assert statemark.get(running.query, other, **read) is None


def position_is_that_of_the_last_batch(_: SparkSession, running: Running) -> None:
    """Compare with what has arrived."""
    position = statemark.position(running.query)
    assert {json.loads(offset or "")["logOffset"] for offset in position.offsets} == {BATCHES - 1}
    # A join with itself has the source twice.
    assert len(set(position.sources)) == len(position.sources) == len(position.offsets)
    assert all(name.startswith("FileStreamSource[file:/") for name in position.sources)
    assert running.live(position_bound=position, timeout=30).count() > 0


def a_filter_on_the_key_gives_what_reading_all_gives(_: SparkSession, running: Running) -> None:
    """Read one key of all."""
    rows = ordered(running.live())
    key = rows[len(rows) // 2].key.asDict(recursive=True)
    condition = sf.lit(col=True)
    for name, value in key.items():
        parts = value.items() if isinstance(value, dict) else [(None, value)]
        for field, v in parts:
            path = f"key.{name}.{field}" if field else f"key.{name}"
            condition = condition & (sf.col(path) == v)
    found = ordered(running.live().where(condition))
    assert found == [row for row in rows if row.key.asDict(recursive=True) == key]
    assert found


CELLS = (
    live_shows_what_the_files_of_the_batch_hold,
    get_finds_each_key_and_no_other,
    position_is_that_of_the_last_batch,
    a_filter_on_the_key_gives_what_reading_all_gives,
)
