"""`statemark inspect` and `statemark verify` on the checkpoint of a query, as a user runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import statemark
from statemark import checkpoint_facts, checkpoint_files
from support.modes import FORMATS, IS_WHOLE
from support.session import STATEMARK_PROVIDER
from support.streams import Run, Source, events

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def checkpoint(source: Source, run: Run, checkpoint_format: str) -> Path:
    """Two batches of a deduplication."""
    for start in (0, 300):
        source.add(events(start, 300))
    run.to_end(source.stream().dropDuplicates(["id"]))
    return run.checkpoint


def _statemark(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "statemark", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def _check_doctor(checkpoint: Path, inspected: str, spark: SparkSession, provider: str) -> None:
    """What `doctor` reads without a JVM is what `inspect` reads with Spark's own classes."""
    read, told = (
        checkpoint_files.read(checkpoint),
        checkpoint_facts.from_inspection(json.loads(inspected)),
    )
    for name in ("query_id", "planned", "committed", "format", "provider", "partitions"):
        assert getattr(read, name) == getattr(told, name), name
    for ours, theirs in zip(read.stores, told.stores, strict=True):
        for name in ("text", "version", "snapshot", "total_bytes", "rows", "missing", "damaged"):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert ours.after(ours.snapshot).keys() == theirs.after(theirs.snapshot).keys()
    findings = statemark.doctor(checkpoint, spark=spark).findings
    # The runner keeps the files of tests in memory; the session is set up by hand.
    ours = ("local-dir-in-memory", "real-time-refused")
    found = [finding.name for finding in findings if finding.name not in ours]
    assert found == ([] if provider == STATEMARK_PROVIDER else ["session-without-jar"])


# The suites of the commands have both formats in each of their tests.
@pytest.mark.parametrize("checkpoint_format", FORMATS if IS_WHOLE else ["2"], indirect=True)
def test_inspect_and_verify(
    spark: SparkSession, checkpoint: Path, checkpoint_format: str, provider: str
) -> None:
    shown = _statemark("inspect", str(checkpoint), "--json")
    assert shown.returncode == 0, shown.stderr
    facts = json.loads(shown.stdout)
    assert facts["provider"] == provider
    assert facts["checkpointFormatVersion"] == int(checkpoint_format)
    assert facts["lastCommittedBatch"] == facts["lastPlannedBatch"] == 1
    (operator,) = facts["operators"]
    assert operator["name"] == "dedupe"
    (store,) = operator["stores"]
    assert {p["newestVersion"] for p in store["partitions"]} == {2}
    assert facts["totals"]["bytes"] == store["bytes"] > 0

    _check_doctor(checkpoint, shown.stdout, spark, provider)

    done = _statemark("verify", str(checkpoint), "--deep")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("ok: batches 0-1 can be restored; ")
    assert len(done.stdout.splitlines()) == 1

    orphan = checkpoint / "state/0/0/SSTs/000099-0d7e1f.sst"
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"nobody's")
    done = _statemark("verify", str(checkpoint), "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["restorableBatches"] == [0, 1]
    assert not found["ok"]
    (finding,) = found["findings"]
    assert (finding["file"], finding["kind"]) == (
        "state/0/0/SSTs/000099-0d7e1f.sst",
        "orphan",
    )


@pytest.mark.parametrize("checkpoint_format", FORMATS if IS_WHOLE else ["1"], indirect=True)
def test_inspect_for_people(checkpoint: Path) -> None:
    shown = _statemark("inspect", str(checkpoint))
    assert shown.returncode == 0, shown.stderr
    assert "operator 0: dedupe" in shown.stdout
    assert "its largest partition is " in shown.stdout
    assert "#" in shown.stdout


def test_no_checkpoint(tmp_path: Path) -> None:
    for command in ("inspect", "verify"):
        done = _statemark(command, str(tmp_path))
        assert done.returncode == 2
        assert "is not the checkpoint of a query" in done.stderr
        assert not done.stdout
