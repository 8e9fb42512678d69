"""`statemark.latest` beside a plain model of KIP-280."""

from __future__ import annotations

import itertools
import os
import random
import re
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
import statemark
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as sf
from statemark import winners, winners_rules
from support.kip280 import SCHEMA, VERSION, Key, Record, headed, model, number
from support.processes import wait_for
from support.session import SPARK_PROVIDER, STATE_STORE, STATEMARK_PROVIDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

HDFS_PROVIDER = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
LOCAL = datetime(2026, 1, 1, 0, 0, 0, 123456)
STRATEGIES = ("offset", "timestamp", "header")
#: A story is the history of two keys at most, and of records without one; each topic has so many.
TOPICS, STORIES, BATCHES = 20, 50, 4


def arguments(strategy: str) -> dict[str, str]:
    return {"strategy": strategy, **({"header": VERSION} if strategy == "header" else {})}


def frame(spark: SparkSession, records: Sequence[Record]) -> DataFrame:
    return spark.createDataFrame([record.row() for record in records], SCHEMA)


def found(df: DataFrame) -> dict[Key, tuple[object, ...]]:
    """Return the rows of winners by key; a key has one."""
    # Binary values are bytearrays until 4.0, which no dictionary takes as a key.
    rows = [
        tuple(bytes(value) if isinstance(value, bytearray) else value for value in row)
        for row in df.collect()
    ]
    by_key = {Key(topic, story, key): tuple(rest) for topic, story, key, *rest in rows}
    assert len(by_key) == len(rows)
    return by_key


def expected(records: Iterable[Record], strategy: str) -> dict[Key, tuple[object, ...]]:
    def rest(record: Record) -> tuple[object, ...]:
        value, partition, offset, time, headers = record.row()[3:]
        assert isinstance(time, datetime)
        local = time.astimezone().replace(tzinfo=None)
        return (value, partition, offset, local, headers)

    return {key: rest(record) for key, record in model(records, strategy).items()}


