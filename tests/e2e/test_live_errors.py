"""What a read of a running query says where it has no answer: three lines, by their kind."""

from __future__ import annotations

import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import statemark
from pyspark.errors import AnalysisException
from pyspark.sql import functions as sf
from statemark import settings
from support.lookup_client import LookupClient, connect_server, failure
from support.operators import OPERATORS
from support.session import STATEMARK_PROVIDER
from support.streams import Source, events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BEYOND = statemark.Position(batch_id=0, offsets=('{"logOffset": 99}',))
#: Different keys among the events.
KEYS = 6
JOIN, VALUE = (next(o for o in OPERATORS if o.name == name) for name in ("join-left", "value"))


@pytest.fixture(autouse=True)
def _no_query_left() -> None:
    """Keep the queries over the tests of this file."""


@pytest.fixture(scope="module")
def start(
    spark: SparkSession, provider: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., StreamingQuery]]:
    """Start a query over a stream of events, under a name."""
    if provider != STATEMARK_PROVIDER:
        pytest.skip("Spark's provider shows nothing of a running query")
    directory = tmp_path_factory.mktemp("live-errors")
    source = Source(spark, directory / "events").add(events(0, 50))
    started: list[StreamingQuery] = []

    def over(name: str, transform: Callable[[DataFrame], DataFrame], mode: str) -> StreamingQuery:
        writer = transform(source.stream()).writeStream.outputMode(mode).format("noop")
        checkpoint = str(directory / f"checkpoint-{len(started)}")
        started.append(writer.queryName(name).option("checkpointLocation", checkpoint).start())
        return started[-1]

    yield over
    for query in started:
        query.stop()


@pytest.fixture(scope="module")
def queries(start: Callable[..., StreamingQuery]) -> dict[str, StreamingQuery]:
    def twice(df: DataFrame) -> DataFrame:
        return JOIN.over(df).groupBy(sf.window("ts", "1 hour")).count()

    # Spark gives a Python worker ten seconds to start: nothing runs beside it.
    value = start("value", VALUE.over, VALUE.mode)
    value.processAllAvailable()
    found = {
        "stateless": start("stateless", lambda df: df.where("value > 3"), "append"),
        "count": start(
            "counts", lambda df: df.groupBy(sf.upper("key").alias("k")).count(), "update"
        ),
        "join": start("join", twice, "append"),
        "value": value,
    }
    for query in found.values():
        query.processAllAvailable()
    return found


def test_operators_are_numbered_from_the_sink_on(queries: dict[str, StreamingQuery]) -> None:
    assert statemark.operators(queries["stateless"]) == []
    (count,) = statemark.operators(queries["count"])
    assert (count.number, count.name) == (0, "stateStoreSave")
    assert count.key_columns == ("_groupingexpression",)
    assert (count.sides, count.state_variables, count.stores) == ((), (), ("default",))
    last, join = statemark.operators("join")
    assert (last.number, last.name, last.key_columns) == (0, "stateStoreSave", ("window",))
    assert (join.number, join.name) == (1, "symmetricHashJoin")
    assert join.sides == ("left", "right")
    assert len(join.key_columns) == 3
    (value,) = statemark.operators(queries["value"].id)
    assert value.state_variables == ("by_half", "count", "seen")
    assert value.key_columns == ("key",)
    # What it shows is what reads take.
    for side in join.sides:
        assert statemark.live("join", operator_id=join.number, join_side=side).count() > 0
    for name in join.stores:
        statemark.live("join", operator_id=join.number, store_name=name).collect()
    for name in value.state_variables:
        assert statemark.live("value", state_var_name=name).count() > 0
    assert statemark.live("join", operator_id=last.number).schema["key"].dataType.names == [
        "window"
    ]


