"""What one stateful operator did in one micro-batch, read from Spark's progress."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StateOperatorProgress, StreamingQueryProgress

_PREFIX = "statemark"
_METRIC = "metric"
_IS_SUM = "is_sum"


def _sum(metric: str) -> Mapping[str, object]:
    """Say that a column is the sum of the metrics of a name, which may be a pattern."""
    return {_METRIC: metric, _IS_SUM: True}


def _other(metric: str) -> Mapping[str, object]:
    """Say that a column is made of a metric in another way, which `_row` knows."""
    return {_METRIC: metric, _IS_SUM: False}


@dataclass(frozen=True, kw_only=True)
class OperatorMetrics:
    """What one stateful operator did in one micro-batch, summed over its partitions.

    Attributes
    ----------
    query_id, run_id : str
        The query, the same after restarts, and this run of it.
    name : str or None
        The query's name.
    batch_id : int
        The micro-batch.
    timestamp : datetime.datetime
        Start of the micro-batch, in UTC.
    operator : str
        Spark's name for the operator, such as ``stateStoreSave``.
    operator_id : int
        Position among the query's stateful operators, in the order of Spark's progress.
    batch_duration_ms : int
        Duration of the whole micro-batch.
    rows_total, rows_updated, rows_removed : int
        Rows in state after the micro-batch, and how many of them it changed and dropped.
    memory_used_bytes : int
        Memory that the stores report as used.
    commit_count : int
        Transactions committed.
    commit_rate : float or None
        Commits for each second of the micro-batch (Kafka: ``commit-rate``); None if it took no
        measurable time.
    commit_latency_avg_ms : float or None
        Mean duration of a commit (Kafka: ``commit-latency-avg``); None without commits.
    commit_latency_max_ms : int or None
        Duration of the slowest commit (Kafka: ``commit-latency-max``); None if not reported.
    serialize_latency_ms, changelog_latency_ms, snapshot_latency_ms : int
        Total time of the parts of these commits: to sort, count and serialize what was staged;
        until the changelogs are durable; to upload snapshots, where commits do.
    confirm_latency_ms : int
        Total time in which commits were confirmed.
    staged_bytes : int
        Bytes of keys and values that the committed transactions had written (Kafka:
        ``uncommitted-bytes``).
    remembered_bytes : int
        Bytes of keys that they had read, not written, and remembered to count rows.
    spills : int
        Times that staged writes went to disk, as ``maxUncommittedBytes`` asked for.
    spilled_bytes : int
        Bytes of staged writes that went to disk.
    prepared_bytes : int
        Bytes of versions that are prepared and not yet confirmed.
    rollbacks : int
        Transactions rolled back since the stores' previous commits.
    rewinds : int
        Prepared versions dropped because an older version was asked for again.
    reloads : int
        Loads of a store that read the checkpoint location.
    loads_memory : int
        Loads that found the store open.
    loads_local : int
        Loads served from what an earlier process or run left on local disk.
    loads_checkpoint : int
        Loads served from the checkpoint location.
    replayed_changelogs : int
        Changelogs replayed by loads.
    load_checkpoint_bytes : int
        Bytes that loads read from the checkpoint location.
    load_latency_ms : int
        Total time of loads.
    distrusted : int
        Local directories that were there and not used; the log says why.
    unflushed_versions : int
        Confirmed versions that a crash would have to replay, over all stores.
    """

    query_id: str
    run_id: str
    name: str | None
    batch_id: int
    timestamp: datetime
    operator: str
    operator_id: int
    batch_duration_ms: int
    rows_total: int
    rows_updated: int
    rows_removed: int
    memory_used_bytes: int
    commit_count: int = field(metadata=_sum("statemarkCommitCount"))
    commit_rate: float | None
    commit_latency_avg_ms: float | None = field(metadata=_other("statemarkCommitLatencyMs"))
    commit_latency_max_ms: int | None = field(metadata=_other("statemarkCommitLatencyMsMax"))
    serialize_latency_ms: int = field(metadata=_sum("statemarkCommitSerializeLatencyMs"))
    changelog_latency_ms: int = field(metadata=_sum("statemarkCommitChangelogLatencyMs"))
    snapshot_latency_ms: int = field(metadata=_sum("statemarkCommitSnapshotLatencyMs"))
    confirm_latency_ms: int = field(metadata=_sum("statemarkConfirmLatencyMs"))
    staged_bytes: int = field(metadata=_sum("statemarkStagedBytes"))
    remembered_bytes: int = field(metadata=_sum("statemarkRememberedBytes"))
    spills: int = field(metadata=_sum("statemarkSpillCount"))
    spilled_bytes: int = field(metadata=_sum("statemarkSpilledBytes"))
    prepared_bytes: int = field(metadata=_sum("statemarkPreparedBytes"))
    rollbacks: int = field(metadata=_sum("statemarkRollbackCount"))
    rewinds: int = field(metadata=_sum("statemarkRewindCount"))
    reloads: int = field(metadata=_sum("statemarkReloadCount"))
    loads_memory: int = field(metadata=_sum("statemarkLoadMemoryCount"))
    loads_local: int = field(metadata=_sum("statemarkLoadLocalCount"))
    loads_checkpoint: int = field(metadata=_sum("statemarkLoadCheckpointCount"))
    replayed_changelogs: int = field(metadata=_sum("statemarkReplayedChangelogCount"))
    load_checkpoint_bytes: int = field(metadata=_sum("statemarkLoadCheckpointBytes"))
    load_latency_ms: int = field(metadata=_sum("statemarkLoadLatencyMs"))
    distrusted: int = field(metadata=_sum("statemarkDistrust*"))
    unflushed_versions: int = field(metadata=_sum("statemarkUnflushedVersionCount"))


def read_progress(progress: StreamingQueryProgress) -> list[OperatorMetrics]:
    """Return the metrics of each operator that Statemark keeps the state of.

    Parameters
    ----------
    progress : StreamingQueryProgress
        Spark's progress of one micro-batch.

    Returns
    -------
    list of OperatorMetrics
        One for each such operator; empty on another state store provider.
    """
    return [
        _row(progress, index, operator)
        for index, operator in enumerate(progress.stateOperators)
        if any(name.startswith(_PREFIX) for name in operator.customMetrics)
    ]


def by_operator(rows: Iterable[OperatorMetrics]) -> list[list[OperatorMetrics]]:
    """Return the rows of each operator of one query, in the order that they had.

    Parameters
    ----------
    rows : iterable of OperatorMetrics
        Those of the query.

    Returns
    -------
    list of list of OperatorMetrics
        By the number of the operator.
    """
    ordered = sorted(rows, key=lambda row: row.operator_id)
    return [list(found) for _, found in groupby(ordered, key=lambda row: row.operator_id)]


def query_name(rows: Sequence[OperatorMetrics]) -> str | None:
    """Return the last name that a query had.

    Parameters
    ----------
    rows : sequence of OperatorMetrics
        Those of the query, from the oldest on.

    Returns
    -------
    str or None
        None where it never had one.
    """
    return next((row.name for row in reversed(rows) if row.name), None)


def metric_columns() -> dict[str, str]:
    """Return the metric, or the pattern of metrics, of each column that is made of some.

    Returns
    -------
    dict of str to str
        By name of the column.
    """
    return {c.name: c.metadata[_METRIC] for c in fields(OperatorMetrics) if c.metadata}


def _row(
    progress: StreamingQueryProgress, index: int, operator: StateOperatorProgress
) -> OperatorMetrics:
    custom: Mapping[str, int] = operator.customMetrics
    sums: dict[str, int] = {
        column.name: sum(n for name, n in custom.items() if fnmatchcase(name, metric))
        for column in fields(OperatorMetrics)
        if column.metadata.get(_IS_SUM)
        for metric in (column.metadata[_METRIC],)
    }
    commits = sums["commit_count"]
    metrics = metric_columns()
    latency_ms = custom.get(metrics["commit_latency_avg_ms"], 0)
    # Not batchDuration, which is 0 in progress that a Connect server sent.
    duration_ms = progress.durationMs.get("triggerExecution", progress.batchDuration)
    # Spark sums custom metrics, so a maximum comes as one metric for each of the slowest
    # partitions. It fills in a negative number for a partition that reported none.
    largest = metrics["commit_latency_max_ms"] + "."
    slowest = [ms for name, ms in custom.items() if name.startswith(largest) and ms >= 0]
    return OperatorMetrics(
        query_id=str(progress.id),
        run_id=str(progress.runId),
        name=progress.name,
        batch_id=progress.batchId,
        timestamp=datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00")),
        operator=operator.operatorName,
        operator_id=index,
        batch_duration_ms=duration_ms,
        rows_total=operator.numRowsTotal,
        rows_updated=operator.numRowsUpdated,
        rows_removed=operator.numRowsRemoved,
        memory_used_bytes=operator.memoryUsedBytes,
        commit_rate=commits * 1000 / duration_ms if duration_ms > 0 else None,
        commit_latency_avg_ms=latency_ms / commits if commits > 0 else None,
        commit_latency_max_ms=max(slowest, default=None),
        **sums,
    )