RULES: dict[str, tuple[str, list[Record], bytes | None]] = {
    "offset": ("offset", [Record(b"a", 1, time=9), Record(b"b", 2, time=1)], b"b"),
    "offset: a header says nothing": (
        "offset",
        [Record(b"a", 1, headers=headed(number(5))), Record(b"b", 2)],
        b"b",
    ),
    "timestamp": ("timestamp", [Record(b"a", 1, time=9), Record(b"b", 2, time=1)], b"a"),
    "timestamp: a tie": ("timestamp", [Record(b"a", 1, time=3), Record(b"b", 2, time=3)], b"b"),
    "timestamp: before 1970": (
        "timestamp",
        [Record(b"a", 1, time=-(10**13)), Record(b"b", 2, time=-(10**13) - 1)],
        b"a",
    ),
    "header": (
        "header",
        [Record(b"a", 1, headers=headed(number(7))), Record(b"b", 2, headers=headed(number(6)))],
        b"a",
    ),
    "header: a tie": (
        "header",
        [
            Record(b"a", 1, time=9, headers=headed(number(7))),
            Record(b"b", 2, time=1, headers=headed(number(7))),
        ],
        b"b",
    ),
    "header: signed": (
        "header",
        [
            Record(b"a", 1, headers=headed(number(-(2**63)))),
            Record(b"b", 2, headers=headed(number(-1))),
            Record(b"c", 3, headers=headed(number(-2))),
        ],
        b"b",
    ),
    "header: 0 is more than -1": (
        "header",
        [Record(b"a", 1, headers=headed(number(0))), Record(b"b", 2, headers=headed(number(-1)))],
        b"a",
    ),
    "header: the highest": (
        "header",
        [
            Record(b"a", 1, headers=headed(number(2**63 - 1))),
            Record(b"b", 2, headers=headed(number(2**63 - 2))),
        ],
        b"a",
    ),
    "header: the last of several": (
        "header",
        [
            Record(b"a", 1, headers=headed(number(1), number(5))),
            Record(b"b", 2, headers=headed(number(9), number(4))),
        ],
        b"a",
    ),
    "header: the last of several is none": (
        "header",
        [
            Record(b"a", 1, headers=headed(number(-9))),
            Record(b"b", 2, headers=headed(number(9), b"")),
        ],
        b"a",
    ),
    "header: one beats none": (
        "header",
        [Record(b"a", 1, headers=headed(number(-(2**63)))), Record(b"b", 2, headers=headed())],
        b"a",
    ),
    "header: none at all": ("header", [Record(b"a", 1), Record(b"b", 2, headers=())], b"b"),
    "header: of other lengths": (
        "header",
        [
            Record(b"a", 1, headers=headed(number(-5))),
            Record(b"b", 2, headers=headed(number(7)[:7])),
            Record(b"c", 3, headers=headed(number(7) + b"\0")),
            Record(b"d", 4, headers=headed(b"")),
            Record(b"e", 5, headers=headed(None)),
        ],
        b"a",
    ),
    "header: two of other lengths": (
        "header",
        [Record(b"a", 1, headers=headed(b"\x7f" * 9)), Record(b"b", 2, headers=headed(b"\0"))],
        b"b",
    ),
    "a tombstone wins": (
        "header",
        [Record(None, 1, headers=headed(number(7))), Record(b"b", 2, headers=headed(number(6)))],
        None,
    ),
    "a tombstone loses": ("timestamp", [Record(None, 2, time=1), Record(b"a", 1, time=2)], b"a"),
    "another partition: by version": (
        "header",
        [
            Record(b"a", 1, partition=0, headers=headed(number(7))),
            Record(b"b", 2, partition=1, time=9, headers=headed(number(6))),
        ],
        b"a",
    ),
    "another partition: by timestamp": (
        "offset",
        [Record(b"a", 900, partition=3, time=1), Record(b"b", 2, partition=1, time=2)],
        b"b",
    ),
    "another partition: by number": (
        "offset",
        [Record(b"a", 900, partition=1, time=1), Record(b"b", 2, partition=3, time=1)],
        b"b",
    ),
    # An order of all records would have a circle: 1 beats b, b beats 2, and 2 beats 1.
    "another partition: its winner": (
        "offset",
        [
            Record(b"1", 1, partition=0, time=10),
            Record(b"2", 2, partition=0, time=1),
            Record(b"b", 1, partition=1, time=5),
        ],
        b"b",
    ),
}


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_rules(spark: SparkSession, conf: Callable[[str, str], None], *, ansi: str) -> None:
    """Each rule is a key of one frame for its strategy, in every order of its records."""
    conf("spark.sql.ansi.enabled", ansi)
    for strategy in STRATEGIES:
        records: list[Record] = []
        wanted: dict[Key, bytes | None] = {}
        for name, (of, story, winner) in RULES.items():
            if of == strategy:
                for turn, turned in enumerate(itertools.permutations(story)):
                    key = Key(name, turn, b"k")
                    records += [replace(record, key=key) for record in turned]
                    wanted[key] = winner
        keys = ["topic", "story", "key"]
        rows = found(statemark.latest(frame(spark, records), key=keys, **arguments(strategy)))
        assert {key: row[0] for key, row in rows.items()} == wanted
        assert rows == expected(records, strategy), "the model is right of the rules, too"


def stories(seed: int) -> list[list[Record]]:
    """Make batches of records, each with some of every story; any strategy applies to them."""
    dice = random.Random(seed)
    batches: list[list[Record]] = [[] for _ in range(BATCHES)]
    for topic in range(TOPICS):
        for story in range(STORIES):
            keys = [None, b"k", b"l"][: dice.choice([2, 3])]
            ends = [0, 0, 0]
            for batch in batches:
                for _ in range(dice.randrange(4)):
                    partition = dice.choice([0, 0, 0, 1, 2])
                    ends[partition] += dice.choice([1, 2])
                    versions = [
                        number(dice.randrange(-3, 3)) for _ in range(dice.choice([1, 1, 2]))
                    ]
                    headers = dice.choice([None, (), headed(), headed(b"xyz"), headed(*versions)])
                    batch.append(
                        Record(
                            dice.choice([None, b"x", b"y", b"z"]),
                            ends[partition],
                            time=dice.randrange(6),
                            partition=partition,
                            headers=dice.choice([headers, headed(*versions)]),
                            key=Key(f"t{topic}", story, dice.choice(keys)),
                        )
                    )
    for batch in batches:
        dice.shuffle(batch)
    return batches


