"""What the offline commands hand to spark-submit, without a JVM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest

from statemark.cli import main

LINE = ".".join(pyspark.__version__.split(".")[:2])

Submitted = Callable[[], dict[str, Any]]

_SCRIPT = """#!/usr/bin/env python3
import json, os, pathlib, sys
seen = {{"words": sys.argv[1:], "opts": os.environ.get("SPARK_SUBMIT_OPTS")}}
pathlib.Path({seen!r}).write_text(json.dumps(seen))
sys.exit({code})
"""


@pytest.fixture
def spark_submit(
    tmp_path: Path, bundled: str, monkeypatch: pytest.MonkeyPatch, make_jar: Callable[..., Path]
) -> Callable[[int], Submitted]:
    """A home of Spark whose spark-submit notes how it was called and exits with a code."""
    home = tmp_path / "home"
    make_jar(home / "jars" / f"spark-core_2.13-{pyspark.__version__}.jar")
    monkeypatch.setenv("SPARK_HOME", str(home))
    # A path without a scheme may be of any file system then, and need not be on this machine.
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)

    def write(code: int) -> Submitted:
        submit = home / "bin" / "spark-submit"
        submit.parent.mkdir(exist_ok=True)
        submit.write_text(_SCRIPT.format(seen=str(tmp_path / "seen.json"), code=code))
        submit.chmod(0o755)
        return lambda: dict(json.loads((tmp_path / "seen.json").read_text()))

    return write


def request(seen: Submitted) -> dict[str, Any]:
    """What the JVM is asked for."""
    return dict(json.loads(seen()["words"][-1]))


def test_switch(spark_submit: Callable[[int], Submitted], bundled: str) -> None:
    seen = spark_submit(0)
    assert main(["switch", "/c p", "--to", "rocksdb"]) == 0
    assert seen()["words"][:-1] == ["--class", "statemark.spark.offline.Main", bundled]
    asked = {"command": "switch", "verbose": False, "checkpoint": "/c p", "to": "rocksdb"}
    asked |= {"dryRun": False, "json": False}
    assert request(seen) == {**asked, "observe": 5.0, "force": False}
    assert main(["switch", "/c p", "--to", "rocksdb", "--observe", "0", "--force"]) == 0
    assert request(seen) == {**asked, "observe": 0.0, "force": True}
    assert main(["switch", "/c p", "--to", "rocksdb", "--dry-run", "--json"]) == 0
    assert request(seen) == {**asked, "observe": 5.0, "force": False, "dryRun": True, "json": True}


def test_repartition(spark_submit: Callable[[int], Submitted]) -> None:
    seen = spark_submit(0)
    assert main(["repartition", "/c", "--partitions", "16"]) == 0
    asked = {"command": "repartition", "verbose": False, "checkpoint": "/c", "observe": 5.0}
    plain = {**asked, "partitions": 16, "rollback": False, "skipUncommitted": False}
    plain |= {"fileSink": None, "dryRun": False, "json": False}
    assert request(seen) == plain
    assert main(["repartition", "/c", "--rollback"]) == 0
    assert request(seen) == {**plain, "partitions": None, "rollback": True}
    assert main(["repartition", "/c", "--partitions", "16", "--skip-uncommitted"]) == 0
    assert request(seen) == {**plain, "skipUncommitted": True}


@pytest.mark.parametrize("words", [[], ["--partitions", "4", "--rollback"]])
def test_repartition_wants_one_thing(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(["repartition", "/c", *words])


@pytest.mark.parametrize("count", ["0", "-3", "4.5", "many", ""])
def test_no_spark_is_started_to_refuse_a_number_of_partitions(
    count: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["repartition", "/c", "--partitions", count])
    assert caught.value.code == 2
    said = f"argument --partitions: {count!r} is no whole number of 1 at least"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["inspect"], ["inspect", "--json"], ["verify"], ["verify", "--deep", "--json"]]
)
def test_inspect_and_verify(spark_submit: Callable[[int], Submitted], words: list[str]) -> None:
    seen = spark_submit(10)
    assert main([words[0], "/c", *words[1:]]) == 1
    asked = {"command": words[0], "verbose": False, "checkpoint": "/c", "json": "--json" in words}
    deep = {"deep": "--deep" in words} if words[0] == "verify" else {}
    assert request(seen) == {**asked, **deep}


def test_local(spark_submit: Callable[[int], Submitted], tmp_path: Path) -> None:
    seen = spark_submit(0)
    assert main(["local"]) == 0
    unset = {"localDir": None, "maxAge": None, "maxBytes": None, "prune": False, "json": False}
    unset |= {"dryRun": False, "stores": False}
    assert request(seen) == {"command": "local", "verbose": False, **unset}
    there = str(tmp_path)
    options = ["--local-dir", there, "--max-age", "12h", "--max-bytes", "1g", "--json", "--stores"]
    assert main(["local", "--prune", *options]) == 0
    given = {"localDir": there, "maxAge": "12h", "maxBytes": "1g", "prune": True, "json": True}
    given |= {"dryRun": False, "stores": True}
    assert request(seen) == {"command": "local", "verbose": False, **given}


@pytest.mark.parametrize("words", [["--max-age", "1d"], ["--max-bytes", "5g"], ["--dry-run"]])
def test_no_spark_is_started_to_refuse_what_means_nothing_without_prune(
    spark_submit: Callable[[int], Submitted],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
) -> None:
    spark_submit(0)
    with pytest.raises(SystemExit) as caught:
        main(["local", *words])
    assert caught.value.code == 2
    said = f"statemark local: argument {words[0]}: means nothing without --prune; add --prune, or"
    assert said in capsys.readouterr().err
    assert not (tmp_path / "seen.json").exists()
    assert main(["local", *words, "--prune"]) == 0
    assert (tmp_path / "seen.json").exists()


@pytest.fixture
def user_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user for whom Spark has fetched nothing yet."""
    home = tmp_path / "user"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


