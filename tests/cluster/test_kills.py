"""Executors are killed in open batches while input arrives; the result is that of a batch."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

import pytest
from support.modes import FORMATS, IS_WHOLE
from support.processes import wait_for
from support.session import STATE_STORE
from support.streams import events

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.cluster import Application, Cluster, Stream

KILLS = int(os.environ.get("STATEMARK_CLUSTER_KILLS", "5"))
PARTITIONS = 8
ROWS = 200
KEYS = 307
#: Files that wait for the query: it never runs dry, and is soon done in the end.
BACKLOG = 2
#: The batch by which stores lie on disk.
FLUSHED = 7
LONGEST_DELAY_S = 0.3


# Of an attempt that died, format v2 leaves files that the next one does not overwrite.
@pytest.mark.parametrize("checkpoint_format", FORMATS if IS_WHOLE else ["2"], indirect=True)
def test_executors_die_in_open_batches(
    cluster_of: Callable[[int], Cluster], stream: Stream, checkpoint_format: str
) -> None:
    cluster = cluster_of(2)
    # Without a wait partitions go where a core is free: each batch finds some elsewhere.
    settings = {"spark.locality.wait": 0, f"{STATE_STORE}.maintenanceInterval": "2s"}
    application = cluster.start(**settings)
    application.start(stream, partitions=PARTITIONS, checkpoint_format=checkpoint_format)
    seed = int(time.time())
    print("seed:", seed)  # shown where the test fails
    chance = random.Random(seed)
    killed: list[int] = []
    batch = -1
    while len(killed) < KILLS:
        # Before or after a first store of the batch has committed.
        gate = chance.choice(["in", "out"])
        batch = next_open_batch(application, stream, gate, after=batch)
        running = {task.pid for task in stream.tasks() if task.batch == batch}
        time.sleep(chance.uniform(0, LONGEST_DELAY_S))
        # One may have died before, in a batch that was already committed.
        alive = [pid for worker in cluster.workers for pid in worker.executors if pid in running]
        if alive:
            cluster.kill(chance.choice(alive))
            if stream.committed < batch:  # so it was open when the executor was dead
                killed.append(batch)

    progress = application.finish()
    results = application.results(stream)
    assert results.got == results.wanted
    assert len(results.got) > PARTITIONS
    homes = {(task.partition, task.pid) for task in stream.tasks()}
    for partition in range(PARTITIONS):
        assert sum(p == partition for p, _ in homes) > 1, "it never moved"
    # What is open is of no use elsewhere, so that other sources served, too.
    assert sum(p["statemarkLoadLocalCount"] + p["statemarkLoadCheckpointCount"] for p in progress)


@pytest.mark.skipif(not IS_WHOLE, reason="100 s; the test above has kills in each run")
def test_two_die_in_a_row_and_stores_come_home(
    cluster_of: Callable[[int], Cluster], stream: Stream
) -> None:
    """The executor on the other host dies in the very next batch: every store has moved twice."""
    cluster = cluster_of(2)
    application = cluster.start(**{"spark.locality.wait": 0})
    application.start(stream, partitions=PARTITIONS, checkpoint_format="2")
    # A store's directory is of use once it was flushed, which is after five versions.
    batch = next_open_batch(application, stream, "out", after=FLUSHED)
    for worker in cluster.workers:
        (executor,) = wait_for("an executor", lambda w=worker: w.executors)
        cluster.kill(executor)
        assert stream.committed < batch, "the batch was open"
        batch = next_open_batch(application, stream, "in", after=batch)
    progress = application.finish()
    results = application.results(stream)
    assert results.got == results.wanted
    moved = [p for p in progress if p["batch"] > FLUSHED]
    assert sum(p["statemarkLoadLocalCount"] for p in moved) > 0, progress


def next_open_batch(application: Application, stream: Stream, gate: str, *, after: int) -> int:
    """Let input arrive until a later batch has a task at the gate; return the batch."""

    def found() -> int:
        while stream.arrivals.count < stream.committed + 1 + BACKLOG:
            stream.arrivals.add(events(stream.arrivals.count * ROWS, ROWS, keys=KEYS))
        newest = max((t.batch for t in stream.tasks() if t.gate == gate), default=-1)
        is_open = application.check() and newest > max(after, stream.committed)
        return newest + 1 if is_open else 0

    return int(wait_for(f"a batch after {after}", found)) - 1