@pytest.mark.parametrize(
    ("strategy", "provider_class"),
    [("offset", HDFS_PROVIDER), ("timestamp", SPARK_PROVIDER), ("header", STATEMARK_PROVIDER)],
)
def test_random_histories(
    spark: SparkSession,
    conf: Callable[[str, str], None],
    tmp_path: Path,
    *,
    strategy: str,
    provider_class: str,
) -> None:
    """A query has right what was there at the end of each of its batches, and in any order."""
    conf(f"{STATE_STORE}.providerClass", provider_class)
    batches = stories(seed=34)
    rows = stream(spark, tmp_path, batches)
    seen: list[Record] = []
    table: dict[Key, tuple[object, ...]] = {}
    keys = ["topic", "story", "key"]
    query, emitted = run(statemark.latest(rows, key=keys, **arguments(strategy)), tmp_path)
    assert len(emitted) == BATCHES
    for batch, rows_of_batch in zip(batches, emitted, strict=True):
        seen += batch
        table |= rows_of_batch
        assert rows_of_batch.keys() == {record.key for record in batch if record.key.key}
        assert table == expected(seen, strategy)
    assert found(statemark.latest(frame(spark, seen), key=keys, **arguments(strategy))) == table
    counts = [progress.observedMetrics["statemark_latest"] for progress in query.recentProgress]
    assert sum(count.records for count in counts) == len(seen)
    assert sum(count.withoutKey for count in counts) == sum(r.key.key is None for r in seen) > 0
    if strategy == "header":
        values = [[v for n, v in r.headers or () if n == VERSION][-1:] for r in seen]
        without = sum(value in ([], [None]) for value in values)
        other = sum(len(value[0]) != 8 for value in values if value not in ([], [None]))
        assert sum(count.withoutHeader for count in counts) == without > 0
        assert sum(count.otherLength for count in counts) == other > 0


def run(df: DataFrame, folder: Path) -> tuple[StreamingQuery, list[dict[Key, tuple[object, ...]]]]:
    """Run a query to its end, and return it with what each of its batches has emitted."""
    emitted: list[dict[Key, tuple[object, ...]]] = []
    query = (
        df.writeStream.outputMode("update")
        .foreachBatch(lambda batch, _: emitted.append(found(batch)))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query, emitted


def stream(spark: SparkSession, folder: Path, batches: Sequence[Sequence[Record]]) -> DataFrame:
    """Return a stream in which each of the batches is a file."""
    events = folder / "events"
    events.mkdir()
    for i, batch in enumerate(batches):
        add_file(spark, folder, i, batch)
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(events))


def add_file(spark: SparkSession, folder: Path, i: int, records: Sequence[Record]) -> None:
    frame(spark, records).coalesce(1).write.parquet(str(folder / f"{i}"))
    (file,) = (folder / f"{i}").glob("*.parquet")
    # Spark takes them in the order of their times.
    os.utime(file, (i, i))
    file.rename(folder / f"events/{i}.parquet")


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        pytest.param("-1).value", "1).value", id="the first header of a key"),
        pytest.param(", NULL)", ", -1)", id="a missing header counts as -1"),
    ],
)
def test_faults_are_found(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, *, right: str, wrong: str
) -> None:
    records = [record for batch in stories(seed=34) for record in batch]
    before = winners._version

    def planted(*asked: str) -> str:
        text = before(*asked)
        assert right in text
        return text.replace(right, wrong)

    keys = ["topic", "story", "key"]
    monkeypatch.setattr(winners, "_version", planted)
    rows = found(statemark.latest(frame(spark, records), key=keys, **arguments("header")))
    differing = sum(rows[key] != row for key, row in expected(records, "header").items())
    assert differing > TOPICS * STORIES / 100


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ({"strategy": "newest"}, "strategy='newest' is refused"),
        ({"strategy": "header"}, "header=None is refused with strategy='header'"),
        ({"strategy": "offset", "header": "v"}, "header='v' is refused with strategy='offset'"),
        ({"missing": "newest"}, "missing='newest' is refused"),
        ({"missing": "refuse"}, "missing='refuse' is refused with strategy='offset'"),
        ({"key": "id"}, "column 'id' is missing"),
        ({"key": []}, "key is empty"),
    ],
)
def test_what_is_refused(spark: SparkSession, asked: dict[str, Any], part: str) -> None:
    with pytest.raises(statemark.SettingsError, match=re.escape(part)):
        statemark.latest(frame(spark, [Record(b"a", 1)]), **asked)


