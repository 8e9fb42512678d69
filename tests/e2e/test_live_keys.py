"""`statemark.get` finds what a filter finds, whatever the type of the key and whoever asks.

It is asked in the process of the driver, and by a Spark Connect client. The oracle is a join of the
keys that are asked for with the rows of the query, null-safe.
"""

from __future__ import annotations

import datetime as dt
import math
import random
import struct
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
import statemark
from pyspark.sql import Row
from pyspark.sql import functions as sf
from pyspark.sql import types as T  # noqa: N812
from support.cluster import wait_for
from support.lookup_client import LookupClient, answers, connect_server, kinds
from support.session import IS_BEFORE_42, STATE_STORE, STATEMARK_PROVIDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
#: A type, the value that a row has, other words for that value, words for what no row of the type
#: can have or the row has not, and words that are refused.
WORDS: list[tuple[T.DataType, Any, list[Any], list[Any], list[Any]]] = [
    (
        T.IntegerType(),
        1,
        [1.0, "1", "1.0", Decimal("1.00")],
        [2**70],
        [1.5, "1.5", math.nan, True, "x", b"1", [1]],
    ),
    (T.LongType(), 2**63 - 1, [str(2**63 - 1), Decimal(2**63 - 1)], [2.0**63, 2**63], ["9e"]),
    (T.LongType(), 2**53 + 1, [str(2**53 + 1)], [float(2**53)], [{"a": 1}]),
    (
        T.FloatType(),
        math.inf,
        [Decimal("Infinity"), "inf"],
        [1e300, 3.402823669209385e38, 10**300, Decimal("1e300"), -math.inf],
        [True],
    ),
    (T.DoubleType(), math.nan, [Decimal("NaN"), "NaN"], [10**400, Decimal("1e400")], ["x"]),
    (
        T.DecimalType(10, 2),
        Decimal("1.50"),
        [1.5, "1.5"],
        [1.505, Decimal("1E-400"), Decimal("1E+400"), math.nan],
        [dt.date(2024, 1, 1)],
    ),
    (T.DecimalType(38, 18), Decimal("12345678901234567890.1") + Decimal("1E-18"), [], [0.1], []),
    (T.StringType(), "?", [b"?"], ["\ud800", 1], [True, dt.datetime(2024, 1, 1)]),
    (T.BinaryType(), b"?", ["?", bytearray(b"?")], ["\ud800"], [1]),
    (
        T.DateType(),
        dt.date(2024, 1, 1),
        ["2024-01-01", dt.datetime(2024, 1, 1)],
        [MOMENTS[0]],
        [19723, "1st"],
    ),
    (
        T.TimestampType(),
        MOMENTS[1],
        [pd.Timestamp(MOMENTS[1]), MOMENTS[1].astimezone()],
        [dt.datetime.max],
        [0],
    ),
    (
        T.TimestampNTZType(),
        dt.datetime.min,
        ["0001-01-01 00:00:00"],
        [dt.datetime.max, dt.datetime.min.replace(microsecond=1)],
        [0.5],
    ),
    (
        T.DayTimeIntervalType(),
        dt.timedelta(0),
        [],
        [dt.timedelta(microseconds=2**64), dt.timedelta(microseconds=1)],
        [0],
    ),
    (T.ArrayType(T.IntegerType()), [1], [(1.0,), ["1"]], [[1, 2**70], []], ["1", {"a": 1}, [1.5]]),
    (T.StructType([T.StructField("f", T.FloatType())]), (0.1,), [], [Row(f=0.2)], [1, {"g": 1}]),
]
#: Of the types alone, those that have several forms of one value.
ALONE = [T.DoubleType(), T.FloatType()]


@dataclass(frozen=True)
class Keyed:
    """A query, the columns of its key, and keys of its input and of none."""

    query: StreamingQuery
    schema: T.StructType
    asked: list[dict[str, Any]]

    @property
    def id(self) -> str:
        return str(self.query.id)


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


@pytest.fixture(scope="module")
def server(spark: SparkSession, queries: list[Keyed]) -> Iterator[str]:
    with connect_server(spark) as url:
        yield url


@pytest.fixture(scope="module")
def client(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LookupClient]:
    """A Spark Connect client of the application in which the queries run."""
    client = LookupClient(server, tmp_path_factory.mktemp("client") / "client.log")
    yield client
    client.kill()


def test_get_finds_what_a_filter_finds(
    spark: SparkSession, queries: list[Keyed], client: LookupClient
) -> None:
    for keyed in queries:
        wanted = filtered(spark, keyed)
        # Before 4.2 a deduplication tells 0.0 and -0.0 apart, which a filter does not.
        one = [len(found) < 2 or not IS_BEFORE_42 for found in wanted]
        asked = [key for key, is_one in zip(keyed.asked, one, strict=True) if is_one]
        wanted = [found for found, is_one in zip(wanted, one, strict=True) if is_one]
        assert {len(rows) for rows in wanted} == {0, 1}
        rows = [repr(found[0] if found else None) for found in wanted]
        assert answers(keyed.id, asked) == rows
        assert answers(keyed.id, [as_row(key) for key in asked]) == rows
        assert client.answers(keyed.id, asked) == rows