def test_one_object_reads_what_the_functions_read(queries: dict[str, StreamingQuery]) -> None:
    counts = statemark.state(queries["count"])
    rows = statemark.live("counts").collect()
    assert sorted(counts.live().collect()) == sorted(rows)
    key = rows[0].key[0]
    assert counts.get(key) == statemark.get("counts", key) is not None
    assert counts.get_many([key, "nobody"]) == [counts.get(key), None]
    there = statemark.position("counts")
    assert counts.position() == there
    held = dict(zip(there.sources, there.offsets, strict=True))
    assert statemark.committed_offset("counts", partition=1) == counts.committed_offset() == held
    left = statemark.state("join", operator="symmetricHashJoin", join_side="left")
    assert sorted(left.live().collect()) == sorted(
        statemark.live("join", operator_id=1, join_side="left").collect()
    )
    for read in ({"operator": "symmetricHashJoin"}, {"operator": 1}):
        assert sorted(statemark.live("join", join_side="left", **read).collect()) == sorted(
            left.live().collect()
        )
    assert statemark.get("counts", key, operator="stateStoreSave") == counts.get(key)
    assert statemark.get_many("counts", [key], operator=0) == [counts.get(key)]
    seen = statemark.state(queries["value"].id, state_var_name="seen")
    assert seen.get("k1") == statemark.get("value", "k1", state_var_name="seen") is not None
    described = left.describe()
    assert described.operators == tuple(statemark.operators("join"))
    assert described.position == left.position()
    first, last, join = str(described).splitlines()
    assert first == f"query 'join': batch {described.position.batch_id}"
    assert last.startswith("  operator 0: stateStoreSave (key window; stores default")
    assert join.startswith("> operator 1: symmetricHashJoin (key ")
    html = described._repr_html_()
    assert html.count("<tr>") == 3
    assert "symmetricHashJoin" in html
    with pytest.raises(statemark.LiveReadError, match="none of its stateful operators is 'dedupe'"):
        statemark.state("join", operator="dedupe").live()
    with pytest.raises(statemark.LiveReadError, match="no stateful operator 7"):
        statemark.state("join", operator=7).get(7)
    with pytest.raises(statemark.InvalidInputError, match="no state to read"):
        statemark.state("stateless").describe()
    with pytest.raises(statemark.SettingsError, match="bad operator None"):
        statemark.state("join", operator=None)  # type: ignore[arg-type]


def test_a_key_that_cannot_be_read_says_why(
    start: Callable[..., StreamingQuery], tmp_path_factory: pytest.TempPathFactory
) -> None:
    query = start("damaged", lambda df: df.groupBy("key").count(), "update")
    query.processAllAvailable()
    (good,) = statemark.operators(query)
    assert (good.key_columns, good.key_problem) == (("key",), None)
    for file in _checkpoint(query, tmp_path_factory).glob("state/0/*/_metadata/schema"):
        file.unlink()
    (operator,) = statemark.operators(query)
    assert operator.key_columns == ()
    assert operator.key_problem is not None
    assert "schema" in operator.key_problem


def _checkpoint(query: StreamingQuery, factory: pytest.TempPathFactory) -> Path:
    checkpoints = factory.getbasetemp().glob("live-errors*/checkpoint-*")
    return next(c for c in checkpoints if str(query.id) in (c / "metadata").read_text())


def _folders(query: StreamingQuery, factory: pytest.TempPathFactory) -> set[Path]:
    return {path for path in _checkpoint(query, factory).rglob("*") if path.is_dir()}


#: What is asked of which query, and what the refusal says.
WRONG: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("stateless", {}, ("has no stateful operator", "no state to read")),
    ("count", {"operator_id": 7}, ("no stateful operator 7", "0 stateStoreSave")),
    ("count", {"store_name": "nowhere"}, ("'nowhere'", "operator 0", "default")),
    ("count", {"join_side": "left"}, ("no sides", "Leave the side out")),
    ("count", {"state_var_name": "n"}, ("'n'", "Leave the variable out")),
    ("join", {"operator_id": 2}, ("1 symmetricHashJoin (sides left, right)",)),
    ("join", {"operator_id": 1}, ("rows of two", "Name one that it has: left, right")),
    ("join", {"operator_id": 1, "store_name": "x"}, ("'x'", "left-keyToNumValues")),
    ("value", {}, ("No state variable is named", "by_half, count, seen")),
    ("value", {"state_var_name": "cuont"}, ("'cuont'", "by_half, count, seen")),
]


