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

Done = subprocess.CompletedProcess[str]
LIBRARY = next(jar for jar in jars("spark-connector") if "kafka-clients" in jar)


def side_by_side(*commands: list[str]) -> list[Done]:
    """Run commands, each a process, and return what became of them."""
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "statemark", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for words in commands
    ]
    printed = [process.communicate(timeout=LIMIT_S) for process in started]
    return [
        Done(words, process.returncode, *texts)
        for words, process, texts in zip(commands, started, printed, strict=True)
    ]


def said(done: Done, code: int = 0) -> str:
    """Return what a command has printed, with an exit code of 2 its errors."""
    assert done.returncode == code, (done.args, done.stdout, done.stderr)
    # Spark itself warns there of modules of Java.
    return done.stderr if code == 2 else done.stdout


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

    def topic(command: str, *words: str) -> list[str]:
        return ["topic", command, *words, *asked, "--jars", LIBRARY]

    stranger = topics.producer(job.bootstrap, "a-stranger")
    stranger.begin_transaction()
    stranger.produce(job.topic, b"not ours", partition=1)
    stranger.flush()
    config = tmp_path / "client.properties"
    config.write_text("client.id=somebody\n")
    status, nobody, without, doctor = side_by_side(
        topic("status", "--json", "--command-config", str(config)),
        topic("status", "nobody/out"),
        ["topic", "status", *asked, "--conf", "spark.driver.extraClassPath=/kafka"],
        [
            *("doctor", "--kafka", job.bootstrap, "--topic", job.topic, "--json"),
            *("--commit-topic", job.options["commitTopic"], "--jars", LIBRARY),
        ],
    )
    report: dict[str, Any] = json.loads(said(status))
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
    assert "statemark: no sink nobody/out is known\n  reason: there are " in said(nobody, 2)
    error = said(without, 2)
    assert "statemark: the command topic status cannot run\n  reason: Kafka's client " in error
    assert "remedy: add --packages org.apache.spark:spark-sql-kafka-0-10_2.13:" in error
    assert json.loads(said(doctor))["schema"] == 1
    checks = {check["name"]: check for check in json.loads(said(doctor))["checks"]}
    assert checks["access"]["state"] == checks["transaction timeout"]["state"] == "ok"
    assert "one copy" in checks["output topic"]["text"]

    identity = sink["identity"]
    forget, finish = side_by_side(topic("forget", identity), topic("finish", identity))
    assert f"statemark topic finish {identity}" in said(forget, 2)
    shown = said(finish, 1)
    assert "next start  batch 0 is decided, not complete: " in shown
    assert shown.endswith("Add --yes to do it\n")
    assert not topics.read(job.bootstrap, job.topic), "nothing was done"

    (finish,) = side_by_side(topic("finish", identity, "--yes", "--json"))
    done = json.loads(said(finish))
    assert (done["schema"], done["outcome"]) == (1, "finished")
    assert f"Sink {identity}, run 2: batch 0 was decided last" in done["notes"][0]
    verdict = job.judge()
    assert verdict.is_right, verdict
    assert verdict.rows == last["rows"]

    again, forget = side_by_side(topic("finish", identity, "--yes"), topic("forget", identity))
    assert "batch 0 is complete: goes on with 1, or a later one. There is" in said(again)
    assert f"would remove what was decided by {identity}: " in said(forget)
    job.add()
    job.run_in(spark)
    assert job.judge().is_right
