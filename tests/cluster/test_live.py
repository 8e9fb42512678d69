"""A query that runs on a cluster is read while it runs, wherever its stores are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from support.cluster import Application, Cluster, Stream, wait_for
from support.live_cells import CELLS
from support.operators import OPERATORS
from support.session import STATE_STORE
from support.streams import events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PARTITIONS = 8
KEYS = 211
BATCH = 500
#: That many reads at least, and at most.
READS = 12
MOST_READS = 500
#: What a read may end with.
NAMED = "VersionGoneException|StoreMovedException"


@pytest.mark.parametrize("wait", ["0s", "10m"], ids=["anywhere", "at-home"])
def test_reads_reach_stores_of_other_executors(
    cluster_of: Callable[[int], Cluster],
    stream: Stream,
    checkpoint_format: str,
    tmp_path: Path,
    wait: str,
) -> None:
    """Without the state's files in the checkpoint: what is loaded is never restored for a read."""
    settings = {"spark.locality.wait": wait}
    application = _started(cluster_of(2), stream, checkpoint_format, batches=3, **settings)
    hidden = _hide_state(stream.directory / "checkpoint/state", tmp_path / "hidden")
    assert hidden
    rows = application.call("live")
    results = application.results(stream)
    assert rows == results.wanted
    keys = [str(row[0]) for row in rows[:20]]
    assert application.call("get", keys=[*keys, "nobody"]) == [*rows[:20], None]
    assert application.call("position") == {"batch": 2, "sources": 1}


def test_every_read_beside_running_batches_is_one_batch(
    cluster_of: Callable[[int], Cluster], stream: Stream, checkpoint_format: str
) -> None:
    application = _started(cluster_of(2), stream, checkpoint_format)
    seen: list[int] = []
    # Reads may be faster than batches.
    while len(seen) < READS or (len(set(seen)) <= 2 and len(seen) < MOST_READS):
        stream.arrivals.add(events((len(seen) + 1) * BATCH, BATCH, keys=KEYS))
        seen.append(sum(row[1] for row in application.call("live")))
        assert seen[-1] % BATCH == 0, "parts of two batches"
    assert seen == sorted(seen)
    assert len(set(seen)) > 2, seen
    application.finish()
    results = application.results(stream)
    assert results.got == results.wanted


def test_a_read_that_was_planned_shows_its_batch(
    cluster_of: Callable[[int], Cluster], stream: Stream, checkpoint_format: str, tmp_path: Path
) -> None:
    application = _started(cluster_of(2), stream, checkpoint_format)
    application.call("plan")
    for i in range(1, 8):
        stream.arrivals.add(events(i * BATCH, BATCH, keys=KEYS))
    application.call("idle")
    # The stores have it: it is not restored from files.
    assert _hide_state(stream.directory / "checkpoint/state", tmp_path / "hidden")
    assert application.call("read_planned") == BATCH


def test_executors_die_under_reads(
    cluster_of: Callable[[int], Cluster], stream: Stream, checkpoint_format: str
) -> None:
    cluster = cluster_of(2)
    application = _started(cluster, stream, checkpoint_format, **{"spark.locality.wait": 0})
    application.call("start_reading")
    for i in range(1, 5):
        stream.arrivals.add(events(i * BATCH, BATCH, keys=KEYS))
        worker = cluster.workers[i % 2]
        wait_for("an executor", lambda worker=worker: worker.executors)
        cluster.kill(worker.executors[0])
        application.call("idle")
    reads = application.call("stop_reading")
    print(*reads["failures"], sep="\n")  # shown where the test fails
    assert all(re.search(NAMED, failure) for failure in reads["failures"])
    seen = reads["events"]
    assert all(n % BATCH == 0 for n in seen), f"parts of two batches: {seen}"
    assert seen == sorted(seen)
    assert len(set(seen)) > 1, seen
    assert application.call("live") == application.results(stream).wanted


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    directory = tmp_path_factory.mktemp("cluster")
    cluster = Cluster(directory, workers=2)
    try:
        # Spark copies files of stores with column families, and its paths know no links.
        yield cluster.start(**{f"{STATE_STORE}.statemark.localDir": directory / "state"})
    finally:
        cluster.stop()


@pytest.fixture(
    scope="module",
    params=[(o.name, "1") for o in OPERATORS] + [("aggregation", "2"), ("map", "2")],
    ids=lambda param: f"{param[0]}-v{param[1]}",
)
def running(
    application: Application,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Application]:
    name, checkpoint_format = request.param
    directory = tmp_path_factory.mktemp("live")
    application.call(
        "start_operator", name=name, directory=directory, checkpoint_format=checkpoint_format
    )
    yield application
    application.call("stop_operator")


@pytest.mark.parametrize("cell", [cell.__name__ for cell in CELLS])
def test_reads_of_every_operator(running: Application, cell: str) -> None:
    running.call("live_cell", name=cell)


def _started(
    cluster: Cluster,
    stream: Stream,
    checkpoint_format: str,
    *,
    batches: int = 1,
    **settings: object,
) -> Application:
    """Start an application whose query has done so many batches."""
    application = cluster.start(**settings)
    stream.arrivals.add(*[events(i * BATCH, BATCH, keys=KEYS) for i in range(batches)])
    application.start(stream, partitions=PARTITIONS, checkpoint_format=checkpoint_format)
    application.call("idle")
    return application


def _hide_state(state: Path, target: Path) -> int:
    """Move changelogs and snapshots away; return how many."""
    target.mkdir()
    files = [f for p in ("*.changelog", "*.zip", "*.sst") for f in state.rglob(p)]
    for i, file in enumerate(files):
        file.rename(target / str(i))
    return len(files)
