"""What is said of arguments of the wrong kind: problem, reason and remedy, in the call itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import statemark
from statemark import kafka_library, layers
from statemark.cli import main
from statemark.session import conf
from statemark.settings import PREFIX

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession


def spark_object(kind: str, module: str = "pyspark.sql", **attributes: object) -> Any:
    """An object of a class that is called as one of Spark's."""
    return type(kind, (), {"__module__": f"{module}.{kind.lower()}", **attributes})()


BATCH = spark_object("DataFrame", isStreaming=False)
STREAM = spark_object("DataFrame", isStreaming=True)
COLUMN = spark_object("Column", __repr__=lambda _: "Column<'k'>")
FRAME = type("DataFrame", (), {"columns": ["id"], "__iter__": lambda _: iter(["id"])})()
GONE = spark_object("SparkSession", "pyspark.sql.connect", is_stopped=True)
WHICH = spark_object(
    "DataFrame",
    isStreaming=False,
    columns=["key", "partition", "offset", "timestamp"],
    dtypes=[("key", "binary"), ("partition", "int"), ("offset", "int"), ("timestamp", "timestamp")],
    sparkSession=spark_object(
        "SparkSession", catalog=spark_object("Catalog", functionExists=lambda *_: True)
    ),
)

NOWHERE = spark_object(
    "DataFrame",
    columns=["key", "headers"],
    dtypes=[("key", "binary"), ("headers", "array<struct<key:string,value:binary>>")],
    sparkSession=WHICH.sparkSession,
)
WHOLE = "pass a whole number above 0"
NOT_SET = "it is None, as of a variable that is not set"
PLACES = "pass a path or a URI, as a str or a pathlib.Path"
TRUTHS = "pass True or False"
OFFSETS = "pass offsets as statemark.position(query) returns them"
SERVERS = "write host:port, as broker:9092, and commas between several"
SESSIONS = "pass a session that runs"
NAMES = "pass a name that `operators` shows"
LISTS = "pass a text, or a list of them"


def sink(df: Any = STREAM, servers: Any = "b:9092", **options: Any) -> object:
    return statemark.kafka_sink(df, bootstrap_servers=servers, **{"topic": "t", **options})


def source(**options: Any) -> object:
    given: Any = {"bootstrap_servers": "b:9092", "topics": "t", **options}
    return statemark.kafka_source(GONE, **given)


def latest(**options: Any) -> object:
    return statemark.latest(options.pop("df", STREAM), **options)


def live(**options: Any) -> object:
    return statemark.live("q", **options)


def listener(**options: Any) -> object:
    return statemark.MetricsListener(**options)


def position(offsets: Any) -> object:
    return statemark.Position(9, offsets)


def checkpoint(location: Any, **options: Any) -> object:
    return statemark.checkpoint(location, **options)


def doctor(*location: Any, **options: Any) -> object:
    return statemark.doctor(*location, **options)


def of_file(name: str) -> object:
    given = layers.SubmitArgs.parse(f"--properties-file {name} x")
    return layers.defaults(env={"SPARK_HOME": "/nowhere"}, args=given)


def wrong(name: str, shown: str, of: str, remedy: str) -> tuple[type[Exception], str, str, str]:
    reason = NOT_SET if of == "None" else f"it is of type {of}"
    return statemark.SettingsError, f"bad {name} {shown}", reason, remedy


