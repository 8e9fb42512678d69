"""The injected failure, and what the retry of the failed task did until it committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Rows, and so at least as many staged writes, that a task has behind it when it is failed.
MIN_ROWS = 5000
_TIMEOUT_MS = 60_000


@dataclass(frozen=True)
class Recovery:
    """
    One failure and the next commit of the failed partition.

    Attributes
    ----------
    batch, partition
        Where the task was failed.
    rows
        Rows that the failed attempt had passed; each was staged before.
    committed_partition
        Another partition that had committed the same batch by then.
    to_commit_ms
        Time from the failure to that commit, milliseconds.
    opened
        Files opened meanwhile below the operator's state directory, in order.
    opened_elsewhere
        Number of files opened meanwhile in the rest of the checkpoint.
    """

    batch: int
    partition: int
    rows: int
    committed_partition: int
    to_commit_ms: float
    opened: list[str]
    opened_elsewhere: int


def register(spark: SparkSession) -> None:
    """Make the SQL function ``fail_once()`` known to a session."""
    _fail_once(spark).register(spark._jsparkSession, "fail_once")


def arm(spark: SparkSession, state: str, *, partition: int) -> None:
    """
    Fail one task of the next batch that has enough rows.

    Parameters
    ----------
    spark
        The session of the query.
    state
        The operator's directory in the checkpoint.
    partition
        The partition whose task is failed.
    """
    any_batch = -1
    _fail_once(spark).arm(state, MIN_ROWS, any_batch, partition, _TIMEOUT_MS)


def recovery(spark: SparkSession) -> Recovery:
    """
    Read what happened after the failure.

    Raises
    ------
    py4j.protocol.Py4JJavaError
        If the fault did not fire, or the partition has not committed since; the message says why.
    """
    after, failure = _fail_once(spark).recovery(), _fail_once(spark).report()
    return Recovery(
        batch=failure.batchId(),
        partition=failure.partition(),
        rows=failure.rows(),
        committed_partition=failure.committedPartition(),
        to_commit_ms=after.toCommitMs(),
        opened=list(after.opened()),
        opened_elsewhere=after.openedElsewhere(),
    )


# The gateway to Java has no types.
def _fail_once(spark: SparkSession) -> Any:  # noqa: ANN401
    jvm: Any = spark._jvm
    return jvm.statemark.testkit.FailOnce
