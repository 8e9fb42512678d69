"""A query that is started again is served from what it left on local disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import statemark
from support.session import STATE_STORE, STATEMARK_PROVIDER
from support.streams import EVENT_SCHEMA, Run, Source, events

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

_JOB = f"""
import json
import sys
from pyspark.sql import SparkSession, functions as sf
import statemark

source, checkpoint, local, format = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.shuffle.partitions", 4)
builder = builder.config("spark.sql.streaming.stateStore.checkpointFormatVersion", format)
spark = statemark.configure(builder, local_dir=local).getOrCreate()
stream = spark.readStream.schema("{EVENT_SCHEMA}").option("maxFilesPerTrigger", 1).json(source)
counted = stream.groupBy("key").agg(sf.count("*").alias("n"))
writer = counted.writeStream.outputMode("complete").format("memory").queryName("counts")
query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()
first = query.recentProgress[0].stateOperators[0].customMetrics
served = {{k: v for k, v in first.items() if v and "Load" in k and k.endswith("Count")}}
replayed = first["statemarkReplayedChangelogCount"]
total = spark.table("counts").selectExpr("sum(n)").first()[0]
print("DONE", json.dumps({{"served": served, "replayed": replayed, "total": total}}))
"""


def _run(source: Source, tmp_path: Path, checkpoint_format: str) -> str:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            _JOB,
            str(source.directory),
            str(tmp_path / "checkpoint"),
            str(tmp_path / "local"),
            checkpoint_format,
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("DONE")]
    assert lines, done.stderr[-4000:]
    return lines[0]


def test_another_process_opens_the_stores_of_the_one_before(
    spark: SparkSession, source: Source, tmp_path: Path, provider: str, checkpoint_format: str
) -> None:
    if provider != STATEMARK_PROVIDER:
        pytest.skip("Spark's provider restores")
    source.add(events(0, 300), events(300, 300))
    assert _run(source, tmp_path, checkpoint_format) == (
        'DONE {"served": {"statemarkLoadNewCount": 4}, "replayed": 0, "total": 600}'
    )
    # The end of the application has taken a snapshot of each store's last version.
    assert len([*(tmp_path / "checkpoint/state/0").glob("*/2*.zip")]) == 4
    # Before anything is started, it is known what a start reads.
    conf = {
        f"{STATE_STORE}.statemark.localDir": str(tmp_path / "local"),
        f"{STATE_STORE}.checkpointFormatVersion": checkpoint_format,
    }
    told = statemark.doctor(tmp_path / "checkpoint", conf=conf)
    # The runner keeps the files of tests in memory, which is odd, and nothing else is.
    assert {finding.name for finding in told.findings} <= {"local-dir-in-memory"}, told
    restart = json.loads(told.to_json())["restart"]
    assert (restart["version"], restart["inUse"], restart["snapshotBytes"]) == (2, False, 0)
    source.add(events(600, 300))
    assert _run(source, tmp_path, checkpoint_format) == (
        f'DONE {{"served": {{"statemarkLoadLocalCount": {restart["localStores"]}}}, '
        f'"replayed": {restart["changelogs"]}, "total": 900}}'
    )
    assert restart["localStores"] == 4
    # What both have left, with the directory as a setting of Spark's.
    setting = f"{STATE_STORE}.statemark.localDir={tmp_path / 'local'}"
    homes = json.loads(_local("--conf", setting, "--json"))["homes"]
    assert [home["store"] for home in homes] == [f"0-{p}-default" for p in range(4)]
    assert {home["state"] for home in homes} == {"idle"}
    assert {home["partitions"] for home in homes} == {4}
    assert all(2 <= home["version"] <= 3 for home in homes)
    assert all(("checkpointId" in home) == (checkpoint_format == "2") for home in homes)
    assert {home["queryId"] for home in homes} == {_query_id(tmp_path)}


def _query_id(directory: Path) -> str:
    return str(json.loads((directory / "checkpoint/metadata").read_text())["id"])


def _local(*words: str) -> str:
    command = [sys.executable, "-m", "statemark", "local", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_local_prunes_what_a_process_left(source: Source, tmp_path: Path, provider: str) -> None:
    if provider != STATEMARK_PROVIDER:
        pytest.skip("Spark's provider leaves nothing")
    source.add(events(0, 300), events(300, 300))
    _run(source, tmp_path, "2")
    local, query = tmp_path / "local", _query_id(tmp_path)
    assert "deleted 0 stores" in _local("--local-dir", str(local), "--prune")
    (line, total) = _local("--local-dir", str(local)).splitlines()[1:]
    assert line.split()[:2] == [query, "4"]
    assert line.endswith("  idle")
    assert total.startswith(f"{local}: 4 stores, ")
    every = ("--prune", "--max-bytes", "1b", "--stores")
    lines = _local("--local-dir", str(local), *every).splitlines()
    assert [line.split()[:3] for line in lines[1:5]] == [
        ["deleted", query, f"0-{p}-default"] for p in range(4)
    ]
    assert lines[5].startswith(f"{local}: 0 stores, 0 B, deleted 4 stores, ")
    assert not list(local.iterdir())


def test_local_leaves_what_a_session_uses(
    spark: SparkSession, source: Source, run: Run, provider: str
) -> None:
    if provider != STATEMARK_PROVIDER:
        pytest.skip("Spark's provider leaves nothing")
    source.add(events(0, 300))
    # It goes on meanwhile: Spark's maintenance closes the stores of queries that have ended.
    query = run.start(source.stream().dropDuplicates(["id"]))
    try:
        query.processAllAvailable()
        root = spark.conf.get(f"{STATE_STORE}.statemark.localDir")
        assert root is not None
        words = ("--local-dir", root, "--prune", "--max-bytes", "1b", "--json")
        ours = [h for h in json.loads(_local(*words))["homes"] if h["queryId"] == str(query.id)]
    finally:
        query.stop()
    assert [(home["store"], home["state"]) for home in ours] == [
        (f"0-{p}-default", "in-use") for p in range(2)
    ]


def test_local_names_a_directory_that_is_not_there(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "statemark", "local", "--local-dir", str(tmp_path / "x")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 2
    assert f"{tmp_path}/x does not exist\n  reason: nothing is at this path" in done.stderr
    assert not done.stdout


_UNNAMED = f"""
import sys
from pyspark.sql import SparkSession
import statemark

