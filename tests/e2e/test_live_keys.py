"""`statemark.get` finds what a filter finds, whatever the type of the key.

The oracle is a join of the keys that are asked for with the rows of the query, null-safe.
"""

from __future__ import annotations

import datetime as dt
import math
import random
import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
import statemark
from pyspark.sql import Row
from pyspark.sql import types as T  # noqa: N812
from statemark import lookup, lookup_keys, reads
from support.session import STATEMARK_PROVIDER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: As the arithmetic of processors makes it; Python's and Java's own has another sign.
NEGATIVE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000000))[0]
FLOATS = [0.0, -0.0, math.nan, NEGATIVE_NAN, math.inf, -math.inf, 0.1, -1.5]
MOMENTS = [dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2024, 3, 31, 2, 30)]

#: Values of each type that a key may have.
KINDS: list[tuple[T.DataType, list[Any]]] = [
    (T.BooleanType(), [True, False]),
    (T.ByteType(), [0, -128]),
    (T.ShortType(), [7, 32767]),
    (T.IntegerType(), [7, -(2**31)]),
    (T.LongType(), [7, 2**63 - 1]),
    (T.FloatType(), FLOATS),
    (T.DoubleType(), FLOATS),
    (T.DecimalType(10, 2), [Decimal("1.50"), Decimal("0.00"), Decimal("-99999999.99")]),
    (T.DecimalType(38, 10), [Decimal("1.5000000000"), Decimal(10) ** 27]),
    (T.StringType(), ["", "NaN", "ä€😀", "7"]),
    (T.BinaryType(), [b"", b"\x00\xff", b"7"]),
    (T.DateType(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    (T.TimestampType(), MOMENTS),
    (T.TimestampNTZType(), MOMENTS),
    (T.DayTimeIntervalType(), [dt.timedelta(0), dt.timedelta(days=-1, microseconds=1)]),
    (T.ArrayType(T.DoubleType()), [[], [0.0], [-0.0, math.nan], [None, 1.0]]),
    (T.ArrayType(T.StringType()), [["a"], ["a", None]]),
]
KINDS.append(
    (
        T.StructType([T.StructField(f"f{i}", kind) for i, (kind, _) in enumerate(KINDS)]),
        [tuple(values[n % len(values)] for _, values in KINDS) for n in range(len(FLOATS))],
    )
)
#: Of the types alone, those that have several forms of one value.
ALONE = [T.DoubleType(), T.FloatType()]


@dataclass(frozen=True)
class Keyed:
    """A query, the columns of its key, and keys of its input and of none."""

    query: StreamingQuery
    schema: T.StructType
    asked: list[dict[str, Any]]


def columns(kinds: list[T.DataType]) -> T.StructType:
    return T.StructType([T.StructField(f"c{i}", kind) for i, kind in enumerate(kinds)])


def wide_rows(rng: random.Random) -> list[tuple[Any, ...]]:
    """Each value beside nulls, and rows that have a value of each type."""
    rows = []
    for i, (_, values) in enumerate(KINDS):
        rows += [(None,) * i + (v,) + (None,) * (len(KINDS) - i - 1) for v in values]
    rows += [tuple(rng.choice(values) for _, values in KINDS) for _ in range(20)]
    return rows


def others(rows: list[tuple[Any, ...]], rng: random.Random) -> list[tuple[Any, ...]]:
    """Keys with one column taken from another row: most of them nobody has."""
    made = []
    for _ in range(20):
        row, other = rng.sample(rows, 2)
        i = rng.randrange(len(row))
        made.append((*row[:i], other[i], *row[i + 1 :]))
    return made


@pytest.fixture(autouse=True)
def _no_query_left() -> None:
    """Keep the queries over the tests of this file."""


@pytest.fixture(scope="module")
def queries(
    spark: SparkSession, provider: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Keyed]]:
    if provider != STATEMARK_PROVIDER:
        pytest.skip("Spark's provider shows nothing of a running query")
    directory = tmp_path_factory.mktemp("live-keys")
    rng = random.Random(4)
    wide = wide_rows(rng)
    inputs = [(columns([kind for kind, _ in KINDS]), wide, wide + others(wide, rng))]
    inputs += [(columns([kind]), [(v,) for v in FLOATS], [(7.0,), (None,)]) for kind in ALONE]
    started = []
    for n, (schema, rows, more) in enumerate(inputs):
        events = directory / f"events{n}"
        spark.createDataFrame(rows, schema).coalesce(1).write.parquet(str(events))
        stream = spark.readStream.schema(schema).parquet(str(events))
        asked = [named(row, schema) for row in [*rows, *more]]
        for name, over in (("grouped", grouped), ("distinct", distinct)):
            query = start(over(stream), directory / f"{name}{n}")
            started.append(Keyed(query, schema, asked))
    for keyed in started:
        keyed.query.processAllAvailable()
    yield started
    for keyed in started:
        keyed.query.stop()


def grouped(df: DataFrame) -> DataFrame:
    """Its keys are normalized."""
    return df.groupBy(*df.columns).count()


def distinct(df: DataFrame) -> DataFrame:
    """Its keys are as they came."""
    return df.dropDuplicates(df.columns)


def start(df: DataFrame, checkpoint: Path) -> StreamingQuery:
    writer = df.writeStream.outputMode("update").format("noop")
    return writer.option("checkpointLocation", str(checkpoint)).start()


def named(row: Any, schema: T.StructType) -> dict[str, Any]:
    """Return a row as a mapping, structs in it too."""

    def value(v: Any, kind: T.DataType) -> Any:
        return named(v, kind) if isinstance(kind, T.StructType) and v is not None else v

    return {f.name: value(v, f.dataType) for v, f in zip(row, schema, strict=True)}


def as_row(value: Any) -> Any:
    """Return a mapping as a Row, mappings in it too."""
    if isinstance(value, dict):
        return Row(**{name: as_row(part) for name, part in value.items()})
    return value


def filtered(spark: SparkSession, keyed: Keyed) -> list[list[Row]]:
    """Return what a filter finds for each key that is asked for."""
    rows = statemark.live(keyed.query)
    # A deduplication has the columns in an order of its own.
    key = rows.schema["key"].dataType
    numbered = T.StructType([T.StructField("i", T.IntegerType()), T.StructField("k", key)])
    asked = spark.createDataFrame(list(enumerate(keyed.asked)), numbered)
    found: list[list[Row]] = [[] for _ in keyed.asked]
    joined = asked.join(rows, asked.k.eqNullSafe(rows.key)).select("i", *rows.columns)
    for row in joined.collect():
        found[row.i].append(Row(**{name: row[name] for name in rows.columns}))
    return found


def via_connect(keyed: Keyed, keys: list[dict[str, Any]]) -> list[Row | None]:
    """Look keys up as a Spark Connect client does."""
    options = reads.options(
        keyed.query,
        operator_id=0,
        store_name="default",
        state_var_name=None,
        join_side=None,
        isolation_level=None,
        position_bound=None,
        timeout=None,
    )
    return lookup._filtered(reads.reader(options).load(), [lookup_keys.key_of(k) for k in keys])


def via_get(keyed: Keyed, keys: list[dict[str, Any]]) -> list[Row | None]:
    return statemark.get_many(keyed.query, keys)


def via_rows(keyed: Keyed, keys: list[dict[str, Any]]) -> list[Row | None]:
    """Ask with Rows where others ask with mappings."""
    return statemark.get_many(keyed.query, [as_row(key) for key in keys])


def test_get_finds_what_a_filter_finds(spark: SparkSession, queries: list[Keyed]) -> None:
    for keyed in queries:
        wanted = filtered(spark, keyed)
        assert {len(rows) for rows in wanted} == {0, 1}
        # As text: a NaN in Python equals none.
        rows = [repr(found[0] if found else None) for found in wanted]
        # To write a filter of many columns takes long.
        filters = 4 if len(keyed.schema) > 1 else 1
        for ask, step in ((via_get, 1), (via_rows, 1), (via_connect, filters)):
            found = ask(keyed, keyed.asked[::step])
            assert [repr(row) for row in found] == rows[::step], ask.__name__
