"""What one stateful operator did in one micro-batch, read from Spark's progress, and its sink."""

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
_OF_SINK = "of_sink"
#: The place of a row that is of a sink alone.
_NO_OPERATOR = -1


def _sum(metric: str) -> Mapping[str, object]:
    """Say that a column is the sum of the metrics of a name, which may be a pattern."""
    return {_METRIC: metric, _IS_SUM: True}


def _other(metric: str) -> Mapping[str, object]:
    """Say that a column is made of a metric in another way, which `_row` knows."""
    return {_METRIC: metric, _IS_SUM: False}


def _of_sink(metric: str) -> Mapping[str, object]:
    """Say that a column is a metric of the Kafka sink."""
    return {_OF_SINK: metric}


@dataclass(frozen=True, kw_only=True)
class OperatorMetrics:
    """What one stateful operator did in one micro-batch, summed over its partitions.

    A query that writes with format ``statemark-kafka`` and keeps no state in Statemark has one row
    for each micro-batch, of its sink alone.

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
    operator : str or None
        Spark's name for the operator, such as ``stateStoreSave``; None in a row of a sink alone.
    operator_id : int
        Position among the query's stateful operators, in the order of Spark's progress; -1 in a
        row of a sink alone.
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
        Bytes of keys and values that the committed transactions had written (KIP-892:
        ``approximateNumUncommittedBytes``).
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
    sink_rows, sink_refused_rows : int or None
        Rows of the micro-batch that the Kafka sink decided on, and how many of them went to the
        topic of refused rows; None, as all of these, where the query has another sink.
    sink_transactions : int or None
        Kafka transactions that hold them.
    sink_decision_ms, sink_commit_ms : int or None
        Time until the decision was durable, and from then on until readers could see all rows.
    sink_copied_rows, sink_discarded_batches, sink_open_transactions : int or None
        Of the run so far: rows that came to readers by a copy, micro-batches that had been decided
        before, and open transactions of earlier runs that were ended.
    """

    query_id: str
    run_id: str
    name: str | None
    batch_id: int
    timestamp: datetime
    operator: str | None
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
    sink_rows: int | None = field(default=None, metadata=_of_sink("rows"))
    sink_refused_rows: int | None = field(default=None, metadata=_of_sink("refusedRows"))
    sink_transactions: int | None = field(default=None, metadata=_of_sink("transactions"))
    sink_decision_ms: int | None = field(default=None, metadata=_of_sink("decisionMs"))
    sink_commit_ms: int | None = field(default=None, metadata=_of_sink("commitMs"))
    sink_copied_rows: int | None = field(default=None, metadata=_of_sink("copiedRows"))
    sink_discarded_batches: int | None = field(default=None, metadata=_of_sink("discardedBatches"))
    sink_open_transactions: int | None = field(
        default=None, metadata=_of_sink("openTransactionsFound")
    )


def read_progress(progress: StreamingQueryProgress) -> list[OperatorMetrics]:
    """Return the metrics of each operator that Statemark keeps the state of.

    Parameters
    ----------
    progress : StreamingQueryProgress
        Spark's progress of one micro-batch.

    Returns
    -------
    list of OperatorMetrics
        One for each such operator; one of the sink where there is none, and it is Statemark's;
        else empty.
    """
    rows = [
        _row(progress, index, operator)
        for index, operator in enumerate(progress.stateOperators)
        if any(name.startswith(_PREFIX) for name in operator.customMetrics)
    ]
    return rows or ([_row(progress, _NO_OPERATOR, None)] if _sink_metrics(progress) else [])


def by_operator(rows: Iterable[OperatorMetrics]) -> list[list[OperatorMetrics]]:
    """Return the rows of each operator of one query, in the order that they had.

    Parameters
    ----------
    rows : iterable of OperatorMetrics
        Those of the query.

    Returns
    -------
    list of list of OperatorMetrics
        By the number of the operator; rows of a sink alone are in none.
    """
    found = (row for row in rows if row.operator is not None)
    ordered = sorted(found, key=lambda row: row.operator_id)
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
    return {c.name: c.metadata[_METRIC] for c in fields(OperatorMetrics) if _METRIC in c.metadata}


def sink_columns() -> dict[str, str]:
    """Return the metric of the Kafka sink for each column that is one.

    Returns
    -------
    dict of str to str
        By name of the column.
    """
    return {c.name: c.metadata[_OF_SINK] for c in fields(OperatorMetrics) if _OF_SINK in c.metadata}


def _sink_metrics(progress: StreamingQueryProgress) -> dict[str, int]:
    """Return what Statemark's Kafka sink says of a batch, by column; empty for another sink."""
    told: Mapping[str, str] = progress.sink.metrics or {}
    wanted = sink_columns()
    if not all(metric in told for metric in wanted.values()):
        return {}
    return {column: int(told[metric]) for column, metric in wanted.items()}


def _row(
    progress: StreamingQueryProgress, index: int, operator: StateOperatorProgress | None
) -> OperatorMetrics:
    custom: Mapping[str, int] = operator.customMetrics if operator else {}
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
        operator=operator.operatorName if operator else None,
        operator_id=index,
        batch_duration_ms=duration_ms,
        rows_total=operator.numRowsTotal if operator else 0,
        rows_updated=operator.numRowsUpdated if operator else 0,
        rows_removed=operator.numRowsRemoved if operator else 0,
        memory_used_bytes=operator.memoryUsedBytes if operator else 0,
        commit_rate=commits * 1000 / duration_ms if duration_ms > 0 else None,
        commit_latency_avg_ms=latency_ms / commits if commits > 0 else None,
        commit_latency_max_ms=max(slowest, default=None),
        **sums,
        **_sink_metrics(progress),
    )