source, local, ends = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.shuffle.partitions", 2)
spark = statemark.configure(builder, local_dir=local or None).getOrCreate()
stream = spark.readStream.schema("{EVENT_SCHEMA}").json(source)
writer = stream.groupBy("key").count().writeStream.outputMode("complete").format("memory")
query = writer.queryName("counts").start()
query.processAllAvailable()
print("DONE", spark.table("counts").selectExpr("sum(count)").first()[0], flush=True)
print(spark._jvm.java.lang.ProcessHandle.current().pid(), flush=True)
if ends == "killed":
    sys.stdin.read()
"""


def _unnamed(source: Source, local: str, ends: str, **environment: str) -> subprocess.Popen[str]:
    """Start a query with a temporary checkpoint."""
    return subprocess.Popen(
        [sys.executable, "-c", _UNNAMED, str(source.directory), local, ends],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable} | environment,
    )


def test_a_user_without_a_cache_directory_needs_no_setting(source: Source, provider: str) -> None:
    if provider != STATEMARK_PROVIDER:
        pytest.skip("Spark's provider knows no cache directory")
    source.add(events(0, 300))
    job = _unnamed(source, "", "by itself", XDG_CACHE_HOME="/proc/nonexistent")
    out, err = job.communicate(timeout=300)
    assert out.startswith("DONE 300"), err[-4000:]
    cache = "/proc/nonexistent/statemark cannot hold stores"
    assert [line for line in err.splitlines() if cache in line] == [
        line for line in err.splitlines() if "WARN LocalRoot" in line
    ]
    assert err.count(cache) == 1


@pytest.mark.parametrize("ends", ["by itself", "killed"])
def test_a_temporary_checkpoint_leaves_no_home(
    source: Source, tmp_path: Path, provider: str, ends: str
) -> None:
    if provider != STATEMARK_PROVIDER:
        pytest.skip("Spark's provider keeps no homes")
    source.add(events(0, 300))
    local = tmp_path / "local"
    job = _unnamed(source, str(local), ends)
    assert job.stdout is not None
    assert job.stdout.readline() == "DONE 300\n"
    jvm = int(job.stdout.readline())
    if ends == "killed":
        assert len(list(local.glob("*/*/*/base/CURRENT"))) == 2
        os.kill(jvm, signal.SIGKILL)
    job.communicate(timeout=300)
    if ends == "killed":
        # Any process that collects the directory finds them, as a query at its first store.
        lines = _local("--local-dir", str(local), "--prune").splitlines()
        assert len(lines) == 3
        assert [lines[1].split()[0], lines[1].split()[2]] == ["deleted", "2"]
    assert not list(local.iterdir())
