"""A query whose driver dies at each named phase: readers see each batch once, whole, of one run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.sinks import Job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.brokers import Brokers

    Topic = Callable[..., str]

#: In the order in which one run after another dies at them. Rows are copied after a task failed,
#: and after a decision that nobody carried out.
PHASES = (
    *("row-sent", "attempt-finished", "before-decision", "decision-sent", "decision-durable"),
    *("driver-initialized", "run-begun", "fenced", "copy-open", "copied", "copy-committed"),
    *("orders-answered", "before-commit-log"),
)


def test_driver_dies_at_each_phase(broker: Brokers, topic: Topic, tmp_path: Path) -> None:
    job = Job(tmp_path / "job", broker.bootstrap, topic(partitions=3))
    for phase in PHASES:
        job.add()
        assert job.run(phase) != 0, job.log()
        assert job.died(phase), job.log()
    assert job.run() == 0, job.log()
    verdict = job.judge()
    assert verdict.is_right, verdict
    assert verdict.rows > 0
    assert "was decided last" in job.log()


def test_same_script_with_sparks_own_sink_duplicates(
    broker: Brokers, topic: Topic, tmp_path: Path
) -> None:
    job = Job(tmp_path / "job", broker.bootstrap, topic(partitions=3))
    job.add()
    assert job.run(sink="kafka") == 0, job.log()
    verdict = job.judge()
    # The task that failed had sent rows.
    assert verdict.duplicated > 0, verdict
