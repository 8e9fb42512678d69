"""A query on two executors, each a process, that are killed: readers see each batch once, whole."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from support import topics
from support.modes import IS_WHOLE
from support.processes import wait_for
from support.sinks import Job, on_executors
from support.topics import Isolation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.brokers import Brokers

    Topic = Callable[..., str]

#: A phase is held in every process that reaches it, and one of them is killed there.
ALL = ("row-sent", "attempt-finished", "token-sent", "transaction-committed")
#: The simulator has each of them. Here: with tasks that run, and with a commit that was ordered.
PHASES = ALL if IS_WHOLE else ("attempt-finished", "token-sent")


@pytest.fixture
def job(broker: Brokers, topic: Topic, tmp_path: Path) -> Job:
    """A query whose executors tell the probe of each phase, as its driver does."""
    directory = tmp_path / "job"
    conf = on_executors(directory / "probe")
    return Job(directory, broker.bootstrap, topic(partitions=3), **conf)


def test_executors_are_killed(job: Job) -> None:
    for _ in PHASES:
        job.add()
    for phase in PHASES:
        job.hold(phase)
    driver = job.start(fails=False)
    try:
        for phase in PHASES:

            def held(phase: str = phase) -> list[int]:
                assert driver.process.poll() is None, job.log()
                return job.held(phase)

            (pid, *_) = wait_for(f"an executor at {phase}", held)
            os.kill(pid, signal.SIGKILL)
            job.release(phase)
        assert driver.process.wait() == 0, job.log()
    finally:
        driver.kill()
    verdict = job.judge()
    assert verdict.is_right, verdict
    sent = topics.read(job.bootstrap, job.topic, Isolation.READ_UNCOMMITTED)
    assert len(sent) > verdict.rows > 0
    metrics = [progress["sink"]["metrics"] for progress in job.progress()]
    assert int(metrics[-1]["copiedRows"]) > 0, metrics


@pytest.mark.skipif(not IS_WHOLE, reason="a start of three processes for each phase")
def test_driver_dies_with_executors(job: Job) -> None:
    for phase in ("before-decision", "decision-durable", "orders-answered", "copied"):
        job.add()
        assert job.run(phase) != 0, job.log()
        assert job.died(phase), job.log()
    assert job.run() == 0, job.log()
    verdict = job.judge()
    assert verdict.is_right, verdict
