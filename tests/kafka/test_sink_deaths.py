"""A query whose driver dies: readers see each batch once, whole, of one run."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from support import topics
from support.modes import IS_WHOLE
from support.processes import wait_for
from support.sinks import Job
from support.topics import Isolation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from support.brokers import Brokers

    Topic = Callable[..., str]

#: In the order in which one run after another dies at them. Rows are copied after a task failed,
#: and after a decision that nobody carried out.
PHASES = (
    *("row-sent", "attempt-finished", "before-decision", "decision-sent", "decision-durable"),
    *("driver-initialized", "run-begun", "fenced", "copy-open", "copied", "copy-committed"),
    *("orders-answered", "before-commit-log"),
)
#: That after which most is left to do; `test_batches` dies behind a decision.
SOME = ("copied",)


@pytest.fixture
def job(broker: Brokers, topic: Topic, tmp_path: Path) -> Job:
    return Job(tmp_path / "job", broker.bootstrap, topic(partitions=3))


def is_open(job: Job) -> bool:
    """Whether readers wait for a transaction."""
    read, log = (topics.ends(job.bootstrap, job.topic, level) for level in Isolation)
    return read != log


def end(job: Job, spark: SparkSession) -> None:
    """Run the query to its end, and judge."""
    metrics = job.run_in(spark)
    verdict = job.judge()
    assert verdict.is_right, (verdict, metrics)
    assert verdict.rows > 0


def test_driver_is_killed_in_the_middle_of_a_batch(job: Job, spark: SparkSession) -> None:
    job.add()
    for kind in (signal.SIGTERM, signal.SIGKILL):
        job.hold("row-sent")
        driver = job.start()
        (pid, *_) = wait_for("a row that is sent", lambda: job.held("row-sent"))
        wait_for("an open transaction", lambda: is_open(job))
        os.kill(pid, kind)
        driver.process.wait()
        driver.kill()
        # An end in good order leaves nobody waiting; after a kill, the next run does that.
        if kind == signal.SIGTERM:
            topics.settle(job.bootstrap, job.topic)
        assert is_open(job) == (kind == signal.SIGKILL)
        for file in job.probe.glob("*row-sent*"):
            file.unlink()
    end(job, spark)


@pytest.mark.parametrize("phases", [PHASES if IS_WHOLE else SOME], ids=["phases"])
def test_driver_dies_at_each_phase(job: Job, spark: SparkSession, phases: tuple[str, ...]) -> None:
    for phase in phases:
        job.add()
        assert job.run(phase) != 0, job.log()
        assert job.died(phase), job.log()
    end(job, spark)