def test_a_value_of_another_type_is_the_same_key_over_both_ways(
    spark: SparkSession, client: LookupClient, tmp_path: Path
) -> None:
    schema = columns([kind for kind, *_ in WORDS])
    row = tuple(value for _, value, *_ in WORDS)
    spark.createDataFrame([row], schema).write.parquet(str(tmp_path / "events"))
    stream = spark.readStream.schema(schema).parquet(str(tmp_path / "events"))
    query = start(grouped(stream), tmp_path / "checkpoint")
    try:
        query.processAllAvailable()
        key = named(row, schema)

        (whole,) = answers(query.id, [key])
        assert whole != "None"
        wrong = []
        for i, (_, _, same, absent, refused) in enumerate(WORDS):
            expected = [(w, [whole]) for w in same] + [(w, ["None"]) for w in absent]
            asked = [({**key, f"c{i}": word}, found) for word, found in expected]
            for bad in ({**key, f"c{i}": word} for word in refused):
                said = answers(query.id, [bad])
                assert "Keys do not fit: " in said
                asked.append((bad, said))
            for one, answer in asked:
                for ask in (answers, client.answers):
                    found = ask(query.id, [one])
                    if found != answer:
                        wrong.append((ask.__qualname__, f"c{i}", one[f"c{i}"], found))
        assert wrong == []
    finally:
        query.stop()


def test_errors_read_the_same_over_both_ways(
    queries: list[Keyed], client: LookupClient, conf: Callable[[str, str], None]
) -> None:
    keyed = queries[0]
    (key, *_) = keyed.asked
    beyond = statemark.Position(batch_id=0, offsets=('{"logOffset": 99}',))
    cases: list[tuple[str, list[Any], dict[str, Any]]] = [
        ("a key has k where", [{"k": 1}], {}),
        ("no stateful operator 7", [key], {"operator_id": 7}),
        ("'nowhere'", [key], {"store_name": "nowhere"}),
        ("'nobody'", [key], {"state_var_name": "nobody"}),
        ("99", [key], {"position_bound": beyond, "timeout": 0}),
    ]
    for word, keys, options in cases:
        said = answers(keyed.id, keys, **options)
        assert isinstance(said, str)
        assert word in said
        assert said.startswith(f"query {keyed.id} was not read\n  reason: ")
        assert client.answers(keyed.id, keys, **options) == said
    nobody = "00000000-0000-0000-0000-000000000000"
    said = answers(nobody, [key])
    assert keyed.id in said
    assert client.answers(nobody, [key]) == said
    assert kinds(nobody) == client.kinds(nobody) == ["InvalidInputError"] * 3
    for ask in (kinds, client.kinds):
        assert ask(keyed.id, key, position_bound=beyond, timeout=0)[0] == "PositionBoundError"

    shows_stacks = "spark.sql.pyspark.jvmStacktrace.enabled"
    conf(shows_stacks, "true")
    client.set(shows_stacks, "true")
    assert answers(nobody, [key]) == client.answers(nobody, [key]) == said
    client.set(shows_stacks, "false")


def test_each_connect_session_has_its_own_isolation_level(
    spark: SparkSession, server: str, client: LookupClient, tmp_path: Path
) -> None:
    events, held, reached = [str(tmp_path / name) for name in ("events", "held", "reached")]

    def passes(total: int) -> bool:
        import time
        from pathlib import Path

        Path(reached).touch()
        while Path(held).exists():
            time.sleep(0.02)
        return True

    def arrive(amount: int) -> None:
        one = spark.createDataFrame([(7, amount)], "k int, amount int").coalesce(1)
        one.write.mode("append").parquet(events)

    arrive(5)
    sums = spark.readStream.schema("k int, amount int").parquet(events).groupBy("k")
    passed = sf.udf(passes, "boolean", useArrow=False)
    query = start(sums.agg(sf.sum("amount").alias("n")).where(passed("n")), tmp_path / "checkpoint")
    dirty = LookupClient(server, tmp_path / "dirty.log")
    try:
        query.processAllAvailable()
        level = f"{STATE_STORE}.statemark.isolationLevel"
        dirty.set(level, "READ_UNCOMMITTED")

        def seen() -> list[bool]:
            """Whether the own session, one at READ_UNCOMMITTED and one more have what is staged."""
            found = [ask(query.id, [{"k": 7}]) for ask in (answers, dirty.answers, client.answers)]
            return ["sum=35" in row for (row,) in found]

        assert seen() == [False, False, False]
        Path(reached).unlink()
        Path(held).touch()
        arrive(30)
        wait_for("the second batch", Path(reached).exists)
        assert seen() == [False, True, False]
        dirty.set(level, "READ_COMMITTED")
        assert seen() == [False, False, False]
        Path(held).unlink()
        query.processAllAvailable()
        assert seen() == [True, True, True]
    finally:
        Path(held).unlink(missing_ok=True)
        dirty.kill()
        query.stop()