#: What is called, and what is said of it.
MISTAKES: dict[str, tuple[Callable[[], object], tuple[type[Exception], str, str, str]]] = {
    "a float for a number of batches": (
        lambda: listener(max_batches=1e3),
        wrong("max_batches", "1000.0", "float", WHOLE),
    ),
    "no number of batches": (
        lambda: listener(max_batches=None),
        wrong("max_batches", "None", "None", WHOLE),
    ),
    "no number of queries": (
        lambda: listener(max_queries=math.nan),
        wrong("max_queries", "nan", "float", WHOLE),
    ),
    "more batches than there is memory": (
        lambda: listener(max_batches=10**30),
        (
            statemark.SettingsError,
            f"bad value {10**30} for max_batches",
            "no machine holds as many",
            WHOLE,
        ),
    ),
    "an option from a variable that is not set": (
        lambda: sink(options={"kafka.sasl.jaas.config": None}),
        (
            statemark.SettingsError,
            "options has no text for 'kafka.sasl.jaas.config'",
            "its value is None, as of a variable that is not set",
            "pass a text or a number, or leave it out",
        ),
    ),
    "a secret in bytes, which is not shown": (
        lambda: sink(options={"kafka.ssl.key.password": b"secret"}),
        (
            statemark.SettingsError,
            "options has no text for 'kafka.ssl.key.password'",
            "its value is of type bytes",
            "pass a text or a number, or leave it out",
        ),
    ),
    "pairs for options": (
        lambda: sink(options=[("a", 1)]),
        (
            statemark.SettingsError,
            "options is of type list",
            "it is no mapping",
            "pass a dict, as dict(conf.getAll()) of a SparkConf",
        ),
    ),
    "a number for an option's name": (
        lambda: sink(options={1: 2}),
        wrong("key of options", "1", "int", "pass names as texts"),
    ),
    "two topics of a sink": (
        lambda: sink(topic=["a", "b"]),
        wrong("topic", "['a', 'b']", "list", "pass one text"),
    ),
    "bytes for a sink's name": (
        lambda: sink(sink_name=b"x"),
        wrong("sink_name", "b'x'", "bytes", "pass one text"),
    ),
    "a text for a number of producers": (
        lambda: sink(producers_per_executor="2"),
        wrong("producers_per_executor", "'2'", "str", "pass a whole number"),
    ),
    "no brokers": (
        lambda: sink(servers=None),
        wrong("bootstrap_servers", "None", "None", LISTS),
    ),
    "brokers in bytes": (
        lambda: sink(servers=b"b:9092"),
        wrong("bootstrap_servers", "b'b:9092'", "bytes", LISTS),
    ),
    "one broker of two": (
        lambda: sink(servers=["b:9092", None]),
        wrong("bootstrap_servers", "None", "None", LISTS),
    ),
    "commas for brokers": (
        lambda: sink(servers=","),
        (statemark.SettingsError, "bootstrap_servers is ','", "it names no broker", SERVERS),
    ),
    "a broker without a port": (
        lambda: sink(servers=["a:9092", "b"]),
        (
            statemark.SettingsError,
            "bootstrap_servers names 'b', which is no address of a broker",
            "it has no port",
            SERVERS,
        ),
    ),
    "a batch for a stream": (
        lambda: sink(BATCH),
        (
            statemark.SettingsError,
            "the DataFrame is no streaming one",
            "kafka_sink writes what a query makes, and kafka_batch the rows of one batch",
            "call kafka_batch, or read with readStream",
        ),
    ),
    "a stream for a batch": (
        lambda: statemark.kafka_batch(STREAM, 0, bootstrap_servers="b:9092", topic="t"),
        (
            statemark.SettingsError,
            "the DataFrame is a streaming one",
            "kafka_sink writes what a query makes, and kafka_batch the rows of one batch",
            "call kafka_sink, or call kafka_batch in its foreachBatch",
        ),
    ),
    "a batch's number in a text": (
        lambda: statemark.kafka_batch(BATCH, "3", bootstrap_servers="b:9092"),  # type: ignore[arg-type]
        wrong("batch_id", "'3'", "str", "give the number that foreachBatch hands over"),
    ),
    "no topics": (
        lambda: source(topics=None),
        wrong("topics", "None", "None", LISTS),
    ),
    "a number for offsets": (
        lambda: source(starting_offsets=7),
        wrong(
            "starting_offsets",
            "7",
            "int",
            "pass 'earliest', 'latest', or offsets by topic and partition",
        ),
    ),
    "a text for a truth": (
        lambda: source(streaming="false"),
        wrong("streaming", "'false'", "str", TRUTHS),
    ),
    "a session of Connect that is stopped": (
        source,
        (
            statemark.SettingsError,
            "cannot use a session that is stopped",
            "spark.stop() has ended it on the Spark Connect server",
            "connect again: SparkSession.builder.remote(…).getOrCreate()",
        ),
    ),
    "a table of pandas for keys": (
        lambda: statemark.get_many("q", FRAME),
        (
            statemark.LiveReadError,
            "a DataFrame is no list of keys",
            "it is of type DataFrame",
            "pass a list, such as table.to_dict('records')",
        ),
    ),
    "a column for keys": (
        lambda: statemark.get_many("q", COLUMN),
        (
            statemark.LiveReadError,
            "Column<'k'> is no list of keys",
            "it is of type Column",
            "pass a list, or call `get` for one key",
        ),
    ),
    "a column for a key": (
        lambda: statemark.get("q", COLUMN),
        (
            statemark.LiveReadError,
            "Column<'k'> is no key of the operator",
            "a Column is no value: it has one for each row",
            "pass a mapping with a value for each column that `operators(query)` names, or the"
            " value of the only one",
        ),
    ),
    "a text for whether timers are read": (
        lambda: live(read_registered_timers="false"),
        wrong("read_registered_timers", "'false'", "str", TRUTHS),
    ),
    "a text for whether items are rows": (
        lambda: live(flatten_collection_types="false"),
        wrong("flatten_collection_types", "'false'", "str", TRUTHS),
    ),
    "a path for a store's name": (
        lambda: live(store_name=Path("x")),
        wrong("store_name", repr(Path("x")), type(Path()).__name__, NAMES),
    ),
    "a text for an operator's number": (
        lambda: live(operator_id="0"),
        wrong("operator_id", "'0'", "str", "pass a number from 0 on"),
    ),
    "a level that is none, before any read": (
        lambda: statemark.state("q", isolation_level="DIRTY"),
        (
            statemark.SettingsError,
            f"bad value 'DIRTY' for {PREFIX}isolationLevel",
            "it names none of the levels",
            "use READ_COMMITTED or READ_UNCOMMITTED, in either case",
        ),
    ),
    "a text for offsets": (
        lambda: position('{"logOffset":3}'),
        wrong("offsets", """'{"logOffset":3}'""", "str", OFFSETS),
    ),
    "no offsets": (lambda: position(None), wrong("offsets", "None", "None", OFFSETS)),
    "an offset in bytes": (
        lambda: position((b"3",)),
        wrong("offset", "b'3'", "bytes", OFFSETS),
    ),
    "no checkpoint": (lambda: checkpoint(None), wrong("location", "None", "None", PLACES)),
    "a number for a checkpoint": (lambda: checkpoint(7), wrong("location", "7", "int", PLACES)),
    "a number for a checkpoint, to the doctor": (
        lambda: doctor(7),
        wrong("checkpoint", "7", "int", PLACES),
    ),
    "bytes for a checkpoint": (
        lambda: doctor(b"/c"),
        wrong("checkpoint", "b'/c'", "bytes", PLACES),
    ),
    "a builder for a session, to the doctor": (
        lambda: doctor(spark=SparkSession.Builder()),
        (
            statemark.SettingsError,
            "Builder given in place of a SparkSession",
            "it is none of Spark's",
            SESSIONS,
        ),
    ),
    "a number for a session": (
        lambda: checkpoint("/c", spark=7),
        (
            statemark.SettingsError,
            "int given in place of a SparkSession",
            "it is none of Spark's",
            SESSIONS,
        ),
    ),
    "a text for whether rows are compared": (
        lambda: statemark.checkpoint("/c").verify(deep="no"),  # type: ignore[arg-type]
        wrong("deep", "'no'", "str", TRUTHS),
    ),
    "a text for a number of partitions": (
        lambda: statemark.checkpoint("/c").repartition(partitions="4"),  # type: ignore[arg-type]
        wrong("partitions", "'4'", "str", "pass a whole number"),
    ),
    "a truth for a number of partitions": (
        lambda: statemark.checkpoint("/c").repartition(partitions=True),
        wrong("partitions", "True", "bool", "pass a whole number"),
    ),
    "a time with its unit, to watch": (
        lambda: statemark.checkpoint("/c").switch(to="rocksdb", observe="5s"),  # type: ignore[arg-type]
        wrong("observe", "'5s'", "str", "pass a number of seconds"),
    ),
    "a time before now, to watch": (
        lambda: statemark.checkpoint("/c").switch(to="rocksdb", observe=-1),
        (
            statemark.SettingsError,
            "statemark switch was not started",
            "observe: '-1' is no number of seconds, 0 at least",
            "correct it: help(statemark.Checkpoint.switch)",
        ),
    ),
    "a setting without its beginning": (
        lambda: checkpoint("/c", conf={"fs.s3a.access.key": "k"}),
        (
            statemark.SettingsError,
            "conf names 'fs.s3a.access.key', which is no setting of Spark's",
            "their names begin with 'spark.', those of Hadoop with 'spark.hadoop.'",
            "write the whole name",
        ),
    ),
    "a setting that is None": (
        lambda: doctor(conf={"spark.hadoop.a": None}),
        (
            statemark.SettingsError,
            "conf has no text for 'spark.hadoop.a'",
            "its value is None, as of a variable that is not set",
            "pass a text or a number, or leave it out",
        ),
    ),
    "a number for a version": (
        lambda: conf(spark_version=4.2),  # type: ignore[arg-type]
        wrong("spark_version", "4.2", "float", "pass a text, as '4.2'"),
    ),
    "a number for a version of the jar": (
        lambda: statemark.jar_path(spark_version=4.2),  # type: ignore[arg-type]
        wrong("spark_version", "4.2", "float", "pass a text, as '4.2'"),
    ),
    "a number for a jar": (
        lambda: conf(jar=7),  # type: ignore[arg-type]
        wrong("jar", "7", "int", PLACES),
    ),
    "a class for a builder": (
        lambda: statemark.configure(SparkSession.Builder),  # type: ignore[arg-type]
        (
            statemark.SettingsError,
            "cannot configure a type",
            "it is not a SparkSession.Builder",
            "pass SparkSession.builder, with options if any, before getOrCreate()",
        ),
    ),
    "a class for a session": (
        lambda: statemark.use(SparkSession),  # type: ignore[arg-type]
        (
            statemark.SettingsError,
            "cannot use a type",
            "it is no session that runs",
            "pass a SparkSession; a builder is for statemark.configure",
        ),
    ),
    "seconds for a time to live": (
        lambda: latest(ttl=3600),
        wrong("ttl", "3600", "int", "pass a datetime.timedelta"),
    ),
    "a column for a key's name": (
        lambda: latest(key=["a", COLUMN]),
        wrong("key", "Column<'k'>", "Column", "pass the name of a column, or a list of names"),
    ),
    "no key": (
        lambda: latest(key=None),
        wrong("key", "None", "None", "pass the name of a column, or a list of names"),
    ),
    "bytes for a header": (
        lambda: latest(strategy="header", header=b"v"),
        wrong("header", "b'v'", "bytes", "pass the header's key as a text"),
    ),
    "no name for the counts": (
        lambda: latest(observed_as=None),
        wrong("observed_as", "None", "None", "pass a name"),
    ),
    "no partition, where a header has the version": (
        lambda: latest(df=NOWHERE, strategy="header", header="v"),
        (
            statemark.SettingsError,
            "column 'partition' is missing",
            "'header' needs where and when each record came, and the DataFrame has key, headers",
            "keep the columns of Spark's Kafka source up to here; headers are there with its option"
            " includeHeaders=true",
        ),
    ),
    "an offset of another type": (
        lambda: latest(df=WHICH),
        (
            statemark.SettingsError,
            "column 'offset' is of type int",
            "latest reads it as bigint",
            "CAST(offset AS BIGINT), or keep the source's column",
        ),
    ),
    "a file of settings that is not there": (
        lambda: of_file("/nowhere.conf"),
        (
            statemark.SettingsError,
            "the file of settings /nowhere.conf cannot be read",
            "nothing is at this path",
            "correct --properties-file",
        ),
    ),
    "a directory of settings": (
        lambda: of_file("/usr"),
        (
            statemark.SettingsError,
            "the file of settings /usr cannot be read",
            "it is a directory",
            "correct --properties-file",
        ),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.usefixtures("bundled")
def test_an_argument_of_the_wrong_kind_is_refused(name: str) -> None:
    make, (kind, *wanted) = MISTAKES[name]
    with pytest.raises(statemark.StatemarkError) as caught:
        make()
    said = caught.value
    assert type(said) is kind
    assert [said.problem, said.reason, said.remedy] == wanted


def test_offsets_by_topic_are_written_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, str] = {}
    reader = type("Reader", (), {})()
    reader.format = lambda _: reader
    reader.load = lambda: None
    reader.options = lambda **given: seen.update(given) or reader
    session = spark_object("SparkSession", readStream=reader)
    offsets = {"orders": {"0": 7}}
    servers = ("a:1", "b:2")
    monkeypatch.setattr("statemark._jvm.is_stopped", lambda _: False)
    statemark.kafka_source(
        session, bootstrap_servers=servers, topics=["orders"], starting_offsets=offsets
    )
    assert seen["startingOffsets"] == '{"orders": {"0": 7}}'
    assert seen["kafka.bootstrap.servers"] == "a:1,b:2"


def test_latest_needs_pandas_to_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statemark.winners_arguments.find_spec", lambda _: None)
    with pytest.raises(statemark.MissingDependencyError) as caught:
        latest(ttl=timedelta(hours=1))
    assert caught.value.problem == "pandas is not installed"
    assert caught.value.remedy == "pip install 'statemark[pandas]', or leave ttl out"


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", staticmethod(nobody))
    assert "spark-submit fetches g:a:1" in str(kafka_library.fetching("g:a:1"))


def test_settings_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").mkdir()
    with pytest.raises(statemark.SettingsError) as caught:
        layers.defaults(env={"SPARK_CONF_DIR": str(tmp_path)})
    assert caught.value.reason == "Is a directory"


def test_java_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Spark's scripts would say it in their own words, behind the first seconds."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert main(["inspect", str(tmp_path)]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "statemark: there is no Java that Spark could start",
        "  reason: JAVA_HOME is /nowhere, and /nowhere/bin/java cannot be run",
        "  remedy: install Java 17 or later, and set JAVA_HOME to its directory",
    ]


def test_spark_submit_that_fails_by_itself(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    bundled: str,
) -> None:
    submit = tmp_path / "bin/spark-submit"
    submit.parent.mkdir()
    submit.write_text("#!/bin/sh\nexit 1\n")
    submit.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr("statemark.offline.jar_path", lambda: Path(bundled))
    (tmp_path / "metadata").touch()
    assert main(["inspect", str(tmp_path)]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "statemark: `statemark inspect` has failed",
        "  reason: its process ended with exit code 1, and standard error says why",
        "  remedy: correct what it says",
    ]


def test_a_jar_of_your_own_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conf", "--jars", "s3a://b/a.jar,/nowhere/*.jar, /nowhere/a.jar"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "statemark: the jar /nowhere/a.jar cannot be read",
        "  reason: nothing is at this path",
        "  remedy: correct --jars",
    ]
