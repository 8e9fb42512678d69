"""Two attempts write the same version of a store; the one that the checkpoint names is served."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from support.cluster import Task
from support.processes import wait_for
from support.streams import Event, events

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.cluster import Cluster, Stream

PARTITIONS = 4
ROWS = 400
KEYS = 97
#: The partition whose first attempts are slow.
SLOW = 1
#: Batches in which they are: dead before the commit in the one, after it in the other.
OPEN, COMMITTED = 1, 2
#: Those after them are smaller, so that their share in a count is no other's.
FEW_ROWS = 120
SETTINGS = {
    "spark.locality.wait": 0,
    "spark.speculation": True,
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": 1.1,
    "spark.speculation.quantile": 0.25,
}


def test_two_attempts_write_one_version(
    cluster_of: Callable[[int], Cluster], stream: Stream, checkpoint_format: str
) -> None:
    """
    A speculative attempt wins; the first one is killed with its store open, or after a commit.

    Both differ in what they write: the state counts events that came by a later attempt. Format v2
    serves the winner's version, as the driver took its id. Format v1 has one file for both, and the
    last one stands: the winner's executor must not serve its own any more.
    """
    cluster = cluster_of(2)
    application = cluster.start(**SETTINGS)
    stream.hold(Task("in", 0, SLOW, 1))  # no speculative attempt wins there by chance
    stream.hold(Task("in", OPEN, SLOW, 0))
    stream.hold(Task("in", COMMITTED, SLOW, 0))
    for attempt in (0, 1):
        stream.hold(Task("out", COMMITTED, SLOW, attempt))
    inputs = [events(i * ROWS, ROWS, keys=KEYS) for i in range(COMMITTED + 1)]
    stream.arrivals.add(*inputs)
    application.start(stream, partitions=PARTITIONS, checkpoint_format=checkpoint_format)

    def reached(gate: str, batch: int, attempt: int) -> int:
        """Wait until an attempt is at a gate; its process."""

        def pids() -> list[int]:
            application.check()
            return [t.pid for t in stream.tasks() if t[:4] == (gate, batch, SLOW, attempt)]

        return int(wait_for(f"attempt {attempt} of {batch} at {gate}", pids)[0])

    # The first attempt still waits when the other has done its work.
    assert reached("in", OPEN, 0) != reached("out", OPEN, 1)
    loser, winner = reached("in", COMMITTED, 0), reached("out", COMMITTED, 1)
    assert loser != winner
    winners = changelogs(stream, COMMITTED + 1)
    assert len(winners) == 1
    stream.release(Task("in", COMMITTED, SLOW, 0))
    reached("out", COMMITTED, 0)
    # In format v1 another file of the same name, in v2 one more.
    assert len(changelogs(stream, COMMITTED + 1)) == int(checkpoint_format)
    assert changelogs(stream, COMMITTED + 1) != winners
    stream.release(Task("out", COMMITTED, SLOW, 1))
    wait_for("the batch", lambda: application.check() and stream.committed == COMMITTED)

    # Who goes on has the version in memory that does not count.
    wrong, right = (winner, loser) if checkpoint_format == "1" else (loser, winner)
    dead = cluster.worker_of(right)
    dead.kill()
    late = Counter(event[1] for event in inputs[OPEN])
    if checkpoint_format == "2":
        late.update(event[1] for event in inputs[COMMITTED])
    more = [events(i * ROWS, FEW_ROWS, keys=KEYS) for i in (COMMITTED + 1, COMMITTED + 2)]
    stream.arrivals.add(more[0])
    wait_for("a batch", lambda: application.check() and stream.committed == COMMITTED + 1)
    assert {t.pid for t in stream.tasks() if t.batch == COMMITTED + 1} == {wrong}

    # Now from what is on disk.
    dead.start()
    cluster.kill(wrong)
    stream.arrivals.add(more[1])
    application.finish()
    results = application.results(stream)
    assert results.got == results.wanted
    mine = [key for key, partition in results.partitions.items() if partition == SLOW]
    assert sum(late[key] for key in mine) > 0
    for key in mine:
        assert results.late[key] - late[key] in chances(stream, more, key), (results.late, late)


def chances(stream: Stream, more: list[list[Event]], key: str) -> set[int]:
    """How many events of a key may have come by a later attempt, in batches where nobody waits."""
    found = {0}
    for batch, rows in enumerate(more, COMMITTED + 1):
        if any(t[1:3] == (batch, SLOW) and t.attempt for t in stream.tasks()):
            found |= {one + sum(event[1] == key for event in rows) for one in found}
    return found


def changelogs(stream: Stream, version: int) -> set[tuple[str, int]]:
    """Files of a version of the slow partition."""
    store = stream.directory / f"checkpoint/state/0/{SLOW}"
    return {(f.name, f.stat().st_mtime_ns) for f in store.glob(f"{version}[._]*changelog")}
