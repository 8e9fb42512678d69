"""What is said of mistakes in a session: problem, reason and remedy of each, and nothing raw."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
import statemark
from pyspark.sql import functions as sf
from statemark import errors
from statemark.settings import PREFIX
from support.session import SPARK_PROVIDER, STATE_STORE, STATEMARK_PROVIDER
from support.streams import Source, events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NAME_ONE = (
    "Name one that runs, by its name or id. A stopped query is read with format 'statestore' and"
    " the path of its checkpoint."
)
FORMAT = (
    "Set either option queryId or option queryName. The format cannot be written, nor read as a"
    " stream."
)
BEYOND = statemark.Position(9, ('{"logOffset": 99}',))
OF_TWO = statemark.Position(0, (None, '{"logOffset": 0}'))
SPARKS = "Spark reports a failure of Statemark's"


@pytest.fixture(autouse=True)
def _no_query_left() -> None:
    """Keep queries over several tests, other than in the rest of this directory."""


class World:
    """Queries that run, one that has ended, and what somebody does with them."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark, self.directory = spark, directory
        self.source = Source(spark, directory / "events").add(events(0, 60))
        self.count = self.start("counts", self.counted())
        self.ids = self.start("ids", self.source.stream().dropDuplicates(["id"]))
        self.plain = self.start("plain", self.source.stream().where("value > 3"), "append")
        self.ended = self.start("ended", self.counted())
        self.ended.stop()
        empty = Source(spark, directory / "nothing").stream()
        self.waits = self.start("waits", empty.groupBy("key").count())
        (directory / "file").touch()

    def counted(self) -> DataFrame:
        return self.source.stream().groupBy("key").agg(sf.count("*").alias("n"))

    def start(self, name: str, df: DataFrame, mode: str = "update") -> StreamingQuery:
        writer = df.writeStream.queryName(name).outputMode(mode).format("noop")
        query = writer.option("checkpointLocation", str(self.directory / name)).start()
        query.processAllAvailable()
        return query

    def read(self, **options: str) -> None:
        self.spark.read.format("statemark").options(**options).load().collect()

    def run_with(self, **settings: str) -> None:
        """Run a query of its own to the end of its input, with settings of Statemark's."""
        for name, value in settings.items():
            self.spark.conf.set(f"{PREFIX}{name}", value)
        try:
            self.start(f"with-{uuid.uuid4()}", self.counted()).stop()
        finally:
            for name in settings:
                self.spark.conf.unset(f"{PREFIX}{name}")
            self.spark.conf.set(f"{PREFIX}localDir", str(self.directory / "state"))

    def run_in_other_format(self) -> None:
        key = f"{STATE_STORE}.checkpointFormatVersion"
        self.start("again", self.counted()).stop()
        self.source.add(events(60, 5))
        self.spark.conf.set(key, "2")
        try:
            self.start("again", self.counted()).stop()
        finally:
            self.spark.conf.unset(key)

    def checkpoint(self, name: str, *, scheme: str = "") -> statemark.Checkpoint:
        return statemark.checkpoint(f"{scheme}{self.directory / name}", spark=self.spark)

    def stream_to(self) -> None:
        writer = self.source.stream().writeStream.format("statemark")
        writer.option("checkpointLocation", str(self.directory / "out")).start()


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, provider: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    if provider != STATEMARK_PROVIDER:
        pytest.skip("Spark's provider shows nothing of a running query")
    local = spark.conf.get(f"{PREFIX}localDir")
    yield World(spark, tmp_path_factory.mktemp("mistakes"))
    for query in spark.streams.active:
        query.stop()
    spark.conf.set(f"{PREFIX}localDir", local)