def test_missing_header_that_is_refused(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """Also of a key whose other record has it, and not of a record without a key."""
    winners_rules._say_once.cache_clear()
    whole = [Record(b"a", 1, headers=headed(number(1))), Record(b"b", 2, headers=headed(number(0)))]
    keyless = replace(Record(b"c", 3), key=Key("t", 0, None))

    def asked(*records: Record) -> list[object]:
        rows = statemark.latest(frame(spark, records), missing="refuse", **arguments("header"))
        return [bytes(row.value) for row in rows.collect()]

    assert asked(*whole, keyless) == [b"a"]
    for headers in (None, headed(b"short")):
        with pytest.raises(Exception, match="missing is refuse: partition 0, offset 4"):
            asked(*whole, Record(b"d", 4, headers=headers))
    assert caplog.text.count("did not look by which rule the topic") == 1
    assert "its table is not a stream of Spark's Kafka source" in caplog.text


@pytest.mark.parametrize("column", ["partition", "offset", "timestamp", "headers"])
def test_columns_that_are_needed(spark: SparkSession, column: str) -> None:
    rows = frame(spark, [Record(b"a", 1)]).drop(column)
    with pytest.raises(statemark.SettingsError, match=f"column '{column}' is missing"):
        statemark.latest(rows, strategy="header", header="v")


def test_record_without_a_place(spark: SparkSession) -> None:
    rows = frame(spark, [Record(b"a", 1)]).selectExpr(
        "key", "value", "timestamp", "partition", "CAST(NULL AS BIGINT) AS offset"
    )
    with pytest.raises(Exception, match="without partition or offset"):
        statemark.latest(rows).collect()


needs_ttl = pytest.mark.usefixtures("_with_ttl")


@pytest.fixture
def _with_ttl(provider: str, conf: Callable[[str, str], None]) -> None:
    if provider != STATEMARK_PROVIDER:
        pytest.skip("one provider is enough: the state is Spark's transformWithState's")
    # Batches for the sake of the clock would follow one another without end.
    conf("spark.sql.streaming.noDataMicroBatches.enabled", "false")


@needs_ttl
def test_winners_that_are_remembered_for_long(spark: SparkSession, tmp_path: Path) -> None:
    """As without a `ttl`; versions differ in their last bit, and a column is not of Kafka's."""
    # Python's state answers slowly: a few stories are enough.
    batches = [[r for r in batch if r.key.topic == "t0"] for batch in stories(seed=35)[:2]]
    near = 2**62
    batches[0] += [
        Record(b"a", 1, headers=headed(number(near + 1)), time=1),
        Record(b"b", 2, headers=headed(number(near))),
    ]
    keys = ["topic", "story", "key"]
    rows = stream(spark, tmp_path, batches).withColumns(
        {"exact": sf.lit(Decimal("0.10")), "local": sf.lit(LOCAL).cast("timestamp_ntz")}
    )
    winning = statemark.latest(rows, key=keys, ttl=timedelta(days=1), **arguments("header"))
    _, emitted = run(winning, tmp_path)
    table = {key: row for batch in emitted for key, row in batch.items()}
    wanted = expected([record for batch in batches for record in batch], "header")
    assert table == {key: (*row, Decimal("0.10"), LOCAL) for key, row in wanted.items()}


@needs_ttl
def test_winner_that_is_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    """A loser that comes too late is emitted, as the documentation says."""
    events = tmp_path / "events"
    events.mkdir()
    rows = spark.readStream.schema(SCHEMA).parquet(str(events))
    emitted: list[bytes] = []
    query = (
        statemark.latest(rows, ttl=timedelta(seconds=1), **arguments("header"))
        .writeStream.outputMode("update")
        .foreachBatch(lambda df, _: emitted.extend(bytes(row.value) for row in df.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )

    def add(*records: Record) -> None:
        add_file(spark, tmp_path, len(list(events.iterdir())), records)
        query.processAllAvailable()

    add(Record(b"winner", 1, headers=headed(number(7))))
    assert emitted == [b"winner"]

    def is_forgotten() -> bool:
        add(Record(b"late", 1 + len(emitted), headers=headed(number(6))))
        return emitted[-1] == b"late"

    try:
        wait_for("the end of a winner's time", is_forgotten)
    finally:
        query.stop()


@pytest.mark.parametrize("ttl", [timedelta(0), timedelta(seconds=-1), timedelta(hours=1)])
def test_ttl_that_is_refused(spark: SparkSession, ttl: timedelta) -> None:
    """A batch has nothing to remember."""
    with pytest.raises(statemark.SettingsError, match="ttl="):
        statemark.latest(frame(spark, [Record(b"a", 1)]), ttl=ttl)


def test_checkpoint_of_another_question(spark: SparkSession, tmp_path: Path) -> None:
    ask_another_question(spark, tmp_path, None)


@needs_ttl
def test_checkpoint_of_another_question_with_ttl(spark: SparkSession, tmp_path: Path) -> None:
    ask_another_question(spark, tmp_path, timedelta(days=1))


def ask_another_question(spark: SparkSession, tmp_path: Path, ttl: timedelta | None) -> None:
    """State knows no names: columns that change places, and versions of other kinds, would fit."""
    columns = ["key", "value", "partition", "offset", "timestamp", "headers"]
    rows = stream(spark, tmp_path, [[Record(b"a", 1, headers=headed(number(7)))]])
    before = {"ttl": ttl, "strategy": "header", "header": VERSION}
    run(statemark.latest(rows.select(columns), **before), tmp_path)
    add_file(spark, tmp_path, 1, [Record(b"b", 2, headers=headed(number(8)))])
    for df, asked in (
        (rows.select(["value", "key", *columns[2:]]), before),
        (rows.select(columns), {**before, "header": "other"}),
        (rows.select(columns), {"ttl": ttl, "strategy": "timestamp"}),
    ):
        with pytest.raises(StreamingQueryException, match="belongs to another strategy"):
            run(statemark.latest(df, **asked), tmp_path)
    _, emitted = run(statemark.latest(rows.select(columns), **before), tmp_path)
    assert emitted


def test_offsets_of_two_topics(spark: SparkSession) -> None:
    """They are not compared: the later one wins."""
    records = [
        Record(b"old", 100, time=1, key=Key("a", 0, b"k")),
        Record(b"new", 3, time=9, key=Key("b", 0, b"k")),
    ]
    for df in (frame(spark, records), frame(spark, records[::-1])):
        (row,) = statemark.latest(df).collect()
        assert bytes(row.value) == b"new"


def test_settings_of_a_session(spark: SparkSession, conf: Callable[[str, str], None]) -> None:
    """Names of the source's columns are words of SQL's, and a session may reserve them."""
    df = frame(spark, [Record(b"a", 1)])
    conf("spark.sql.ansi.enabled", "true")
    conf("spark.sql.ansi.enforceReservedKeywords", "true")
    conf("spark.sql.retainGroupColumns", "false")
    (row,) = statemark.latest(df, strategy="timestamp").collect()
    assert bytes(row.value) == b"a"


def test_two_in_one_query(spark: SparkSession, tmp_path: Path) -> None:
    rows = stream(spark, tmp_path, [[Record(b"a", 1)]])
    both = statemark.latest(rows).union(statemark.latest(rows, observed_as="second"))
    query = both.writeStream.format("noop").outputMode("complete")
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
    done = query.trigger(availableNow=True).start()
    done.awaitTermination()
    assert set(done.recentProgress[0].observedMetrics) == {"statemark_latest", "second"}


def test_keys_and_columns_that_a_ttl_refuses(spark: SparkSession, tmp_path: Path) -> None:
    rows = stream(spark, tmp_path, [[Record(b"a", 1)]])
    for column, part in {
        "CAST(1 AS DOUBLE)": "of type double",
        "timestamp": "of type timestamp",
        "array(1)": "of type array<int>",
    }.items():
        df = rows.withColumn("id", sf.expr(column))
        with pytest.raises(statemark.SettingsError, match=re.escape(part)):
            statemark.latest(df, key="id", ttl=timedelta(days=1))
    doubled = rows.selectExpr("*", "value")
    with pytest.raises(statemark.SettingsError, match="two of them have one name"):
        statemark.latest(doubled, ttl=timedelta(days=1))


def test_what_the_function_takes(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="statemark_latest takes struct<row:"):
        spark.range(1).selectExpr("statemark_latest(id)")
    with pytest.raises(Exception, match="takes one argument"):
        spark.range(1).selectExpr("statemark_latest(id, id)")
