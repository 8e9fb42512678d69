"""What is said of mistakes that are found without Spark: problem, reason and remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import statemark
from statemark.cli import main
from statemark.session import conf
from statemark.settings import PREFIX

pytest.importorskip("pyspark")

import pyspark
from pyspark.sql import SparkSession

LINE = ".".join(pyspark.__version__.split(".")[:2])

SIZES = "use a size above 0 such as 64m or 268435456, -1 for no limit, or auto"
PATHS = "use an absolute path, or file: and an absolute path"
LEVELS = "use READ_COMMITTED or READ_UNCOMMITTED, in either case"
CHECKPOINTS = "name the directory that the query has as its checkpointLocation"
NO_CHECKPOINT = "it has no file 'metadata', and nothing in 'offsets' and 'commits'"
SERVERS = (
    "start the server with the flags that `statemark conf` prints there, or put into its"
    " spark-defaults.conf, beside spark.jars with the plugin's jar:"
    "\n    spark.sql.streaming.stateStore.providerClass statemark.spark.StatemarkStateStoreProvider"
    "\n    spark.plugins statemark.spark.StatemarkPlugin"
    f"\n    {PREFIX}packageVersion {statemark.__version__}"
)
IS_STOPPED = (
    "spark.stop() has ended its application",
    "start another one: statemark.configure(SparkSession.builder).getOrCreate()",
)
QUERIES = "pass what `start()` has returned, the query's id, or its name"


#: What Spark leaves of a session that was stopped.
_LEFT = {"__module__": "pyspark.sql.session", "_sc": SimpleNamespace(_jsc=None)}
REMOTE: Any = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
STOPPED: Any = type("SparkSession", (), _LEFT)()


def builder(**settings: str) -> Any:
    """A builder of its own, with settings whose names are written with two underscores for dots."""
    made = SparkSession.Builder()
    for name, value in settings.items():
        made.config(name.replace("__", "."), value)
    return made


#: What is done, and what is said of it.
MISTAKES: dict[str, tuple[Callable[[], object], type[Exception], str, str, str]] = {
    "a level that is none": (
        lambda: conf(isolation_level="SERIALIZABLE"),
        statemark.SettingsError,
        f"bad value 'SERIALIZABLE' for {PREFIX}isolationLevel",
        "it names none of the levels",
        LEVELS,
    ),
    "a level of another type": (
        lambda: conf(isolation_level=7),  # type: ignore[arg-type]
        statemark.SettingsError,
        f"bad value 7 for {PREFIX}isolationLevel",
        "it names none of the levels",
        LEVELS,
    ),
    "no bytes": (
        lambda: conf(max_uncommitted_bytes=0),
        statemark.SettingsError,
        f"bad value 0 for {PREFIX}maxUncommittedBytes",
        "0 bytes is not within 1..9223372036854775807",
        SIZES,
    ),
    "bytes in words": (
        lambda: conf(max_uncommitted_bytes="lots"),
        statemark.SettingsError,
        f"bad value 'lots' for {PREFIX}maxUncommittedBytes",
        "a size is a whole number and an optional unit",
        SIZES,
    ),
    "a part of a byte": (
        lambda: conf(max_uncommitted_bytes=1.5),  # type: ignore[arg-type]
        statemark.SettingsError,
        f"bad value 1.5 for {PREFIX}maxUncommittedBytes",
        "a float is not a size",
        SIZES,
    ),
    "a relative path": (
        lambda: conf(local_dir="state"),
        statemark.SettingsError,
        f"bad value 'state' for {PREFIX}localDir",
        "the path is relative",
        PATHS,
    ),
    "a path in an object store": (
        lambda: conf(local_dir="s3a://b/state"),
        statemark.SettingsError,
        f"bad value 's3a://b/state' for {PREFIX}localDir",
        "stores work on a local disk, and s3a: is not one",
        PATHS,
    ),
    "a jar that is not there": (
        lambda: conf(jar="/nowhere/x.jar"),
        statemark.JarNotFoundError,
        "the jar /nowhere/x.jar cannot be read",
        "nothing is at this path",
        "correct jar=, or leave it out to use the bundled jar",
    ),
    "a directory for a jar": (
        lambda: conf(jar=Path("/")),
        statemark.JarNotFoundError,
        "the jar / cannot be read",
        "it is a directory",
        "correct jar=, or leave it out to use the bundled jar",
    ),
    "a method for a builder": (
        lambda: statemark.configure(builder().appName),
        statemark.SettingsError,
        "cannot configure a method",
        "it is not a SparkSession.Builder",
        "pass SparkSession.builder, with options if any, before getOrCreate()",
    ),
    "a misspelt setting": (
        lambda: statemark.configure(
            builder(spark__sql__streaming__stateStore__statemark__isolatonLevel="x")
        ),
        statemark.SettingsError,
        f"unknown setting {PREFIX}isolatonLevel = 'x', set in the builder",
        "no setting of Statemark has this key",
        f"did you mean {PREFIX}isolationLevel?",
    ),
    "a prefix that is too short": (
        lambda: statemark.configure(builder(spark__statemark__localDir="/d")),
        statemark.SettingsError,
        "unknown setting spark.statemark.localDir = '/d', set in the builder",
        f"settings of Statemark begin with {PREFIX}",
        f"use {PREFIX}localDir",
    ),
    "no query": (
        lambda: statemark.live(None),  # type: ignore[arg-type]
        statemark.SettingsError,
        "NoneType given in place of a running query",
        "it is no StreamingQuery",
        QUERIES,
    ),
    "a time without a unit": (
        lambda: statemark.live("q", timeout="10"),
        statemark.SettingsError,
        "bad timeout '10'",
        "a duration in a text has a unit",
        "pass seconds, 0 at least, or a duration such as '10s'",
    ),
    "a text for an exception": (
        lambda: statemark.error_of("boom"),  # type: ignore[arg-type]
        statemark.SettingsError,
        "str given in place of an exception",
        "it has no failure behind it",
        "pass what was caught, or what query.exception() returns",
    ),
    "a name of no query that was reported": (
        lambda: statemark.MetricsListener().report("windowd"),
        statemark.SettingsError,
        "'windowd' is not a query",
        "it is neither a StreamingQuery nor the id of one, which is a UUID, and no query of this"
        " name was reported",
        "pass query or query.id",
    ),
    "a text for a position": (
        lambda: statemark.live("q", position_bound="9"),  # type: ignore[arg-type]
        statemark.SettingsError,
        "bad position_bound '9'",
        "it is a str, and no Position",
        "pass what statemark.position(query) has returned",
    ),
    "a text for keys": (
        lambda: statemark.get_many("q", "abc"),
        statemark.LiveReadError,
        "'abc' is no list of keys",
        "it is of type str",
        "pass a list, or call `get` for one key",
    ),
    "a key that is no value": (
        lambda: statemark.get("q", ...),
        statemark.LiveReadError,
        "Ellipsis is no key of the operator",
        "a value of type ellipsis cannot be part of a key",
        "pass a mapping with a value for each column that `operators(query)` names, or the value of"
        " the only one",
    ),
    "no operator": (
        lambda: statemark.state("q", operator=None),  # type: ignore[arg-type]
        statemark.SettingsError,
        "bad operator None",
        "a NoneType is neither a number nor a name",
        "pass a number or a name of `statemark.operators(query)`",
    ),
    "an operator before the first": (
        lambda: statemark.state("q", operator=-1),
        statemark.SettingsError,
        "bad operator -1",
        "operators are counted from 0",
        "pass a number from 0 on",
    ),
    "an operator before the first, of a read": (
        lambda: statemark.live("q", operator_id=-1),
        statemark.SettingsError,
        "bad operator_id -1",
        "operators are counted from 0",
        "pass a number from 0 on",
    ),
    "a side that no join has": (
        lambda: statemark.state("q", join_side="LEFT"),
        statemark.SettingsError,
        "bad join_side 'LEFT'",
        "a join has two sides",
        "pass 'left' or 'right'",
    ),
    "no topic": (
        lambda: statemark.kafka_sink(builder(), bootstrap_servers="b:9092", topic=""),
        statemark.SettingsError,
        "topic is empty",
        "nothing is named",
        "name one or more",
    ),
    "no brokers": (
        lambda: statemark.kafka_sink(builder(), bootstrap_servers="", topic="t"),
        statemark.SettingsError,
        "bootstrap_servers is empty",
        "nothing is named",
        "name one or more",
    ),
    "a line of Spark that has no jar": (
        lambda: statemark.jar_path(spark_version="3.5.1"),
        statemark.SparkVersionError,
        f"Statemark {statemark.__version__} has no jar for Spark 3.5.1",
        f"the bundled jars are for Spark {LINE}, in {{jars}}",
        f"run one of these lines of Spark, as after pip install 'pyspark=={LINE}.*', or a Statemark"
        " that supports yours",
    ),
    "a version of Spark that is none": (
        lambda: statemark.jar_path(spark_version="newest"),
        statemark.SparkVersionError,
        f"Statemark {statemark.__version__} has no jar for Spark newest",
        f"the bundled jars are for Spark {LINE}, in {{jars}}",
        f"run one of these lines of Spark, as after pip install 'pyspark=={LINE}.*', or a Statemark"
        " that supports yours",
    ),
    "a comma in a jar's path": (
        lambda: conf(jar="/a,b.jar"),
        statemark.JarNotFoundError,
        "the jar /a,b.jar cannot be given to Spark",
        "a comma separates jars in spark.jars",
        "move it, or the Python environment, to a path without a comma",
    ),
    "a path on another host": (
        lambda: conf(local_dir="file://host/state"),
        statemark.SettingsError,
        f"bad value 'file://host/state' for {PREFIX}localDir",
        "the URI names the host 'host'",
        PATHS,
    ),
    "an age in words": (
        lambda: statemark.configure(
            builder(spark__sql__streaming__stateStore__statemark__localDirMaxAge="week")
        ),
        statemark.SettingsError,
        f"bad value 'week' for {PREFIX}localDirMaxAge",
        "a duration is a whole number and an optional unit",
        "use a time above 0 such as 7d or 12h",
    ),
    "a builder of Connect": (
        lambda: statemark.configure(builder(spark__remote="sc://host")),
        statemark.ConnectError,
        "a Spark Connect client cannot choose the state store of its server",
        "the builder has remote('sc://host'); jars and the provider's class are set when the server"
        " starts",
        SERVERS,
    ),
    "the API mode of Connect": (
        lambda: statemark.configure(builder(spark__api__mode="connect")),
        statemark.ConnectError,
        "a Spark Connect client cannot choose the state store of its server",
        "the API mode is connect; jars and the provider's class are set when the server starts",
        SERVERS,
    ),
    "a builder for a session": (
        lambda: statemark.use(builder()),
        statemark.SettingsError,
        "cannot use a Builder",
        "it is no session that runs",
        "pass a SparkSession; a builder is for statemark.configure",
    ),
    "a session that is stopped": (
        lambda: statemark.use(STOPPED),
        statemark.SettingsError,
        "cannot use a session that is stopped",
        *IS_STOPPED,
    ),
    "a session that is stopped, to be looked at": (
        lambda: statemark.doctor(spark=STOPPED),
        statemark.SettingsError,
        "cannot use a session that is stopped",
        *IS_STOPPED,
    ),
    "a session that is stopped, to read Kafka": (
        lambda: statemark.kafka_source(STOPPED, bootstrap_servers="b:9092", topics="t"),
        statemark.SettingsError,
        "cannot use a session that is stopped",
        *IS_STOPPED,
    ),
    "a read before there is a session": (
        lambda: statemark.live("q"),
        statemark.LiveReadError,
        "no query was read",
        "no session of Spark's is active in this process",
        "start one, of the application in which the query runs",
    ),
    "a number for a query": (
        lambda: statemark.get(7, 7),  # type: ignore[arg-type]
        statemark.SettingsError,
        "int given in place of a running query",
        "it is no StreamingQuery",
        QUERIES,
    ),
    "a time before now": (
        lambda: statemark.live("q", timeout=-1),
        statemark.SettingsError,
        "bad timeout -1",
        "it is negative, or no number",
        "pass seconds, 0 at least, or a duration such as '10s'",
    ),
    "a level that is none, of a read": (
        lambda: statemark.live("q", isolation_level="DIRTY"),
        statemark.SettingsError,
        f"bad value 'DIRTY' for {PREFIX}isolationLevel",
        "it names none of the levels",
        LEVELS,
    ),
    "two operators": (
        lambda: statemark.live("q", operator="dedupe", operator_id=1),
        statemark.SettingsError,
        "operator 'dedupe' and operator_id 1 were given",
        "both name the stateful operator to read",
        "leave operator_id away",
    ),
    "one key for several": (
        lambda: statemark.get_many("q", {"key": 7}),
        statemark.LiveReadError,
        "{'key': 7} is no list of keys",
        "it is of type dict",
        "pass a list, or call `get` for one key",
    ),
    "a checkpoint that is not there": (
        lambda: statemark.doctor("/nowhere/c"),
        statemark.SettingsError,
        "/nowhere/c does not exist",
        "nothing is at this path",
        "correct the location",
    ),
    "a directory that is no checkpoint": (
        lambda: statemark.doctor("/usr"),
        statemark.SettingsError,
        "/usr is not the checkpoint of a query",
        NO_CHECKPOINT,
        CHECKPOINTS,
    ),
    "a file for a checkpoint": (
        lambda: statemark.doctor("/etc/hosts"),
        statemark.SettingsError,
        "/etc/hosts is not the checkpoint of a query",
        NO_CHECKPOINT,
        CHECKPOINTS,
    ),
    "a directory that is no checkpoint, for a command": (
        lambda: statemark.checkpoint("/usr").inspect(),
        statemark.SettingsError,
        "/usr is not the checkpoint of a query",
        "it has no file 'metadata'",
        CHECKPOINTS,
    ),
    "a variable that is not set": (
        lambda: statemark.checkpoint(" ").inspect(),
        statemark.SettingsError,
        "the checkpoint location is empty",
        "a variable may not be set",
        CHECKPOINTS,
    ),
    "no partitions": (
        lambda: statemark.checkpoint("/c").repartition(partitions=0),
        statemark.SettingsError,
        "statemark repartition was not started",
        "partitions: '0' is no whole number of 1 at least",
        "correct it: help(statemark.Checkpoint.repartition)",
    ),
    "something else for a listener": (
        lambda: statemark.plots.dashboard(7),  # type: ignore[arg-type]
        statemark.SettingsError,
        "int given in place of a listener",
        "it is no statemark.MetricsListener, which alone has kept the batches",
        "add a MetricsListener with spark.streams.addListener before the query starts, and pass it:"
        " dashboard(listener, query)",
    ),
    "a builder for a table": (
        lambda: statemark.kafka_sink(builder(), bootstrap_servers="b:9092", topic="t"),
        statemark.SettingsError,
        "Builder given in place of a DataFrame",
        "it is none of Spark's",
        "pass the table that the query makes",
    ),
    "a list for a table": (
        lambda: statemark.latest([], key="k"),  # type: ignore[arg-type]
        statemark.SettingsError,
        "list given in place of a DataFrame",
        "it is none of Spark's",
        "pass a table, such as of kafka_source",
    ),
    "no session that reads Kafka": (
        lambda: statemark.kafka_source(None, bootstrap_servers="b:9092", topics="t"),  # type: ignore[arg-type]
        statemark.SettingsError,
        "NoneType given in place of a SparkSession",
        "it is none of Spark's",
        "pass the session that reads",
    ),
    "an option that an argument sets": (
        lambda: statemark.kafka_sink(
            builder(), bootstrap_servers="b:9092", topic="t", options={"topic": "u"}
        ),
        statemark.SettingsError,
        "option 'topic' is given twice",
        "an argument sets it already",
        "give the argument alone",
    ),
    "a batch of Connect, of nobody's query": (
        lambda: statemark.kafka_batch(REMOTE, 0, bootstrap_servers="b:9092", topic="t"),
        statemark.SettingsError,
        "app_id is missing",
        "on Spark Connect nobody knows which query this batch is of",
        "give app_id, a name that stays the same as long as the checkpoint does",
    ),
    "a batch before the first": (
        lambda: statemark.kafka_batch(builder(), -1, bootstrap_servers="b:9092", topic="t"),
        statemark.SettingsError,
        "batch_id=-1 is refused",
        "numbers of batches ascend from 0",
        "give the number that foreachBatch hands over",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.usefixtures("bundled")
def test_a_mistake_is_told_with_its_reason_and_remedy(name: str, jars_dir: Path) -> None:
    make, kind, problem, reason, remedy = MISTAKES[name]
    with pytest.raises(statemark.StatemarkError) as caught:
        make()
    said = caught.value
    assert type(said) is kind
    wanted = (problem, reason.replace("{jars}", str(jars_dir)), remedy)
    assert (said.problem, said.reason, said.remedy) == wanted


#: A command line, and the lines that are said after the usage.
COMMANDS = {
    "repartition /c --partitions 0": (
        "statemark repartition: argument --partitions: '0' is no whole number of 1 at least",
        "  examples: statemark repartition --help",
    ),
    "swich /c --to rocksdb": ("  did you mean switch?", "  examples: statemark --help"),
    "switch /c --to hdfs": (
        "statemark switch: argument --to: invalid choice: 'hdfs' (choose from 'statemark', "
        "'rocksdb')",
        "  examples: statemark switch --help",
    ),
    "verify /c --depp": (
        "statemark verify: unrecognized arguments: --depp",
        "  did you mean --deep or --help?",
        "  examples: statemark verify --help",
    ),
    "verify /c --conf abc": (
        "statemark verify: argument --conf: 'abc' is no KEY=VALUE",
        "  examples: statemark verify --help",
    ),
    "doctor --conf localDir=/d": (
        "statemark doctor: argument --conf: localDir is no setting of Spark's, whose names begin"
        " with spark.",
        "  examples: statemark doctor --help",
    ),
    "switch /c --to rocksdb --observe -1": (
        "statemark switch: argument --observe: '-1' is no number of seconds, 0 at least",
        "  examples: statemark switch --help",
    ),
    "local --prune --max-age banana": (
        "statemark local: argument --max-age: 'banana' is refused: a duration is a whole number and"
        " an optional unit",
        "  examples: statemark local --help",
    ),
    "local --prune --max-bytes -1": (
        "statemark local: argument --max-bytes: '-1' is refused: a size is a whole number and an"
        " optional unit",
        "  examples: statemark local --help",
    ),
    "doctor --prefix p": (
        "statemark doctor: argument --prefix: means nothing without --kafka; add --kafka, or leave"
        " --prefix away",
        "  examples: statemark doctor --help",
    ),
    "doctor /c --commit-topic t": (
        "statemark doctor: argument --commit-topic: means nothing without --kafka; add --kafka, or"
        " leave --commit-topic away",
        "  examples: statemark doctor --help",
    ),
    "topic compact t --strategy timestamp --bootstrap-servers b:1 --lateness banana": (
        "statemark topic compact: argument --lateness: 'banana' is refused: a duration is a whole"
        " number and an optional unit",
        "  examples: statemark topic compact --help",
    ),
    "topic compact t --strategy timestamp --bootstrap-servers b:1 --checkpoint /c": (
        "statemark topic compact: argument --checkpoint: means nothing without --continuous; add"
        " --continuous, or leave --checkpoint away",
        "  examples: statemark topic compact --help",
    ),
    "status": ("  did you mean topic status?", "  examples: statemark --help"),
    "inspect": (
        "statemark inspect: the following arguments are required: CHECKPOINT",
        "  examples: statemark inspect --help",
    ),
}


@pytest.mark.parametrize("line", COMMANDS)
def test_a_mistake_of_a_command_line_ends_with_what_to_do(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(line.split())
    assert caught.value.code == 2
    assert tuple(capsys.readouterr().err.splitlines()[-len(COMMANDS[line]) :]) == COMMANDS[line]