#: What is done, and what is said of it: ends of the reason, and the remedy. Braces hold the id of a
#: query, or the directory.
MISTAKES: dict[str, tuple[Callable[[World], object], type[Exception], str, str, str]] = {
    "a name of no query": (
        lambda w: statemark.live("cuonts"),
        errors.InvalidInputError,
        "query 'cuonts' was not read",
        "No running query has the name 'cuonts'; running are {running}.",
        NAME_ONE,
    ),
    "an id of no query": (
        lambda w: statemark.position(uuid.UUID(int=0)),
        errors.InvalidInputError,
        f"query {uuid.UUID(int=0)} was not read",
        f"No running query has the id {uuid.UUID(int=0)}; running are {{running}}.",
        NAME_ONE,
    ),
    "a query that has ended": (
        lambda w: statemark.get(w.ended, "k1"),
        errors.InvalidInputError,
        "query {ended} was not read",
        "No running query has the id {ended}; running are {running}.",
        NAME_ONE,
    ),
    "a read before the first batch": (
        lambda w: statemark.get(w.waits, "k1", timeout=0),
        errors.PositionBoundError,
        "query {waits} was not read",
        "Query {waits} is at no committed batch after 0 ms.",
        "Wait longer with option timeout, or look at why the query makes no progress.",
    ),
    "a position before the first batch": (
        lambda w: statemark.position(w.waits, timeout=0),
        errors.PositionBoundError,
        "query {waits} was not read",
        "Query {waits} is at no committed batch after 0 ms.",
        "Wait longer with option timeout, or look at why the query makes no progress.",
    ),
    "a bound that the query has not reached": (
        lambda w: statemark.get(w.count, "k1", position_bound=BEYOND, timeout=0),
        errors.PositionBoundError,
        "query {count} was not read",
        'Query {count} is at ["{\\"logOffset\\":0}"] after 0 ms, and the read is bound to'
        ' ["{\\"logOffset\\": 99}"].',
        "Wait longer with option timeout, or look at why the query makes no progress.",
    ),
    "a bound of a query with more sources": (
        lambda w: statemark.get(w.count, "k1", position_bound=OF_TWO),
        errors.InvalidInputError,
        "query {count} was not read",
        "The position that the read waits for has 2 sources, and the query 1 source.",
        "Pass a position of this query: what `statemark.position` returns for it.",
    ),
    "a name of no operator": (
        lambda w: statemark.live(w.count, operator="dedupe"),
        errors.LiveReadError,
        "query {count} was not read",
        "none of its stateful operators is 'dedupe': 0 (stateStoreSave)",
        "pass the number of one of them as `operator`",
    ),
    "a number of no operator": (
        lambda w: statemark.live(w.count, operator=7),
        errors.InvalidInputError,
        "query {count} was not read",
        "The query has no stateful operator 7.",
        "Name one that it has: 0 stateStoreSave.",
    ),
    "an operator of a query without state": (
        lambda w: statemark.get(w.plain, "k1", operator="dedupe"),
        errors.InvalidInputError,
        "query {plain} was not read",
        "it has no stateful operator, and so no state to read",
        "read the table that it writes",
    ),
    "a store that is not there": (
        lambda w: statemark.live(w.count, store_name="x"),
        errors.InvalidInputError,
        "query {count} was not read",
        "Store 'x' is asked for, and operator 0, stateStoreSave, has no such store.",
        "Name one that it has: default.",
    ),
    "a side of what is no join": (
        lambda w: statemark.live(w.count, join_side="left"),
        errors.InvalidInputError,
        "query {count} was not read",
        "Join side 'left' is asked for, and operator 0, stateStoreSave, has no sides.",
        "Leave the side out.",
    ),
    "a list for a text": (
        lambda w: statemark.get(w.count, ["k1"]),
        errors.InvalidInputError,
        "query {count} was not read",
        'Keys do not fit: key is ["k1"], no STRING.',
        "Give all columns of a key of this operator: STRUCT<key: STRING>.",
    ),
    "a fraction for a whole number": (
        lambda w: statemark.get(w.ids, 7.5),
        errors.InvalidInputError,
        "query {ids} was not read",
        "Keys do not fit: id is 7.5, no BIGINT.",
        "Give all columns of a key of this operator: STRUCT<id: BIGINT>.",
    ),
    "a word for a number": (
        lambda w: statemark.get(w.ids, "seven"),
        errors.InvalidInputError,
        "query {ids} was not read",
        'Keys do not fit: id is "seven", no BIGINT.',
        "Give all columns of a key of this operator: STRUCT<id: BIGINT>.",
    ),
    "a column too many": (
        lambda w: statemark.get(w.count, {"key": "k1", "n": 1}),
        errors.InvalidInputError,
        "query {count} was not read",
        "Keys do not fit: a key has key, n where key is asked for.",
        "Give all columns of a key of this operator: STRUCT<key: STRING>.",
    ),
    "a misspelt option": (
        lambda w: w.read(queryName="counts", isolatonLevel="READ_COMMITTED"),
        errors.InvalidInputError,
        SPARKS,
        "Format 'statemark' has no option isolatonlevel.",
        "Did you mean isolationLevel?",
    ),
    "no query named": (
        lambda w: w.read(),
        errors.InvalidInputError,
        SPARKS,
        "Format 'statemark' reads the state of one running query, and none is named; running are"
        " {running}.",
        FORMAT,
    ),
    "content that is none": (
        lambda w: w.read(queryName="counts", what="rows"),
        errors.InvalidInputError,
        SPARKS,
        "Option what is 'rows'.",
        "Set it to state, position, committedOffset, operators, installation or lookup.",
    ),
    "a path": (
        lambda w: w.read(queryName="counts", path="/c"),
        errors.InvalidInputError,
        SPARKS,
        "Option path has no meaning for format 'statemark', which reads a running query as it is"
        " now.",
        "Leave it out; the past of a checkpoint is read with format 'statestore'.",
    ),
    "an id that is none": (
        lambda w: w.read(queryId="seven"),
        errors.InvalidInputError,
        SPARKS,
        "Option queryId is 'seven', which is no UUID; running are {running}.",
        "Name a query by its id, or by its name with option queryName.",
    ),
    "a stream that is written": (
        lambda w: w.stream_to(),
        errors.InvalidInputError,
        SPARKS,
        "Format 'statemark' cannot be written, not as a stream either.",
        "Write rows to another format.",
    ),
    "a misspelt setting of a session that runs": (
        lambda w: w.run_with(isolatonLevel="READ_COMMITTED"),
        errors.InvalidInputError,
        SPARKS,
        f"Unknown setting {PREFIX}isolatonLevel (its value is 'READ_COMMITTED').",
        f"Did you mean {PREFIX}isolationLevel?",
    ),
    "a bad setting of a session that runs": (
        lambda w: w.run_with(maxUncommittedBytes="lots"),
        errors.InvalidInputError,
        SPARKS,
        f"{PREFIX}maxUncommittedBytes is 'lots', but it must be a size above 0 such as 64m or"
        " 268435456, -1 for no limit, or auto.",
        "correct it as the reason says",
    ),
    "a file for the local directory": (
        lambda w: w.run_with(localDir=str(w.directory / "file")),
        errors.InvalidInputError,
        SPARKS,
        f"{PREFIX}localDir is '{{directory}}/file', but {{directory}}/file/",
        f"Name a directory in {PREFIX}localDir that this executor's user may write to, on a disk"
        " with room.",
    ),
    "a local directory that cannot be made": (
        lambda w: w.run_with(localDir="/proc/state"),
        errors.InvalidInputError,
        SPARKS,
        f"{PREFIX}localDir is '/proc/state', but /proc/state/",
        f"Name a directory in {PREFIX}localDir that this executor's user may write to, on a disk"
        " with room.",
    ),
    "a query of the session that is switched while it waits for rows": (
        lambda w: w.checkpoint("counts").switch(to="rocksdb"),
        errors.StatemarkError,
        "the query of {directory}/counts runs",
        "it is query counts of this session's application",
        "stop it, then try again",
    ),
    "a query of the session that is repartitioned by the URI of its checkpoint": (
        lambda w: w.checkpoint("ids", scheme="file://").repartition(partitions=3),
        errors.StatemarkError,
        "the query of file://{directory}/ids runs",
        "it is query ids of this session's application",
        "stop it, then try again",
    ),
    "another checkpoint format": (
        lambda w: w.run_in_other_format(),
        errors.InvalidInputError,
        SPARKS,
        f"{STATE_STORE}.checkpointFormatVersion is 2, but the checkpoint file:{{directory}}/again"
        " is of format 1: a query keeps the format of its first batch.",
        "Set it back to 1, or start with a new checkpoint.",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_its_reason_and_remedy(world: World, name: str) -> None:
    make, kind, problem, reason, remedy = MISTAKES[name]
    with pytest.raises(Exception, match=r".") as caught:
        make(world)
    said: Any = statemark.error_of(caught.value)
    assert type(said) is kind

    def filled(text: str) -> str:
        for query in ("count", "ids", "plain", "ended", "waits"):
            text = text.replace(f"{{{query}}}", str(getattr(world, query).id))
        running = sorted(f"{q.id} ({q.name})" for q in world.spark.streams.active)
        return text.replace("{running}", ", ".join(running)).replace(
            "{directory}", str(world.directory)
        )

    assert (said.problem, said.remedy) == (filled(problem), remedy)
    assert said.reason.startswith(filled(reason))
    assert len(said.reason) == len(filled(reason)) or said.reason.startswith(f"{PREFIX}localDir")


#: What Spark refuses before any code of Statemark's runs, and the class that does.
OF_SPARK: dict[str, tuple[Callable[[World], object], str]] = {
    "a stream that is read": (  # DataSourceV2Utils, by way of DataStreamReader
        lambda w: w.spark.readStream.format("statemark").option("queryName", "counts").load(),
        "Data source statemark does not support streamed reading",
    ),
    "a path in SQL": (  # ResolveSQLOnFile
        lambda w: w.spark.sql("SELECT * FROM statemark.`counts`"),
        "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY",
    ),
    "a name that runs already": (  # StreamingQueryManager
        lambda w: w.start("counts", w.counted()),
        "a query with that name is already active",
    ),
}


@pytest.mark.parametrize("name", OF_SPARK)
def test_what_spark_refuses_itself(world: World, name: str) -> None:
    make, words = OF_SPARK[name]
    with pytest.raises(Exception, match=words) as caught:
        make(world)
    assert statemark.error_of(caught.value) is None


def test_a_query_on_another_provider_than_its_session_names_says_so(
    world: World, spark: SparkSession, tmp_path: Path
) -> None:
    key = f"{STATE_STORE}.providerClass"
    source = Source(spark, tmp_path / "events").add(events(0, 60))
    counts = source.stream().groupBy("key").count()

    def start() -> StreamingQuery:
        writer = counts.writeStream.outputMode("update").format("noop")
        return writer.option("checkpointLocation", str(tmp_path / "pinned")).start()

    spark.conf.set(key, SPARK_PROVIDER)
    try:
        query = start()
        query.processAllAvailable()
        assert statemark.operators(query)[0].provider_note is None
        query.stop()
    finally:
        spark.conf.set(key, STATEMARK_PROVIDER)
    source.add(events(60, 60))
    query = start()
    query.processAllAvailable()
    (operator,) = statemark.operators(query)
    command = f"statemark switch file:{tmp_path}/pinned --to statemark"
    assert (operator.provider_note or "").endswith(command)
    described = statemark.state(query).describe()
    assert str(described).splitlines()[-1] == operator.provider_note
    assert command in described._repr_html_()
    query.stop()