@pytest.mark.parametrize(("name", "asked", "said"), WRONG)
def test_a_state_that_is_not_there_is_refused_with_those_that_are(
    queries: dict[str, StreamingQuery],
    name: str,
    asked: dict[str, Any],
    said: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    query = queries[name]
    before = _folders(query, tmp_path_factory)
    for read in (
        lambda: statemark.live(query, **asked).collect(),
        lambda: statemark.get(query, 1, **asked),
    ):
        with pytest.raises(statemark.InvalidInputError) as refused:
            read()
        assert_three_lines(refused.value)
        assert refused.value.problem == f"query {query.id} was not read"
        assert all(words in str(refused.value) for words in said), refused.value
        assert "corrupted" not in refused.value.reason
    # Spark's source made the directories of a state that it was asked for, until 4.1.
    assert _folders(query, tmp_path_factory) == before


@pytest.mark.parametrize(
    ("name", "asked", "said"),
    [
        ("count", {"operatorId": "-1"}, ("no stateful operator -1", "0 stateStoreSave")),
        ("join", {"operatorId": "1", "joinSide": "middle"}, ("'middle'", "left, right")),
    ],
)
def test_options_of_the_format_that_python_would_refuse(
    spark: SparkSession,
    queries: dict[str, StreamingQuery],
    name: str,
    asked: dict[str, str],
    said: tuple[str, ...],
) -> None:
    reader = spark.read.format("statemark").option("queryId", str(queries[name].id))
    with pytest.raises(Exception, match=r".") as refused:
        reader.options(**asked).load().collect()
    told = str(statemark.error_of(refused.value))
    assert all(words in told for words in said), told


def test_wrong_names_and_wrong_types_of_a_key_are_told_apart(
    queries: dict[str, StreamingQuery],
) -> None:
    query = queries["count"]
    row = statemark.get(query, "K1")
    assert row == statemark.get(query, {"k": "K1"}) == statemark.get(query, {"any": "K1"})
    assert row is not None
    assert statemark.get_many(query, ["K1", "nobody", {"k": "K1"}]) == [row, None, row]
    asked = {"operator_id": 1, "join_side": "left"}
    held = statemark.live("join", **asked).first()
    assert held is not None
    named = held.key.asDict(recursive=True)
    in_order = [statemark.get("join", key, **asked) for key in (named, tuple(named.values()))]
    assert in_order[0] == in_order[1]
    assert in_order[0] is not None
    columns = ", ".join(statemark.operators("join")[1].key_columns)
    for key, said in (
        (7, f"a key has 1 value without a name where {columns} is asked for"),
        ({"key": "k1", "ts": "x"}, f"a key has key, ts where {columns} is asked for"),
    ):
        with pytest.raises(statemark.InvalidInputError, match=said):
            statemark.get("join", key, **asked)
    with pytest.raises(statemark.InvalidInputError, match=r"_groupingexpression is .*, no STRING"):
        statemark.get(query, {"k": [1]})


@pytest.mark.parametrize("name", ["nobody", "00000000-0000-0000-0000-000000000000"])
def test_a_query_that_does_not_run_is_refused_with_those_that_run(
    queries: dict[str, StreamingQuery], name: str
) -> None:
    for read in (statemark.live, statemark.position, statemark.operators):
        with pytest.raises(statemark.InvalidInputError, match="No running query has") as refused:
            read(name)
        assert_three_lines(refused.value)
        assert f"{queries['join'].id} (join)" in refused.value.reason


# Of pyspark, which tries a second way before it fails.
@pytest.mark.filterwarnings("ignore:toPandas attempted Arrow")
def test_live_waits_when_its_table_is_used(queries: dict[str, StreamingQuery]) -> None:
    table = statemark.live(queries["count"], position_bound=BEYOND, timeout="1ms")
    assert table.columns == ["key", "value", "partition_id"]
    counts = table.where("value.count > 1").groupBy("partition_id").count()
    actions: list[Callable[[], object]] = [
        table.collect,
        counts.collect,
        table.toPandas,
        lambda: list(table.toLocalIterator()),
        lambda: table.write.format("noop").mode("overwrite").save(),
        lambda: table.na.drop().show(),
    ]
    for action in actions:
        with pytest.raises(statemark.PositionBoundError, match="99") as late:
            action()
        assert late.value.is_retryable
        assert statemark.error_of(late.value) is late.value
        assert_three_lines(late.value)
    # What has nothing to do with the read is Spark's.
    with pytest.raises(AnalysisException, match="nothing"):
        table.where("nothing = 1")


def test_live_does_not_wait_for_the_first_batch(
    spark: SparkSession, start: Callable[..., StreamingQuery], tmp_path: Path
) -> None:
    held = tmp_path / "held"
    held.touch()
    path = str(held)

    def passes(key: str) -> bool:
        import time

        while Path(path).exists():
            time.sleep(0.02)
        return True

    passed = sf.udf(passes, "boolean", useArrow=False)
    query = start("held", lambda df: df.groupBy("key").count().where(passed("key")), "update")
    try:
        # If the call waited, it would for as long as the batch, which waits for this thread.
        table = statemark.live(query, timeout=300)
        for read in (
            lambda: statemark.live(query, timeout=0).collect(),
            lambda: statemark.position(query, timeout=0),
            lambda: statemark.committed_offset(query, timeout=0),
            lambda: statemark.operators(query, timeout="1ms"),
        ):
            with pytest.raises(statemark.PositionBoundError, match="no committed batch"):
                read()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lambda: table.where("value.count > 0").count())
            held.unlink()
            assert waiting.result() == KEYS
        assert table.columns == ["key", "value", "partition_id"]
        assert len(table.collect()) == table.count() == KEYS
    finally:
        held.unlink(missing_ok=True)


