"""`statemark.checkpoint`: what its methods ask for, and what they make of the answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest

import statemark
from statemark import _jvm, offline_calls, places

_SCRIPT = """#!{python}
import json, pathlib, sys
words = sys.argv[1:]
file = pathlib.Path(words[words.index("--properties-file") + 1])
seen = {{"words": words, "mode": oct(file.stat().st_mode & 0o777), "conf": file.read_text()}}
pathlib.Path({seen!r}).write_text(json.dumps(seen))
sys.stderr.write("half of it\\nall of it\\n")
print({text!r})
sys.exit({code})
"""

Answering = Callable[..., Callable[[], dict[str, Any]]]


@pytest.fixture
def answering(
    tmp_path: Path, bundled: str, monkeypatch: pytest.MonkeyPatch, make_jar: Callable[..., Path]
) -> Answering:
    """A spark-submit that notes how it was called, and answers."""
    home = tmp_path / "home"
    make_jar(home / "jars" / f"spark-core_2.13-{pyspark.__version__}.jar")
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))  # any file system may be the default
    submit, seen = home / "bin" / "spark-submit", tmp_path / "seen.json"
    submit.parent.mkdir()

    def write(values: object, code: int = 0) -> Callable[[], dict[str, Any]]:
        text = json.dumps(values) if values is not None else "Exception in thread main"
        script = _SCRIPT.format(python=sys.executable, seen=str(seen), text=text, code=code)
        submit.write_text(script)
        submit.chmod(0o755)
        return lambda: dict(json.loads(seen.read_text()))

    return write


FINDING = {"file": "state/0/1/7.delta", "kind": "missing", "batches": [6, 7]}
STARTS = "statemark verify: Spark starts, which takes some seconds\n"
VERIFIED = {"schema": 1, "checkpoint": "/c", "ok": False, "stores": 4, "findings": [FINDING]}


def test_what_is_asked_for(answering: Answering) -> None:
    seen = answering({"schema": 1})
    there = statemark.checkpoint("/c p")

    def asked() -> dict[str, Any]:
        return dict(json.loads(seen()["words"][-1]))

    common = {"verbose": False, "checkpoint": "/c p", "json": True}
    there.inspect()
    assert asked() == {"command": "inspect", **common}
    there.verify(deep=True)
    assert asked() == {"command": "verify", "deep": True, **common}
    there.switch(to="rocksdb", dry_run=True)
    wanted = {"to": "rocksdb", "observe": 5.0, "force": False, "dryRun": True}
    assert asked() == {"command": "switch", **wanted, **common}
    there.repartition(partitions=16, observe=0)
    wanted = {"partitions": 16, "rollback": False, "skipUncommitted": False, "observe": 0.0}
    wanted |= {"fileSink": None}
    assert asked() == {"command": "repartition", **wanted, "dryRun": False, **common}
    there.repartition(rollback=True)
    assert asked()["rollback"] is True
    assert asked()["partitions"] is None


def test_settings_are_on_no_command_line(
    answering: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = "--packages g:a:1 --jars /x.jar --conf spark.hadoop.k=hidden --conf spark.hadoop.l=old"
    given = f"--master local {given}"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{given} pyspark-shell")
    seen = answering({"schema": 1})
    conf = {"spark.hadoop.s": "hidden", "spark.hadoop.l": "new", "spark.jars": "/y.jar"}
    conf |= {"spark.master": "local[3]"}
    statemark.checkpoint("s3a://b/c", conf=conf).inspect()
    words = seen()["words"]
    assert not any("hidden" in word for word in words)
    # What is given in the call counts more than the environment.
    assert not {"--packages", "--jars", "--conf", "--master"} & set(words)
    wanted = {"spark.hadoop.k": "hidden", "spark.jars.packages": "g:a:1", **conf}
    written = [f"{key} {value}" for key, value in wanted.items()]
    assert sorted(seen()["conf"].splitlines()) == sorted(written)
    assert seen()["mode"] == "0o600"
    assert not Path(words[words.index("--properties-file") + 1]).exists()


def test_the_answer(answering: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    answering(VERIFIED, code=10)
    answer = statemark.checkpoint("/c").verify()
    assert not answer.ok
    assert answer["findings"] == [FINDING]
    assert json.loads(answer.to_json()) == VERIFIED
    assert repr(answer).splitlines() == [
        "checkpoint  /c",
        "ok          False",
        "stores      4",
        "findings (1)",
        "  file               kind     batches",
        "  state/0/1/7.delta  missing  6, 7",
    ]
    assert "<td>state/0/1/7.delta</td><td>missing</td>" in answer._repr_html_()
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"{STARTS}half of it\nall of it\n")


def test_a_long_table_is_cut_and_html_is_escaped() -> None:
    rows = [{"n": n, "text": "<b>"} for n in range(30)]
    answer = statemark.Answer({"rows": rows, "nested": {"a": 1}}, ok=True)
    assert repr(answer).splitlines()[0] == "nested  a 1"
    assert repr(answer).splitlines()[-1] == "  … and 10 more"
    assert "<b>" not in answer._repr_html_()
    assert "&lt;b&gt;" in answer._repr_html_()


def test_what_a_command_says_of_its_failure(
    answering: Answering, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {
        "problem": "the query runs",
        "reason": "its log grew in --observe seconds",
        "remedy": "stop it; --force and --dry-run go on",
    }
    answering({"schema": 1, "error": told}, code=2)
    submit = tmp_path / "home/bin/spark-submit"
    text = "all of it\\nstatemark: the query runs\\n  reason: its log grew\\n"
    submit.write_text(submit.read_text().replace("all of it\\n", text))
    with pytest.raises(statemark.StatemarkError) as caught:
        statemark.checkpoint("/c").switch(to="rocksdb")
    error = caught.value
    # Options have the names that they have in the call.
    assert error.problem == told["problem"]
    assert error.reason == "its log grew in observe seconds"
    assert error.remedy == "stop it; force=True and dry_run=True go on"
    # The error is told once.
    assert capsys.readouterr().err.splitlines()[1:] == ["half of it", "all of it"]


def test_a_command_that_says_nothing(
    answering: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    answering(None, code=1)
    with pytest.raises(statemark.StatemarkError) as caught:
        statemark.checkpoint("/c").inspect()
    assert caught.value.problem == "`statemark inspect` has failed"
    assert caught.value.reason == "its process ended with exit code 1, and standard error says why"
    assert capsys.readouterr().err.splitlines()[1:] == ["half of it", "all of it"]


def test_an_interrupt_ends_the_command(
    answering: Answering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering({"schema": 1})
    submit = tmp_path / "home/bin/spark-submit"
    ended = tmp_path / "ended"
    submit.write_text(
        f"#!/bin/sh\ntrap 'touch {ended}; exit 143' TERM\necho begun >&2\n"
        "while true; do sleep 0.1; done\n"
    )

    class Interrupted:
        """Where the first line of progress comes, somebody presses the button."""

        def write(self, line: str) -> None:
            if "begun" in line:
                raise KeyboardInterrupt

    monkeypatch.setattr(offline_calls.sys, "stderr", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        statemark.checkpoint("/c").inspect()
    assert ended.exists()


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda c: c.switch(to="kafka"), "to: invalid choice: 'kafka'"),
        (lambda c: c.repartition(partitions=0), "'0' is no whole number of 1 at least"),
        (lambda c: c.repartition(), "one of the arguments partitions rollback is required"),
        (lambda c: c.repartition(partitions=2, rollback=True), "not allowed with partitions"),
        (lambda c: c.switch(to="rocksdb", observe="long"), "it is of type str"),
    ],
)
def test_a_bad_argument_is_refused_before_anything_starts(
    call: Callable[[statemark.Checkpoint], object], reason: str
) -> None:
    with pytest.raises(statemark.SettingsError) as caught:
        call(statemark.checkpoint("/c"))
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("location", "running", "is_same"),
    [
        ("/a/b", "hdfs://nn:8020/a/b", True),
        ("/a/b/", "hdfs://nn/a/b", True),
        ("hdfs://NN:9000/a/b", "hdfs://nn:8020/a/b", True),
        ("file:///a/b", "file:/a/b", True),
        ("s3a://bucket/a b", "s3a://bucket/a b", True),
        ("s3a://bucket/a", "s3a://other/a", False),
        ("/a/b", "file:/a/b", False),
        ("/a/b/c", "hdfs://nn/a/b", False),
        ("a/b", "hdfs://nn/a/b", False),
        ("", "hdfs://nn/", False),
    ],
)
def test_a_location_is_that_of_a_query_that_runs(
    monkeypatch: pytest.MonkeyPatch, location: str, running: str, is_same: bool
) -> None:
    queries = _jvm.Running("hdfs://nn/", {running: "orders"})
    monkeypatch.setattr(_jvm, "running", lambda _: queries)
    assert places.is_same(location, running, file_system=queries.file_system) == is_same
    if is_same:
        with pytest.raises(statemark.StatemarkError, match="it is query orders of this session"):
            statemark.checkpoint(location).switch(to="rocksdb")
