"""`statemark topic` and `statemark doctor`, as a user runs them after a driver has died."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from support import topics
from support.brokers import jars
from support.processes import LIMIT_S
from support.sinks import Job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from support.brokers import Brokers

    Topic = Callable[..., str]
    Command = subprocess.Popen[str]

LIBRARY = next(jar for jar in jars("spark-connector") if "kafka-clients" in jar)


def statemark(*words: str) -> Command:
    """Start a command."""
    command = [sys.executable, "-m", "statemark", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(command: Command, code: int) -> str:
    """Return what a command has printed; its errors where it failed."""
    out, err = command.communicate(timeout=LIMIT_S)
    assert command.returncode == code, out + err
    return err if code == 2 else out


@pytest.fixture
def job(broker: Brokers, topic: Topic, tmp_path: Path) -> Job:
    """A query whose driver died with a batch decided, and of which readers have nothing yet."""
    job = Job(tmp_path / "job", broker.bootstrap, topic(partitions=3))
    job.options["commitTopic"] = f"{job.topic}-commits"
    job.add()
    assert job.run("decision-durable") != 0, job.log()
    assert job.died("decision-durable"), job.log()
    return job


def test_a_decision_that_nobody_carried_out(job: Job, spark: SparkSession, tmp_path: Path) -> None:
    asked = ["--bootstrap-servers", job.bootstrap, "--commit-topic", job.options["commitTopic"]]

    def topic(command: str, *words: str) -> Command:
        return statemark("topic", command, *words, *asked, "--jars", LIBRARY)

    stranger = topics.producer(job.bootstrap, "a-stranger")
    stranger.begin_transaction()
    stranger.produce(job.topic, b"not ours", partition=1)
    stranger.flush()
    config = tmp_path / "client.properties"
    config.write_text("client.id=somebody\n")
    # None of these changes anything, so they run side by side.
    status = topic("status", "--json", "--command-config", str(config))
    nobody = topic("status", "nobody/out")
    without = statemark("topic", "status", *asked, "--conf", "spark.driver.extraClassPath=/kafka")
    doctor = statemark(
        *("doctor", "--kafka", job.bootstrap, "--topic", job.topic, "--json"),
        *("--commit-topic", job.options["commitTopic"], "--jars", LIBRARY),
    )

    report: dict[str, Any] = json.loads(ended(status, 0))
    (sink,) = report["sinks"]
    assert sink["sink"] == job.topic
    assert (sink["run"], sink["topics"]) == (1, [job.topic])
    last = sink["lastDecision"]
    assert last["batch"] == 0
    assert last["rows"] > 0
    assert not last["complete"]
    assert sink["nextStart"]["kind"] == "completes"
    (other,) = report["others"]
    assert other["transactionalId"] == "a-stranger"
    assert [p["partition"] for p in other["partitions"]] == [1]
    stranger.abort_transaction()
    assert ended(nobody, 2).startswith("statemark: no sink nobody/out is known\n  reason: there ")
    error = ended(without, 2)
    assert error.startswith("statemark: the command topic status cannot run\n  reason: Kafka's ")
    assert "remedy: add --packages org.apache.spark:spark-sql-kafka-0-10_2.13:" in error
    checks = {check["name"]: check for check in json.loads(ended(doctor, 0))["checks"]}
    assert checks["access"]["state"] == checks["transaction timeout"]["state"] == "ok"
    assert "one copy" in checks["output topic"]["text"]

    identity = sink["identity"]
    forget, finish = topic("forget", identity), topic("finish", identity)
    assert f"statemark topic finish {identity}" in ended(forget, 2)
    shown = ended(finish, 1)
    assert "next start  batch 0 is decided, not complete: " in shown
    assert shown.endswith("Add --yes to do it\n")
    assert not topics.read(job.bootstrap, job.topic), "nothing was done"

    done = ended(topic("finish", identity, "--yes"), 0)
    assert f"Sink {identity}, run 2: batch 0 was decided last" in done
    verdict = job.judge()
    assert verdict.is_right, verdict
    assert verdict.rows == last["rows"]

    again, forget = topic("finish", identity, "--yes"), topic("forget", identity)
    assert "batch 0 is complete: goes on with 1, or a later one. There is" in ended(again, 0)
    assert f"would remove what was decided by {identity}: " in ended(forget, 0)
    job.add()
    job.run_in(spark)
    assert job.judge().is_right
