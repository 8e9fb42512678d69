"""A query that runs on a cluster is read while it runs, wherever its stores are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.cluster import Application, Cluster, Stream
from support.live_cells import CELLS
from support.modes import FORMATS, IS_WHOLE, pairs
from support.operators import OPERATORS
from support.processes import wait_for
from support.session import STATE_STORE, skip_where_source_lacks_ids
from support.streams import events

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARTITIONS = 8
KEYS = 211
BATCH = 500
#: That many reads at least, and at most.
READS = 12
MOST_READS = 500
#: What a read may end with.
MAY_END_WITH = {"VersionGoneError", "StoreMovedError"}


#: Applications by what they are told. Those of one kind share one: starting it takes longer than
#: most tests.
APPLICATIONS = {
    "anywhere": {"spark.locality.wait": "0s"},
    "at-home": {"spark.locality.wait": "10m"},
    # Spark copies files of stores with column families, and its paths know no links.
    "one-disk": {f"{STATE_STORE}.statemark.localDir": "{directory}/state"},
}


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), workers=2)
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def application(two_workers: Cluster, request: pytest.FixtureRequest) -> Iterator[Application]:
    settings = APPLICATIONS[request.param]
    directory = str(two_workers.directory)
    started = two_workers.start(**{k: v.format(directory=directory) for k, v in settings.items()})
    yield started
    started.end()
    wait_for("free cores", lambda: not any(worker.executors for worker in two_workers.workers))


def on(*applications: str) -> pytest.MarkDecorator:
    """Run a test on these applications."""
    return pytest.mark.parametrize("application", applications, indirect=True, scope="module")


@pytest.mark.parametrize(
    ("application", "checkpoint_format"),
    pairs(("anywhere", "at-home"), FORMATS),
    indirect=True,
    scope="module",
)
def test_reads_reach_stores_of_other_executors(
    application: Application, stream: Stream, checkpoint_format: str, tmp_path: Path
) -> None:
    """Without the state's files in the checkpoint: what is loaded is never restored for a read."""
    _start(application, stream, checkpoint_format, batches=3)
    hidden = _hide_state(stream.directory / "checkpoint/state", tmp_path / "hidden")
    assert hidden
    rows = application.call("live")
    results = application.results(stream)
    assert rows == results.wanted
    keys = [str(row[0]) for row in rows[:20]]
    assert application.call("get", keys=[*keys, "nobody"]) == [*rows[:20], None]
    assert application.call("position") == {"batch": 2, "sources": 1}


# Both formats are in LiveReadSuite; without ids it is harder to tell batches apart.
@on("anywhere")
@pytest.mark.parametrize("checkpoint_format", FORMATS if IS_WHOLE else ["1"], indirect=True)
def test_every_read_beside_running_batches_is_one_batch(
    application: Application, stream: Stream, checkpoint_format: str
) -> None:
    _start(application, stream, checkpoint_format)
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


@on("at-home")  # where stores move, a version that was pinned is soon on no executor
@pytest.mark.parametrize("checkpoint_format", FORMATS if IS_WHOLE else ["1"], indirect=True)
def test_a_read_that_was_planned_shows_its_batch(
    application: Application, stream: Stream, checkpoint_format: str, tmp_path: Path
) -> None:
    _start(application, stream, checkpoint_format)
    application.call("plan")
    for i in range(1, 8):
        stream.arrivals.add(events(i * BATCH, BATCH, keys=KEYS))
    application.call("idle")
    # The stores have it: it is not restored from files.
    assert _hide_state(stream.directory / "checkpoint/state", tmp_path / "hidden")
    assert application.call("read_planned") == BATCH