BROKERS = ["--bootstrap-servers", "b:9092"]
LIBRARY = ["--jars", "/kafka-clients-3.9.2.jar"]
ASKED = {
    "verbose": False,
    "bootstrapServers": "b:9092",
    "commitTopic": "statemark-commits",
    "commandConfig": None,
}


def test_topic_status(
    spark_submit: Callable[[int], Submitted], bundled: str, tmp_path: Path
) -> None:
    seen = spark_submit(0)
    assert main(["topic", "status", *BROKERS, *LIBRARY]) == 0
    without_cluster = ["--master", "local[*]", "--deploy-mode", "client"]
    start = ["--class", "statemark.spark.offline.Main", *without_cluster]
    assert seen()["words"][:-1] == [*start, *LIBRARY, bundled]
    plain = {**ASKED, "command": "topic status", "identity": None, "prefix": None, "json": False}
    assert request(seen) == plain
    config = tmp_path / "client.properties"
    config.touch()
    more = ["--commit-topic", "c", "--command-config", str(config), "--prefix", "p", "--json"]
    assert main(["topic", "status", "q/orders", *BROKERS, *LIBRARY, *more]) == 0
    given = {"commitTopic": "c", "commandConfig": str(config), "prefix": "p", "json": True}
    assert request(seen) == {**plain, **given, "identity": "q/orders"}


def test_topic_finish_and_forget(spark_submit: Callable[[int], Submitted]) -> None:
    seen = spark_submit(10)
    assert main(["topic", "finish", "q/orders", *BROKERS, *LIBRARY]) == 1
    asked = {**ASKED, "identity": "q/orders", "yes": False, "json": False}
    assert request(seen) == {**asked, "command": "topic finish"}
    assert main(["topic", "forget", "q/orders", *BROKERS, *LIBRARY, "--yes", "--all"]) == 1
    forget = {**asked, "command": "topic forget", "yes": True, "all": True, "force": False}
    assert request(seen) == forget


