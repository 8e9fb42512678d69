"""Spark tries a task more than once, side by side: readers see the rows of one attempt."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from support import topics
from support.cluster import Cluster, Gates, Task
from support.processes import wait_for
from support.session import STATE_STORE, STATEMARK_PROVIDER
from support.sink_driver import TASKS
from support.sinks import Job, Part, Try, on_executors
from support.topics import Isolation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.brokers import Brokers

    Topic = Callable[..., str]

#: The task whose first attempts are slow.
SLOW = 1
SPECULATION = {
    "spark.locality.wait": "0",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.25",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two hosts: Spark starts a second attempt on another one only."""
    directory = tmp_path / "cluster"
    directory.mkdir()
    started = Cluster(directory, workers=2)
    yield started
    started.stop()


def at(gates: Gates, gate: str, batch: int, attempt: int = 0) -> dict[int, int]:
    """Return the tasks of which an attempt has reached a gate, and its process."""
    wanted = (gate, batch, attempt)
    found = [task for task in gates.tasks() if (task.gate, task.batch, task.attempt) == wanted]
    return {task.partition: task.pid for task in found}


def await_rows(job: Job, batch: int) -> None:
    """Wait until readers see a batch, and until nothing holds them back behind it."""

    def is_there() -> bool:
        return any(part.batch == batch for part in job.tries())

    wait_for(f"rows of batch {batch}", is_there)
    topics.settle(job.bootstrap, job.topic)


def test_a_stage_runs_again_as_an_executor_is_lost_with_its_shuffle_files(
    broker: Brokers, topic: Topic, tmp_path: Path
) -> None:
    """
    Of four tasks that count, one has ended, and two are writing, as the executor of one is killed.

    The two others cannot fetch any more what its map task has left. Spark runs that again, and then
    a second attempt of the stage, of all tasks but the one that has ended: it counts, with rows of
    the first attempt in a transaction that also has rows of a task that does not.
    """
    directory = tmp_path / "job"
    conf = {
        **on_executors(directory / "probe"),
        "spark.sql.shuffle.partitions": str(TASKS),
        # A map task on each executor.
        "spark.sql.files.maxPartitionBytes": "500",
        f"{STATE_STORE}.providerClass": STATEMARK_PROVIDER,
        f"{STATE_STORE}.statemark.localDir": str(tmp_path / "state"),
    }
    job = Job(directory, broker.bootstrap, topic(partitions=3), **conf)
    job.query["counts"] = True
    gates = job.with_gates()
    for task in range(TASKS):
        gates.hold(Task("out", 0, task, 0))
    job.add()
    job.add()
    driver = job.start(fails=False)

    def writing(tasks: int) -> dict[int, int]:
        def found() -> dict[int, int]:
            assert driver.process.poll() is None, job.log()
            first = at(gates, "out", 0)
            return first if len(first) == tasks else {}

        return dict(wait_for(f"{tasks} tasks that write", found))

    try:
        first = writing(2)
        dead = next(pid for pid in at(gates, "in", 0).values())
        ended = next(task for task, pid in first.items() if pid != dead)
        # Spark gives the other executor its next task once it knows of the end of the one before.
        gates.release(Task("out", 0, ended, 0))
        second = writing(3)
        os.kill(dead, signal.SIGKILL)
        assert driver.process.wait() == 0, job.log()
    finally:
        driver.kill()
    verdict = job.judge()
    assert verdict.is_right, verdict
    assert verdict.rows > 0
    # Who is read, and who has written.
    read, sent = job.tries(), job.tries(Isolation.READ_UNCOMMITTED)
    assert read[Part(0, ended)] == {Try(0, 0)}
    again = set(range(TASKS)) - {ended}
    assert {one.stage for task in again for one in read[Part(0, task)]} == {1}
    beside = (second.keys() - first.keys()).pop()
    assert {one.stage for one in sent[Part(0, beside)]} == {0, 1}


def test_only_one_of_two_speculative_attempts_counts(
    cluster: Cluster, broker: Brokers, topic: Topic, tmp_path: Path
) -> None:
    """
    The first attempt dawdles until its twin has written, and is killed; in the next batch it ends.

    In both, nothing of it is open while the query goes on, and is kept from its next batch.
    """
    directory = tmp_path / "job"
    conf = {
        **on_executors(directory / "probe"),
        **SPECULATION,
        "spark.master": cluster.url,
        "spark.driver.host": "127.0.0.1",
        "spark.executor.cores": "1",
    }
    job = Job(directory, broker.bootstrap, topic(partitions=3), **conf)
    gates = job.with_gates()
    for batch in (0, 1):
        for attempt in (0, 1):
            gates.hold(Task("out", batch, SLOW, attempt))
        gates.hold(Task("in", batch + 1, 0, 0))
    for _ in range(3):
        job.add()
    driver = job.start(fails=False)

    def dawdling(batch: int) -> int:
        """Wait for the slow attempt and its twin, side by side, and return the former's process."""

        def found() -> list[dict[int, int]]:
            assert driver.process.poll() is None, job.log()
            both = [at(gates, "out", batch, attempt) for attempt in (0, 1)]
            return both if all(SLOW in one for one in both) else []

        return int(wait_for(f"two attempts at one task of batch {batch}", found)[0][SLOW])

    try:
        dawdling(0)
        gates.release(Task("out", 0, SLOW, 1))
        await_rows(job, 0)
        gates.release(Task("in", 1, 0, 0))
        ending = f"attempt-finished-{dawdling(1)}"
        job.hold(ending)
        gates.release(Task("out", 1, SLOW, 0))
        wait_for("the end of the slow task", lambda: job.held("attempt-finished"))
        gates.release(Task("out", 1, SLOW, 1))
        await_rows(job, 1)
        job.release(ending)
        gates.release(Task("in", 2, 0, 0))
        assert driver.process.wait() == 0, job.log()
    finally:
        driver.kill()
    verdict = job.judge()
    assert verdict.is_right, verdict
    read, sent = job.tries(), job.tries(Isolation.READ_UNCOMMITTED)
    for batch in (0, 1):
        assert read[Part(batch, SLOW)] == {Try(0, 1)}
        assert sent[Part(batch, SLOW)] == {Try(0, 0), Try(0, 1)}