def test_a_version_that_is_gone_says_that_a_retry_helps(
    spark: SparkSession, provider: str, conf: Callable[[str, str], None], tmp_path: Path
) -> None:
    if provider != STATEMARK_PROVIDER:
        pytest.skip("Spark's provider shows nothing of a running query")
    conf(f"{settings.PREFIX}readRetentionVersions", "0")
    source = Source(spark, tmp_path / "events").add(events(0, 50))
    counts = source.stream().groupBy("key").count().writeStream.outputMode("update")
    query = counts.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        query.processAllAvailable()
        old = statemark.live(query)
        first = old.collect()
        assert len(first) == KEYS
        for batch in range(1, 4):
            source.add(events(batch * 50, 50))
            query.processAllAvailable()
            if batch == 1:
                assert old.collect() == [*old.toLocalIterator()] == old.rdd.collect() == first
                assert len(old.toPandas()) == KEYS
            # Any other action plans the read anew.
            assert sum(row.value[0] for row in old.take(KEYS)) == 50 * (batch + 1)
            assert len(statemark.live(query).collect()) == KEYS
        with pytest.raises(statemark.VersionGoneError) as gone:
            old.collect()
        assert gone.value.is_retryable
        assert_three_lines(gone.value)
        assert "Job aborted" not in gone.value.reason
    finally:
        query.stop()


def test_a_connect_client_reads_the_same_and_knows_the_kind(
    spark: SparkSession, queries: dict[str, StreamingQuery], tmp_path: Path
) -> None:
    with connect_server(spark) as url:
        client = LookupClient(url, tmp_path / "client.log")
        try:
            cases: list[tuple[str, dict[str, Any]]] = [
                (queries[name].id, asked) for name, asked, _ in WRONG
            ]
            cases += [("nobody", {}), ("counts", {"position_bound": BEYOND, "timeout": 0})]
            for query, asked in cases:
                here = failure(query, **asked)
                assert here is not None
                assert client.failure(query, **asked) == here
            assert client.failure("counts") is None
        finally:
            client.kill()


def assert_three_lines(error: statemark.StatemarkError) -> None:
    """Also as the interpreter prints it, below the lines of the caller."""
    assert len(str(error).splitlines()) == 3
    assert len(str(error)) < 1000
    printed = "".join(traceback.format_exception(error))
    assert "Py4JJavaError" not in printed
    assert "JVM stacktrace" not in printed