def test_topic_compact(spark_submit: Callable[[int], Submitted]) -> None:
    seen = spark_submit(0)
    command = ["topic", "compact", "orders", *BROKERS, *LIBRARY, "--strategy", "timestamp"]
    assert main([*command, "--master", "local[3]"]) == 0
    words = seen()["words"]
    # A query runs where the user says.
    assert words.count("--master") == 1
    assert words[words.index("--master") + 1] == "local[3]"
    asked = request(seen)
    assert (asked["topic"], asked["dryRun"], asked["trigger"]) == ("orders", False, "10s")
    for code in (130, 143):
        spark_submit(code)
        assert main(command) == code, "it was told to end"


_PATIENT = """#!/usr/bin/env python3
import pathlib, signal, sys, time
def end(number, _):
    time.sleep(0.5)
    pathlib.Path({seen!r}).write_text("ended in its own way")
    sys.exit(128 + number)
signal.signal(signal.SIGINT, end)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
signal.pause()
"""


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_told_to_end(
    spark_submit: Callable[[int], Submitted], tmp_path: Path, told: signal.Signals
) -> None:
    """It has the time that it needs: a terminal tells all of a group, others the command alone."""
    spark_submit(0)
    submit, seen = tmp_path / "home/bin/spark-submit", tmp_path / "seen"
    submit.write_text(_PATIENT.format(seen=str(seen)))
    command = [sys.executable, "-m", "statemark", "topic", "status", *BROKERS, *LIBRARY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        if told == signal.SIGINT:
            os.killpg(process.pid, told)
        else:
            process.send_signal(told)
        assert process.wait() == 128 + told
    assert seen.read_text() == "ended in its own way"


def test_a_query_needs_sparks_connector(
    spark_submit: Callable[[int], Submitted],
    user_home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Kafka's library alone is enough for a repair that ends."""
    kept = user_home / ".ivy2.5.2" / "jars" / "org.apache.kafka_kafka-clients-3.9.2.jar"
    kept.parent.mkdir(parents=True)
    kept.touch()
    seen = spark_submit(0)
    command = ["topic", "compact", "orders", *BROKERS, "--strategy", "timestamp"]
    assert main(command) == 0
    assert library(seen) == ["--jars", str(kept)]
    continuous = [*command, "--continuous", "--checkpoint", "/c"]
    release = ".".join(pyspark.__version__.split(".")[:3])
    connector = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{release}"
    assert main(continuous) == 0
    assert library(seen)[:2] == ["--packages", connector]
    assert f"spark-submit fetches {connector}, about 10 MB" in capsys.readouterr().err
    # Spark looks for it once more, and does not fetch it again.
    kept.with_name(f"org.apache.spark_spark-sql-kafka-0-10_2.13-{release}.jar").touch()
    assert main(continuous) == 0
    assert library(seen)[:2] == ["--packages", connector]
    assert capsys.readouterr().err == ""
    own = ["--jars", "/spark-sql-kafka-0-10_2.13.jar"]
    assert main([*continuous, *own]) == 0
    assert library(seen) == own


def test_doctor(spark_submit: Callable[[int], Submitted]) -> None:
    seen = spark_submit(0)
    assert main(["doctor", "--kafka", "b:9092", "--topic", "orders", *LIBRARY, "--json"]) == 0
    asked = {"command": "doctor", "kafka": "b:9092", "topic": "orders", "prefix": "statemark"}
    assert request(seen) == {
        **asked,
        "verbose": False,
        "commitTopic": "statemark-commits",
        "commandConfig": None,
        "strategy": None,
        "header": None,
        "json": True,
    }


@pytest.mark.parametrize(
    ("argv", "usage"),
    [
        (["topic"], "topic"),
        (["topic", "compress"], "topic"),
        (["topic", "compact", *BROKERS], "topic compact"),
        (["topic", "compact", "t", *BROKERS, "--strategy", "offsets"], "topic compact"),
        (["topic", "status"], "topic status"),
        (["topic", "status", *BROKERS, "--master", "yarn"], ""),
        (["topic", "finish", *BROKERS], "topic finish"),
        (["topic", "forget", *BROKERS], "topic forget"),
        (["doctor", "/c", "--kafka", "b:1"], "doctor"),
    ],
)
def test_wrong_usage_of_topic_and_doctor(
    argv: list[str], usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert f"usage: statemark {usage}" in capsys.readouterr().err


def library(seen: Submitted) -> list[str]:
    """The words for spark-submit that bring Kafka's client library."""
    words = seen()["words"]
    return list(words[words.index("client") + 1 : -2])


def test_kafkas_library_is_fetched_alone(
    spark_submit: Callable[[int], Submitted],
    user_home: Path,
    tmp_path: Path,
    bundled: str,
    make_jar: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What it asks for besides lies among Spark's own jars."""
    seen = spark_submit(0)
    (core,) = (tmp_path / "home/jars").glob("spark-core_*.jar")
    core.unlink()
    for spark, kafka in (
        ("4.0.2", "3.9.1"),
        ("4.1.3-amzn-0", "3.9.1"),
        ("4.2.0", "3.9.2"),
        ("4.3.0", "3.9.2"),
    ):
        core = make_jar(core.with_name(f"spark-core_2.13-{spark}.jar"))
        make_jar(Path(bundled.replace(f"spark_{LINE}_", f"spark_{spark[:3]}_")))
        client = f"org.apache.kafka:kafka-clients:{kafka}"
        assert main(["topic", "status", *BROKERS]) == 0
        *packages, option, excluded = library(seen)
        assert packages == ["--packages", client]
        assert option == "--exclude-packages"
        core.unlink()
    assert {"org.apache.hadoop:hadoop-client-runtime", "com.github.luben:zstd-jni"} <= set(
        excluded.split(",")
    )
    build = (Path(__file__).parents[3] / "build.sbt").read_text()
    assert f'"statemark.kafkaClients", "{kafka}"' in build, "what the sink is tested with"
    said = f"is not on this machine: spark-submit fetches {client}, about 10 MB, and keeps it\n"
    assert capsys.readouterr().err.endswith(said)
    # Neither hides what the user asks for.
    make_jar(core)
    words = ["--packages", "g:a:1", "--jars", "/a.jar", "--conf", "spark.jars.excludes=g:b"]
    assert main(["topic", "status", *BROKERS, *words]) == 0
    given = library(seen)
    assert given[given.index("--jars") + 1] == "/a.jar"
    assert given[given.index("--packages") + 1] == f"g:a:1,{client}"
    assert given[given.index("--exclude-packages") + 1] == f"g:b,{excluded}"


@pytest.mark.parametrize(
    "given",
    [
        ["--packages", "org.apache.kafka:kafka-clients:4.1.1"],
        ["--jars", "/lib/kafka-clients-4.1.1.jar"],
        ["--conf", "spark.jars.packages=org.apache.kafka:kafka-clients:4.1.1"],
        ["--conf", "spark.driver.extraClassPath=/opt/kafka/libs/*"],
    ],
)
def test_kafkas_library_is_the_one_that_is_named(
    spark_submit: Callable[[int], Submitted], user_home: Path, given: list[str]
) -> None:
    seen = spark_submit(0)
    assert main(["topic", "status", *BROKERS, *given]) == 0
    assert library(seen) == given


def test_kafkas_library_is_not_fetched_twice(
    spark_submit: Callable[[int], Submitted],
    user_home: Path,
    tmp_path: Path,
    make_jar: Callable[..., Path],
) -> None:
    seen = spark_submit(0)
    kept = user_home / ".ivy2.5.2/jars"
    for version in ("3.9.2", "3.10.0", "3.8.1"):
        make_jar(kept / f"org.apache.kafka_kafka-clients-{version}.jar")
    newest = str(kept / "org.apache.kafka_kafka-clients-3.10.0.jar")
    assert main(["topic", "status", *BROKERS, "--jars", "/a.jar"]) == 0
    assert library(seen) == ["--jars", f"/a.jar,{newest}"]
    make_jar(tmp_path / "home/jars/kafka-clients-3.9.2.jar")
    assert main(["topic", "status", *BROKERS]) == 0
    assert library(seen) == []


def test_a_library_that_cannot_be_fetched(
    spark_submit: Callable[[int], Submitted],
    user_home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spark_submit(1)
    assert main(["topic", "status", *BROKERS]) == 2
    _, _, error = capsys.readouterr().err.partition("\n")
    assert error.startswith("statemark: the command was not started\n  reason: spark-submit failed")
    assert "--jars kafka-clients" in error
    assert main(["topic", "status", *BROKERS, *LIBRARY]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "statemark: `statemark topic status` has failed",
        "  reason: its process ended with exit code 1, and standard error says why",
        "  remedy: correct what it says",
    ]


def test_local_has_no_checkpoint() -> None:
    with pytest.raises(SystemExit):
        main(["local", "/c"])


def test_options_of_spark_submit_come_before_the_jar(
    spark_submit: Callable[[int], Submitted], bundled: str, tmp_path: Path
) -> None:
    seen = spark_submit(0)
    (tmp_path / "p").touch()
    options = [
        "--conf",
        "spark.a=1",
        "--conf",
        "spark.b=x y",
        "--packages",
        "g:a:1",
        "--jars",
        "/a.jar",
    ]
    more = ["--master", "spark://h:7077", "--repositories", "r"]
    more += ["--properties-file", str(tmp_path / "p")]
    assert main(["switch", *options, "--to", "rocksdb", *more, "/c"]) == 0
    words = seen()["words"]
    given = words[2 : words.index(bundled)]
    pairs = {tuple(given[i : i + 2]) for i in range(0, len(given), 2)}
    both = options + more
    assert pairs == {tuple(both[i : i + 2]) for i in range(0, len(both), 2)}


@pytest.mark.parametrize(("code", "wanted"), [(0, 0), (10, 1), (2, 2), (1, 2), (101, 2)])
def test_exit_codes(spark_submit: Callable[[int], Submitted], code: int, wanted: int) -> None:
    spark_submit(code)
    assert main(["switch", "/c", "--to", "rocksdb"]) == wanted


def test_logs_are_quiet_unless_asked_for(
    spark_submit: Callable[[int], Submitted], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = spark_submit(0)
    main(["switch", "/c", "--to", "rocksdb"])
    option, _, uri = seen()["opts"].partition("=")
    assert option == "-Dlog4j2.configurationFile"
    assert Path(uri.removeprefix("file://")).is_file()
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dx=y")
    main(["switch", "/c", "--to", "rocksdb"])
    assert seen()["opts"].startswith("-Dx=y -Dlog4j2.configurationFile=")
    main(["switch", "/c", "--to", "rocksdb", "--verbose"])
    assert seen()["opts"] == "-Dx=y"
    assert request(seen)["verbose"] is True


def test_a_home_without_spark_submit(
    bundled: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    (tmp_path / "metadata").touch()
    assert main(["switch", str(tmp_path), "--to", "rocksdb"]) == 2
    submit = tmp_path / "bin" / "spark-submit"
    assert capsys.readouterr().err == (
        f"statemark: {submit} cannot be run\n"
        "  reason: the home of Spark has no spark-submit\n"
        f"  remedy: correct SPARK_HOME, or install pyspark: pip install 'pyspark=={LINE}.*'\n"
    )
    submit.parent.mkdir()
    submit.touch()
    assert main(["switch", str(tmp_path), "--to", "rocksdb"]) == 2
    assert "  reason: this user may not run it\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv", [["inspect", "PATH"], ["verify", "file:PATH"], ["inspect", "file://localhostPATH"],
             ["switch", "PATH", "--to", "rocksdb"], ["local", "--local-dir", "PATH"]],
)  # fmt: skip
def test_no_virtual_machine_is_started_to_say_that_a_path_leads_nowhere(
    spark_submit: Callable[[int], Submitted],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR")
    spark_submit(0)
    path = tmp_path / "check point"
    words = [word.replace("PATH", str(path)) for word in argv]
    location = next(word for word in words if str(path) in word)
    assert main(words) == 2
    assert capsys.readouterr().err == (
        f"statemark: {location} does not exist\n"
        "  reason: nothing is at this path\n"
        "  remedy: correct the location\n"
    )
    assert not (tmp_path / "seen.json").exists()
    path.mkdir()
    if argv[0] != "local":
        assert main(words) == 2
        assert capsys.readouterr().err == (
            f"statemark: {location} is not the checkpoint of a query\n"
            "  reason: it has no file 'metadata'\n"
            "  remedy: name the directory that the query has as its checkpointLocation\n"
        )
        assert not (tmp_path / "seen.json").exists()
    (path / "metadata").touch()
    assert main(words) == 0
    assert (tmp_path / "seen.json").exists()


@pytest.mark.parametrize(
    ("location", "settings"),
    [
        ("s3a://bucket/c", []),
        ("hdfs:/c", []),
        ("file://other/c", []),
        ("/nowhere/c", ["--conf", "spark.hadoop.fs.defaultFS=hdfs://n"]),
        ("file:/nowhere/c", ["--conf", "spark.submit.deployMode=cluster"]),
        ("file:/nowhere/c", ["--conf", "spark.hadoop.fs.file.impl=x.Y"]),
    ],
)
def test_what_only_spark_can_tell_is_left_to_it(
    spark_submit: Callable[[int], Submitted],
    monkeypatch: pytest.MonkeyPatch,
    location: str,
    settings: list[str],
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR")
    seen = spark_submit(0)
    assert main(["inspect", location, *settings]) == 0
    assert request(seen)["checkpoint"] == location


def test_settings_of_hadoop_may_name_another_file_system(
    spark_submit: Callable[[int], Submitted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR")
    spark_submit(0)
    assert main(["inspect", "/nowhere/c"]) == 2
    conf = Path(os.environ["SPARK_CONF_DIR"])
    (conf / "spark-defaults.conf").write_text("spark.hadoop.fs.defaultFS hdfs://n")
    assert main(["inspect", "/nowhere/c"]) == 0
    (conf / "spark-defaults.conf").unlink()
    for name in ("core-site.xml", "spark-env.sh"):
        (conf / name).touch()
        assert main(["inspect", "/nowhere/c"]) == 0, name
        (conf / name).unlink()
    for name, value in (("SPARK_DIST_CLASSPATH", "/hadoop/conf"), ("DEPLOY_MODE", "cluster")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert main(["inspect", "/nowhere/c"]) == 0, name
    for words in (
        ["--jars", "/hdfs.jar"],
        ["--packages", "g:a:1"],
        ["--conf", "spark.jars=/hdfs.jar"],
        ["--conf", "spark.jars.packages=g:a:1"],
        ["--conf", "spark.driver.extraClassPath=/hadoop/conf"],
    ):
        assert main(["inspect", "/nowhere/c", *words]) == 0, words
    monkeypatch.setenv("DEPLOY_MODE", "cluster")
    assert main(["inspect", "/nowhere/c", "--conf", "spark.submit.deployMode=client"]) == 2


@pytest.mark.parametrize(
    "argv",
    [["switch"], ["switch", "/c"], ["switch", "/c", "--to", "hdfs"], ["switch", "--to", "rocksdb"]],
)
def test_wrong_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert "usage: statemark switch" in capsys.readouterr().err


def test_an_error_is_an_object_too(
    spark_submit: Callable[[int], Submitted], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the process says nothing, or a user's file prints something."""
    assert main(["doctor", "", "--json"]) == 2
    told = capsys.readouterr()
    error = json.loads(told.out)["error"]
    assert told.err.startswith(f"statemark: {error['problem']}\n  reason: {error['reason']}\n")
    spark_submit(0)
    submit = tmp_path / "home/bin/spark-submit"
    for script, code, wanted in (
        ("echo hello; exit 1", 2, "error"),
        ("exit 2", 2, "error"),
        ("""echo hello; echo '{"schema":1,"ok":false}'; exit 10""", 1, "ok"),
    ):
        submit.write_text(f"#!/bin/sh\n{script}\n")
        assert main(["verify", "s3a://b/c", "--json"]) == code
        told = capsys.readouterr()
        found = json.loads(told.out)
        assert list(found) == ["schema", wanted]
        assert ("hello" in told.err) == ("hello" in script)
