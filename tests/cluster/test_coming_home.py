"""A query that is started again finds its partitions on the executors that hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.cluster import OWN_DISKS, Stream
from support.modes import IS_WHOLE
from support.processes import wait_for
from support.session import STATE_STORE
from support.streams import events

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.cluster import Application, Cluster

EXECUTORS = 4 if IS_WHOLE else 3
PARTITIONS = 64 if IS_WHOLE else 24
RESTARTS = 20 if IS_WHOLE else 3
#: Checkpoint formats of the queries that are restarted in their application.
RESTARTED = "12" if IS_WHOLE else "2"
#: Enough for rows in nearly every partition.
KEYS = 2003


@pytest.mark.parametrize(("disks", "formats"), [("own", "12"), ("shared", "2")])
def test_partitions_come_home(
    cluster_of: Callable[[int], Cluster], tmp_path: Path, disks: str, formats: str
) -> None:
    """
    Where each host has a disk of its own, only placement brings a partition to its state.

    Both checkpoint formats in the same applications: to start them takes longest.
    """
    cluster = cluster_of(EXECUTORS)
    settings = {
        f"{STATE_STORE}.statemark.localDir": OWN_DISKS if disks == "own" else tmp_path / "state",
        # Else all partitions begin where the one task before the shuffle ran.
        "spark.shuffle.reduceLocality.enabled": False,
    }
    streams = {version: Stream(tmp_path / f"format-v{version}") for version in formats}
    first = cluster.start(**settings)
    for version, stream in streams.items():
        _arrive(stream)
        _arrive(stream)
        first.start(stream, partitions=PARTITIONS, checkpoint_format=version)
        first.call("idle")
        assert first.progress()[0]["statemarkLoadNewCount"] == PARTITIONS
        if disks == "own" and version in RESTARTED:
            _restart(first, stream, version)
        first.finish()
    first.end()
    wait_for("the executors' end", lambda: not any(w.executors for w in cluster.workers))

    # However slow the machine is: an idle executor does not take what is another's.
    second = cluster.start(**settings, **{"spark.locality.wait": "10m"})
    for version, stream in streams.items():
        _arrive(stream)
        second.start(stream, partitions=PARTITIONS, checkpoint_format=version)
        loads = second.finish()[0]
        served = {k: n for k, n in loads.items() if k.startswith("statemarkLoad") and n}
        assert loads["batch"] == stream.committed
        assert loads["statemarkLoadLocalCount"] >= 0.9 * PARTITIONS, (version, served)
        results = second.results(stream)
        assert results.got == results.wanted
    holders = [len(set(w.directory.glob("state/*/*"))) for w in cluster.workers]
    assert min(holders) > 0 or disks == "shared", holders


def _restart(application: Application, stream: Stream, version: str) -> None:
    """
    Stop and start the query in its application, whose `spark.locality.wait` is Spark's own.

    After a wrong report of every store the next start restores it where the report says.
    """
    moved = 0
    before = application.call("places")
    for _ in range(RESTARTS):
        before, found = _restarted(application, stream, version), before
        moved += sum(now != then for now, then in zip(before, found, strict=True))
    assert moved <= 0.05 * PARTITIONS * RESTARTS, moved

    executors = sorted(set(before))
    wrong = [executors[executors.index(place) - 1] for place in before]
    application.call("misreport", wrong=wrong, version=stream.committed + 1)
    after = _restarted(application, stream, version)
    followed = sum(now == then for now, then in zip(after, wrong, strict=True))
    assert followed >= 0.9 * PARTITIONS, followed
    loads = application.progress()[0]
    assert loads["statemarkLoadCheckpointCount"] >= 0.9 * PARTITIONS, loads
    results = application.results(stream)
    assert results.got == results.wanted


def _restarted(application: Application, stream: Stream, version: str) -> list[str]:
    """Return the executors of the partitions after a batch of a new run."""
    application.finish()
    _arrive(stream)
    application.start(stream, partitions=PARTITIONS, checkpoint_format=version)
    application.call("idle")
    found: list[str] = application.call("places")
    return found


def _arrive(stream: Stream) -> None:
    stream.arrivals.add(events(stream.arrivals.count * 1000, 1000, keys=KEYS))
