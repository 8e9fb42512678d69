"""A host that comes back has older state than the host that replaced it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.modes import FORMATS, IS_WHOLE
from support.processes import wait_for
from support.session import STATE_STORE
from support.streams import events

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.cluster import Application, Cluster, Stream, Worker

PARTITIONS = 4
ROWS = 200
KEYS = 97
#: Batches on one host.
TURN = 3
#: As many changelogs are replayed at most.
REPLAYED = 5


# In format v1 no id says whether what a host has is of this history.
@pytest.mark.parametrize("checkpoint_format", FORMATS if IS_WHOLE else ["1"], indirect=True)
def test_older_state_is_brought_up_or_distrusted(
    cluster_of: Callable[[int], Cluster], stream: Stream, checkpoint_format: str
) -> None:
    """Two hosts run the query in turns: what a host has is a little older, or too old."""
    cluster = cluster_of(2)
    first, second = cluster.workers
    second.kill()
    application = cluster.start(**{f"{STATE_STORE}.minDeltasForSnapshot": REPLAYED})
    application.start(stream, partitions=PARTITIONS, checkpoint_format=checkpoint_format)
    run(application, stream, TURN)

    hand_over(first, second)
    loads = run(application, stream, TURN)
    assert loads["statemarkLoadCheckpointCount"] == PARTITIONS, loads

    hand_over(second, first)
    loads = run(application, stream, 1)
    assert loads["statemarkLoadLocalCount"] == PARTITIONS, loads
    assert loads["statemarkReplayedChangelogCount"] >= PARTITIONS * TURN, loads

    run(application, stream, REPLAYED)
    hand_over(first, second)
    loads = run(application, stream, 1)
    assert loads["statemarkDistrustTooOldCount"] == PARTITIONS, loads
    assert loads["statemarkLoadCheckpointCount"] == PARTITIONS, loads

    application.finish()
    results = application.results(stream)
    assert results.got == results.wanted
    assert len(results.got) > PARTITIONS


def run(application: Application, stream: Stream, batches: int) -> dict[str, int]:
    """Run some more batches; metrics of the first of them."""
    start = stream.arrivals.count
    files = range(start, start + batches)
    stream.arrivals.add(*[events(i * ROWS, ROWS, keys=KEYS) for i in files])
    last = files[-1]
    wait_for(f"batch {last}", lambda: application.check() and stream.committed >= last)

    def progress() -> dict[str, int] | None:
        return next((p for p in application.progress() if p["batch"] == start), None)

    return dict(wait_for(f"the progress of batch {start}", progress))


def hand_over(dead: Worker, living: Worker) -> None:
    """A host goes, what it has confirmed on its disk; the other comes back, with its own."""
    dead.stop()
    living.start()
