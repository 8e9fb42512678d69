"""The number of a batch's tasks is the query's affair: another one when it runs again, or many."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from support.modes import IS_WHOLE
from support.session import IS_BEFORE_42
from support.sinks import Job, on_executors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession
    from support.brokers import Brokers
    from support.cluster import Gates

    Topic = Callable[..., str]

SHUFFLE = "spark.sql.shuffle.partitions"
COALESCE = "spark.sql.adaptive.coalescePartitions.enabled"
#: By what one run differs from the next: settings, and what is asked of the query.
Run = tuple[dict[str, str], dict[str, Any]]

#: Many tasks in a heap that is small: rows of a batch, bytes of a row, batches.
MANY = 200 if IS_WHOLE else 100
ROWS, ROW_BYTES, BATCHES = (10_000, 4_000, 3) if IS_WHOLE else (1_000, 3_000, 2)


def tasks(gates: Gates, batch: int) -> Mapping[int, set[int]]:
    """Return the tasks that have written a batch, by process."""
    found: Mapping[int, set[int]] = defaultdict(set)
    for task in gates.tasks():
        if (task.gate, task.batch) == ("out", batch):
            found[task.pid].add(task.partition)
    return found


@pytest.mark.parametrize(
    ("first", "second", "are_pinned"),
    [
        pytest.param(
            ({}, {"tasks": 5}),
            ({}, {"tasks": 3}),
            False,
            id="as-the-query-says",
            marks=pytest.mark.skipif(not IS_WHOLE, reason="the next test has it, half committed"),
        ),
        pytest.param(
            ({SHUFFLE: "5", COALESCE: "false"}, {"tasks": None}),
            ({SHUFFLE: "3", COALESCE: "true"}, {"tasks": None}),
            False,
            id="as-AQE-finds",
            marks=pytest.mark.skipif(IS_BEFORE_42, reason="newer than that line"),
        ),
        # Spark takes the number from the checkpoint, as state is kept by it.
        pytest.param(
            ({SHUFFLE: "5"}, {"counts": True}), ({SHUFFLE: "3"}, {"counts": True}), True, id="state"
        ),
    ],
)
def test_another_number_of_tasks_where_a_batch_is_decided(
    spark: SparkSession,
    broker: Brokers,
    topic: Topic,
    tmp_path: Path,
    *,
    first: Run,
    second: Run,
    are_pinned: bool,
) -> None:
    """The first run dies as its rows are copied; they are what readers see."""
    job = Job(tmp_path / "job", broker.bootstrap, topic(partitions=3))
    before, after, _ = run_both(job, spark, "copied", first, second, fails=True)
    verdict = job.judge()
    assert verdict.is_right, verdict
    assert verdict.rows > 0
    assert (before == after) == are_pinned, (before, after)


def test_another_number_of_tasks_where_a_batch_is_half_committed(
    spark: SparkSession, broker: Brokers, topic: Topic, tmp_path: Path
) -> None:
    """
    One executor has committed as the other dies, and then the driver.

    The token that the dead one has sent does not let the next run wait for its timeout.
    """
    directory = tmp_path / "job"
    conf = {
        **on_executors(directory / "probe"),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    }
    job = Job(directory, broker.bootstrap, topic(partitions=3), **conf)
    (job.probe / "die-token-sent").write_text("1")
    first, second = ({}, {"tasks": 5}), ({}, {"tasks": 3})
    *_, metrics = run_both(job, spark, "orders-answered", first, second, fails=False)
    assert job.died("token-sent"), job.log()
    verdict = job.judge()
    assert verdict.is_right, verdict
    assert metrics["openTransactionsFound"] == "1"
    # The first run writes each row twice.
    assert 0 < int(metrics["copiedRows"]) < 2 * job.rows


def run_both(
    job: Job, spark: SparkSession, phase: str, first: Run, second: Run, *, fails: bool
) -> tuple[set[int], set[int], dict[str, str]]:
    """
    Die at a phase of the first batch, and run again in a session.

    Returns
    -------
    tuple
        Tasks of that batch in each run, and what the sink has counted in the second.
    """
    gates = job.with_gates()
    job.add()
    job.conf.update(first[0])
    job.query.update(first[1])
    assert job.run(phase, fails=fails) != 0, job.log()
    assert job.died(phase), job.log()
    before = tasks(gates, 0)
    job.add()
    job.query.update(second[1])
    kept = {name: spark.conf.get(name, None) for name in second[0]}
    try:
        for name, value in second[0].items():
            spark.conf.set(name, value)
        metrics = job.run_in(spark, fails=False)
    finally:
        for name, old in kept.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)
    after = tasks(gates, 0)
    found = [
        {task for pid in pids for task in after[pid]}
        for pids in (before.keys(), after.keys() - before.keys())
    ]
    return found[0], found[1], metrics


def test_many_tasks_on_executors_with_little_memory(
    broker: Brokers, topic: Topic, tmp_path: Path
) -> None:
    """Each has one transaction a batch, and the same process has written them all."""
    directory = tmp_path / "job"
    conf = {
        **on_executors(directory / "probe", memory="512m"),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        SHUFFLE: str(MANY),
    }
    job = Job(directory, broker.bootstrap, topic(partitions=8), **conf)
    job.rows = ROWS
    job.query = {"tasks": MANY, "key_bytes": ROW_BYTES}
    gates = job.with_gates()
    for _ in range(BATCHES):
        job.add()
    assert job.run(fails=False) == 0, job.log()
    verdict = job.judge()
    assert verdict.is_right, verdict
    assert len({part.partition for part in job.tries()}) == MANY
    assert len({task.pid for task in gates.tasks()}) == 2, job.log()
    metrics = [progress["sink"]["metrics"] for progress in job.progress()]
    assert [one["transactions"] for one in metrics if one["rows"] != "0"] == ["2"] * BATCHES
