"""`statemark switch` from a shell, on queries that ran without our jar and go on without it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyspark
import pytest
from support.modes import IS_WHOLE
from support.session import ROOT, SPARK_PROVIDER, STATE_STORE, STATEMARK_PROVIDER, statemark_jar

_TIMEOUT_S = 240
_JOB = Path(__file__).with_name("counting_job.py")
_HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


@pytest.fixture(autouse=True)
def _ours(provider: str) -> None:
    if provider != STATEMARK_PROVIDER:
        pytest.skip("the command is the same for every provider")


class Counting:
    """A job that counts keys, its events, and what it has written."""

    def __init__(self, directory: Path, partitions: int) -> None:
        self.directory, self.partitions = directory, partitions
        self.checkpoint = directory / "checkpoint"
        self._keys: Counter[int] = Counter()
        (directory / "events").mkdir(parents=True)

    def arrive(self, keys: range) -> None:
        """Let a file arrive with an event for each key."""
        files = len(list((self.directory / "events").iterdir()))
        self._write(files, keys)

    def replace(self, file: int, was: range, keys: range) -> None:
        """Let a file have other events than those that arrived with it."""
        self._keys.subtract(was)
        self._write(file, keys)

    def _write(self, file: int, keys: range) -> None:
        path = self.directory / "events" / f"{file:04d}.json"
        path.write_text("\n".join(json.dumps({"key": key}) for key in keys))
        # Spark reads in the order of modification times.
        os.utime(path, (1_700_000_000 + file,) * 2)
        self._keys.update(keys)

    def roll_back(self, first: int) -> None:
        """Delete what the logs have of batches from the first on, as docs/failures.md says."""
        for log in ("offsets", "commits", "sources/0"):
            for entry in (self.checkpoint / log).iterdir():
                if int(entry.name.removeprefix(".").split(".")[0]) >= first:
                    entry.unlink()

    def run(self, provider: str, *, jar: bool = False) -> list[str]:
        """Process what has arrived; names of the stores' metrics."""
        submit = Path(pyspark.__file__).parent / "bin/spark-submit"
        conf = {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": str(self.partitions),
            f"{STATE_STORE}.providerClass": provider,
        }
        command = [str(submit), "--master", "local[2]"]
        command += [word for k, v in conf.items() for word in ("--conf", f"{k}={v}")]
        command += ["--jars", str(statemark_jar())] if jar else []
        done = subprocess.run(
            [*command, str(_JOB), str(self.directory)],
            check=False,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        )
        assert done.returncode == 0, done.stderr[-4000:]
        line = next(row for row in done.stdout.splitlines() if row.startswith("metrics:"))
        return line.split()[1:]

    def check(self) -> None:
        """The last count of every key is that of all events."""
        last: dict[int, int] = {}
        for file in sorted((self.directory / "out").glob("batch=*/*.json")):
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            last.update({row["key"]: row["count"] for row in rows})
        assert last == {key: count for key, count in self._keys.items() if count}


def command(*words: str) -> list[str]:
    tool = shutil.which("statemark", path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.fail("no `statemark` beside this python: run `make build`", pytrace=False)
    return [tool, "switch", *words]


def switch(checkpoint: Path, to: str) -> str:
    words = command("--master", "local[2]", "--observe", "1", "--to", to, str(checkpoint))
    done = subprocess.run(
        words, check=False, capture_output=True, text=True, timeout=_TIMEOUT_S, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "INFO" not in done.stderr
    return done.stdout


def ours(metrics: list[str]) -> bool:
    return any(name.startswith("statemark") for name in metrics)


def test_from_hdfs_to_statemark_to_a_spark_without_our_jar(tmp_path: Path) -> None:
    job = Counting(tmp_path / "job", partitions=3)
    job.arrive(range(50))
    job.arrive(range(20, 90))
    assert not ours(job.run(_HDFS))
    out = switch(job.checkpoint, "statemark")
    assert "was switched from hdfs to statemark" in out
    assert "imported version 2 of the state: 3 stores, 90 rows" in out
    job.arrive(range(60, 120))
    # The checkpoint decides, not what the session sets.
    assert ours(job.run(SPARK_PROVIDER, jar=True))
    assert "was switched from statemark to rocksdb" in switch(job.checkpoint, "rocksdb")
    job.arrive(range(100, 130))
    assert not ours(job.run(STATEMARK_PROVIDER))
    job.check()


def test_batches_that_were_taken_back_by_hand_do_not_come_back(tmp_path: Path) -> None:
    job = Counting(tmp_path / "job", partitions=1)
    right, wrong = range(5), range(40)
    for file in range(10):
        job.arrive(right if file < 7 else wrong)
    job.run(STATEMARK_PROVIDER, jar=True)
    job.roll_back(7)
    for file in range(7, 10):
        job.replace(file, wrong, right)
    assert "3 files above version 7" in switch(job.checkpoint, "rocksdb")
    assert not ours(job.run(SPARK_PROVIDER))
    job.check()
    switch(job.checkpoint, "statemark")
    job.arrive(wrong)
    assert ours(job.run(SPARK_PROVIDER, jar=True))
    job.check()


def test_an_error_has_no_stack_trace(tmp_path: Path) -> None:
    # What Python itself can tell is told before there is a virtual machine.
    (tmp_path / "metadata").write_text("nothing")
    words = command("--to", "rocksdb", str(tmp_path))
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=_TIMEOUT_S)
    assert done.returncode == 2
    assert done.stdout == ""
    wanted = f"statemark: file:{tmp_path} is not the checkpoint of a query\n  reason: "
    assert wanted in done.stderr
    assert "\tat " not in done.stderr


def test_a_kill_in_the_middle_of_an_import(tmp_path: Path) -> None:
    rows, stores = (100_000, 24) if IS_WHOLE else (40_000, 12)
    job = Counting(tmp_path / "job", partitions=stores)
    job.arrive(range(rows))
    job.run(_HDFS)
    words = command("--master", "local[1]", "--observe", "0", "--to", "statemark")
    process = subprocess.Popen([*words, str(job.checkpoint)], start_new_session=True)
    try:
        deadline = time.monotonic() + _TIMEOUT_S
        while not list(job.checkpoint.glob("state/0/*/1.zip")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    journal = job.checkpoint / "_statemark/switch-1"
    assert (journal / "manifest.json").is_file()
    assert not (journal / "finished").exists()
    assert 0 < len(list(job.checkpoint.glob("state/0/*/1.zip"))) < stores
    # The query goes on as if nothing had been tried.
    job.arrive(range(20_000, 20_100))
    assert not ours(job.run(_HDFS))
    job.check()
    assert "an interrupted switch to statemark" in (out := switch(job.checkpoint, "statemark"))
    assert f"imported version 2 of the state: {stores} stores, {rows} rows" in out
    job.arrive(range(rows - 50, rows + 50))
    assert ours(job.run(_HDFS, jar=True))
    job.check()
