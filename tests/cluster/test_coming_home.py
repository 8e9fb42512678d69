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

    from support.cluster import Cluster

EXECUTORS = 4 if IS_WHOLE else 3
PARTITIONS = 64 if IS_WHOLE else 24
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
    local = OWN_DISKS if disks == "own" else tmp_path / "state"
    settings = {
        f"{STATE_STORE}.statemark.localDir": local,
        # However slow the machine is: an idle executor does not take what is another's.
        "spark.locality.wait": "10m",
        # Else all partitions begin where the one task before the shuffle ran.
        "spark.shuffle.reduceLocality.enabled": False,
    }
    streams = {version: Stream(tmp_path / f"format-v{version}") for version in formats}
    first = cluster.start(**settings)
    for version, stream in streams.items():
        stream.arrivals.add(*[events(i * 1000, 1000, keys=KEYS) for i in range(2)])
        first.start(stream, partitions=PARTITIONS, checkpoint_format=version)
        assert first.finish()[0]["statemarkLoadNewCount"] == PARTITIONS
    first.end()
    wait_for("the executors' end", lambda: not any(w.executors for w in cluster.workers))

    second = cluster.start(**settings)
    for version, stream in streams.items():
        stream.arrivals.add(events(2000, 1000, keys=KEYS))
        second.start(stream, partitions=PARTITIONS, checkpoint_format=version)
        loads = second.finish()[0]
        served = {k: n for k, n in loads.items() if k.startswith("statemarkLoad") and n}
        assert loads["batch"] == 2
        assert loads["statemarkLoadLocalCount"] >= 0.9 * PARTITIONS, (version, served)
        results = second.results(stream)
        assert results.got == results.wanted
    holders = [len(set(w.directory.glob("state/*/*"))) for w in cluster.workers]
    assert min(holders) > 0 or disks == "shared", holders
