"""The injected task failure, and what its retry read from the checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

MIN_ROWS = 1000
_TIMEOUT_MS = 60_000


def arm(spark: SparkSession, checkpoint: Path, *, operator: int = 0, batch: int = -1) -> None:
    """Fail a task of an operator once; `fail_once()` must stand above it in the query."""
    any_partition = -1
    state = f"{checkpoint}/state/{operator}"
    _fail_once(spark).arm(state, MIN_ROWS, batch, any_partition, _TIMEOUT_MS)


def fired(spark: SparkSession) -> Any:
    """Return the report of the failure; fail the test unless it happened as asked."""
    report = _fail_once(spark).report()
    assert report.fired(), report.problem() or "the armed fault was never reached"
    assert report.rows() >= MIN_ROWS
    assert report.committedPartition() != report.partition()
    return report


def opened_by_retry(spark: SparkSession) -> list[str]:
    """Files that were opened from the failure to the next commit of the failed partition."""
    return list(_fail_once(spark).recovery().opened())


def register(spark: SparkSession) -> None:
    """Make the SQL function ``fail_once()`` known to a session."""
    _fail_once(spark).register(spark._jsparkSession, "fail_once")


def disarm(spark: SparkSession) -> None:
    """Take a fault back that has not fired."""
    _fail_once(spark).disarm()


def _fail_once(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.statemark.testkit.FailOnce