# Of an attempt that died, format v2 leaves files that the next one does not overwrite.
@on("anywhere")
@pytest.mark.parametrize("checkpoint_format", FORMATS if IS_WHOLE else ["2"], indirect=True)
def test_executors_die_under_reads(
    two_workers: Cluster, application: Application, stream: Stream, checkpoint_format: str
) -> None:
    _start(application, stream, checkpoint_format)
    application.call("start_reading")
    for i in range(1, 5):
        stream.arrivals.add(events(i * BATCH, BATCH, keys=KEYS))
        worker = two_workers.workers[i % 2]
        wait_for("an executor", lambda worker=worker: worker.executors)
        two_workers.kill(worker.executors[0])
        application.call("idle")
    reads = application.call("stop_reading")
    unnamed = [text for kind, text in reads["failures"] if kind not in MAY_END_WITH]
    assert not unnamed, "\n".join(unnamed)
    seen = reads["events"]
    assert all(n % BATCH == 0 for n in seen), f"parts of two batches: {seen}"
    assert seen == sorted(seen)
    assert len(set(seen)) > 1, seen
    assert application.call("live") == application.results(stream).wanted
    # The next test has as many as this one had.
    application.call("await_executors", count=len(two_workers.workers))


@on("anywhere")
@pytest.mark.parametrize("checkpoint_format", ["2"], indirect=True)  # LookupTasksSuite has both
def test_lookups_of_stores_that_are_open_nowhere(
    two_workers: Cluster, application: Application, stream: Stream, checkpoint_format: str
) -> None:
    """Tasks read them: on a cluster the driver opens no store."""
    _start(application, stream, checkpoint_format, batches=3)
    wanted = application.results(stream).wanted
    for worker in two_workers.workers:
        for executor in worker.executors:
            two_workers.kill(executor)
    keys = [str(row[0]) for row in wanted]
    assert application.call("get_many", keys=[*keys, "nobody"]) == [*wanted, None]
    assert not application.call("has_opened_stores")
    # The next batch opens them, and no task reads them any more.
    stream.arrivals.add(events(3 * BATCH, BATCH, keys=KEYS))
    application.call("idle")
    hidden = _hide_state(stream.directory / "checkpoint/state", stream.directory / "hidden")
    assert hidden
    later = application.results(stream).wanted
    assert application.call("get_many", keys=keys) == later
    assert not application.call("has_opened_stores")
    application.call("await_executors", count=len(two_workers.workers))


#: Kinds of stores, which tests/e2e/test_live.py reads for every operator: rows by key, by ranges of
#: keys, of a join, in column families.
OF_EACH_KIND = [("aggregation", "1"), ("sessions", "1"), ("join-right", "1"), ("list", "1")]
OF_ALL = [*((o.name, "1") for o in OPERATORS), ("aggregation", "2")]


@pytest.fixture(
    scope="module",
    params=[*(OF_ALL if IS_WHOLE else OF_EACH_KIND), ("map", "2")],
    ids=lambda param: f"{param[0]}-v{param[1]}",
)
def running(
    application: Application,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Application]:
    name, checkpoint_format = request.param
    skip_where_source_lacks_ids(checkpoint_format)
    directory = tmp_path_factory.mktemp("live")
    application.call(
        "start_operator", name=name, directory=directory, checkpoint_format=checkpoint_format
    )
    yield application
    application.call("stop_operator")


@on("one-disk")
@pytest.mark.parametrize("cell", [cell.__name__ for cell in CELLS])
def test_reads_of_every_operator(running: Application, cell: str) -> None:
    running.call("live_cell", name=cell)


def _start(
    application: Application, stream: Stream, checkpoint_format: str, *, batches: int = 1
) -> None:
    """Start a query, and let it do so many batches."""
    skip_where_source_lacks_ids(checkpoint_format)
    stream.arrivals.add(*[events(i * BATCH, BATCH, keys=KEYS) for i in range(batches)])
    application.start(stream, partitions=PARTITIONS, checkpoint_format=checkpoint_format)
    application.call("idle")


def _hide_state(state: Path, target: Path) -> int:
    """Move changelogs and snapshots away; return how many."""
    target.mkdir()
    files = [f for p in ("*.changelog", "*.zip", "*.sst") for f in state.rglob(p)]
    for i, file in enumerate(files):
        file.rename(target / str(i))
    return len(files)
