"""`statemark.use` in sessions that were started without Statemark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import statemark
from statemark import settings
from support import connect
from support.processes import SMALL_JVM
from support.session import STATEMARK_PROVIDER, statemark_jar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

_JOB = Path(__file__).with_name("use_job.py")


def _run(master: str, directory: Path) -> dict[str, Any]:
    """Run the job in a process of its own, and return what it has seen."""
    done = subprocess.run(
        [sys.executable, str(_JOB), master, str(directory)],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_SUBMIT_OPTS": SMALL_JVM},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads((directory / "seen.json").read_text()))


_BRINGS = {
    "extension": "spark.sql.extensions=statemark.spark.StatemarkExtensions",
    "plugin": "spark.plugins=statemark.spark.StatemarkPlugin",
}


def _check(seen: dict[str, Any], lacks: Sequence[str] = tuple(_BRINGS)) -> None:
    assert seen["versions"]["driver"] == statemark.__version__
    assert seen["text"].startswith(f"Statemark {statemark.__version__} on driver")
    # What the session cannot get any more is said by name, each with what brings it.
    for lack in lacks:
        assert f"lacks the {lack}" in seen["text"]
        assert _BRINGS[lack] in seen["text"]
    # The query of the block is on Statemark, the one after it on what the session had before.
    assert seen["metrics"] > 0
    assert seen["is_former"]
    assert seen["metrics_after"] == 0
    assert seen["rows"] == [[key, 4] for key in range(5)]
    assert (seen["row"], seen["position"]) == (4, 0)
    assert "class path" not in seen["text"]
    # Other threads of Python read and start queries at once.
    assert (seen["row_in_thread"], seen["rows_in_thread"]) == (4, 5)
    assert seen["metrics_in_thread"] > 0


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_a_session_that_runs(master: str, tmp_path: Path, provider: str) -> None:
    if provider != STATEMARK_PROVIDER:
        pytest.skip("it brings Statemark's")
    seen = _run(master, tmp_path)
    _check(seen)
    assert (len(seen["versions"]) > 1) == (master != "local[2]")
    # What Spark said before: that it knows neither the formats nor the provider.
    assert seen["absent"] == ["JarNotFoundError"] * 3
    # The driver reads what tasks fail with.
    assert "\n  reason: The changelog 1.changelog cannot be read: " in seen["failure"]
    assert seen["kind"] == "CheckpointDamagedError"


def test_a_client_of_a_server_with_the_jar(tmp_path: Path, provider: str) -> None:
    if provider != STATEMARK_PROVIDER:
        pytest.skip("it brings Statemark's")
    server, url = connect.serve(["--jars", str(statemark_jar())], tmp_path / "server.log")
    try:
        seen = _run(url, tmp_path)
    finally:
        server.kill()
    # The jar was there when the sessions of the server began.
    assert "lacks the extension" not in seen["text"]
    _check(seen, lacks=("plugin",))


def test_a_client_of_a_server_without_the_jar(tmp_path: Path) -> None:
    server, url = connect.serve([], tmp_path / "server.log")
    code = f"""
import statemark
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote({url!r}).getOrCreate()
try:
    statemark.use(spark)
except statemark.JarNotFoundError as e:
    print(e)
try:
    spark.read.format("statemark-kafka").load().collect()
except Exception as e:
    print(statemark.error_of(e).problem)
"""
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=tmp_path
        )
    finally:
        server.kill()
    assert done.stdout.startswith("the Spark Connect server does not have the plugin's jar\n")
    assert "remedy: start the server with the flags of `statemark conf`" in done.stdout
    assert done.stdout.endswith("\nSpark does not have Statemark's jar\n"), done.stderr[-4000:]


def test_a_session_that_has_the_jar(spark: SparkSession, provider: str) -> None:
    if provider != STATEMARK_PROVIDER:
        pytest.skip("Spark's provider needs no jar")
    before = dict(spark.conf.getAll)
    with statemark.use(spark, max_uncommitted_bytes="32m") as usage:
        assert usage.versions == {"driver": statemark.__version__}
        assert [lack.what.split(",")[0] for lack in usage.lacks] == ["the plugin"]
        assert spark.conf.get(settings.MAX_UNCOMMITTED_BYTES.key) == "32m"
    assert dict(spark.conf.getAll) == before
    with pytest.raises(statemark.SettingsError, match="cannot use a Builder"):
        statemark.use(type(spark).builder)  # type: ignore[arg-type]
    with pytest.raises(statemark.SettingsError, match="bad value 'lots'"):
        statemark.use(spark, max_uncommitted_bytes="lots")
    assert dict(spark.conf.getAll) == before
    # What the session has set before counts as well, and doctor of the session names it once.
    misspelt = f"{settings.PREFIX}maxUncommitedBytes"
    spark.conf.set(misspelt, "64m")
    try:
        with pytest.raises(statemark.SettingsError, match=f"unknown setting {misspelt}"):
            statemark.use(spark)
        found = [finding.name for finding in statemark.doctor(spark=spark).findings]
        assert found.count("settings-refused") == 1
    finally:
        spark.conf.unset(misspelt)
    assert dict(spark.conf.getAll) == before


def test_another_version_is_refused(
    spark: SparkSession, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if provider != STATEMARK_PROVIDER:
        pytest.skip("Spark's provider needs no jar")
    before = dict(spark.conf.getAll)
    monkeypatch.setattr("statemark.running.__version__", "9.9.9")
    with pytest.raises(statemark.SettingsError) as caught:
        statemark.use(spark)
    assert f"driver: {statemark.__version__}" in str(caught.value)
    assert f"pip install statemark=={statemark.__version__}" in str(caught.value)
    assert dict(spark.conf.getAll) == before


def test_a_jar_that_is_not_there(tmp_path: Path, provider: str) -> None:
    """In a process of its own, for the session must not have the jar."""
    if provider != STATEMARK_PROVIDER:
        pytest.skip("it brings Statemark's")
    code = f"""
import statemark
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
for jar in ({str(tmp_path / "no.jar")!r}, {"file://" + str(tmp_path / "no.jar")!r}):
    try:
        statemark.use(spark, jar=jar)
    except statemark.JarNotFoundError as e:
        print(e)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("no.jar") >= 2
    assert done.stdout.count("remedy:") == 2
