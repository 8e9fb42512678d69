"""What one stateful operator did in one micro-batch, read from Spark's progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StateOperatorProgress, StreamingQueryProgress

_PREFIX = "statemark"
# Spark sums custom metrics, so a maximum comes as one metric for each of the slowest partitions.
_LATENCY_MAX_PREFIX = "statemarkCommitLatencyMsMax."


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
    uncommitted_bytes : int
        Bytes that the committed transactions had staged (Kafka: ``uncommitted-bytes``).
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
    commit_count: int
    commit_rate: float | None
    commit_latency_avg_ms: float | None
    commit_latency_max_ms: int | None
    serialize_latency_ms: int
    changelog_latency_ms: int
    snapshot_latency_ms: int
    confirm_latency_ms: int
    uncommitted_bytes: int
    spills: int
    spilled_bytes: int
    prepared_bytes: int
    rollbacks: int
    rewinds: int
    reloads: int
    loads_memory: int
    loads_local: int
    loads_checkpoint: int
    replayed_changelogs: int
    load_checkpoint_bytes: int
    load_latency_ms: int
    distrusted: int
    unflushed_versions: int


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


def _row(
    progress: StreamingQueryProgress, index: int, operator: StateOperatorProgress
) -> OperatorMetrics:
    custom: Mapping[str, int] = operator.customMetrics
    commits = custom.get("statemarkCommitCount", 0)
    latency_ms = custom.get("statemarkCommitLatencyMs", 0)
    # Not batchDuration, which is 0 in progress that a Connect server sent.
    duration_ms = progress.durationMs.get("triggerExecution", progress.batchDuration)
    # Spark fills in a negative number for a partition that reported none.
    slowest = [ms for key, ms in custom.items() if key.startswith(_LATENCY_MAX_PREFIX) and ms >= 0]
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
        commit_count=commits,
        commit_rate=commits * 1000 / duration_ms if duration_ms > 0 else None,
        commit_latency_avg_ms=latency_ms / commits if commits > 0 else None,
        commit_latency_max_ms=max(slowest, default=None),
        serialize_latency_ms=custom.get("statemarkCommitSerializeLatencyMs", 0),
        changelog_latency_ms=custom.get("statemarkCommitChangelogLatencyMs", 0),
        snapshot_latency_ms=custom.get("statemarkCommitSnapshotLatencyMs", 0),
        confirm_latency_ms=custom.get("statemarkConfirmLatencyMs", 0),
        uncommitted_bytes=custom.get("statemarkUncommittedBytes", 0),
        spills=custom.get("statemarkSpillCount", 0),
        spilled_bytes=custom.get("statemarkSpilledBytes", 0),
        prepared_bytes=custom.get("statemarkPreparedBytes", 0),
        rollbacks=custom.get("statemarkRollbackCount", 0),
        rewinds=custom.get("statemarkRewindCount", 0),
        reloads=custom.get("statemarkReloadCount", 0),
        loads_memory=custom.get("statemarkLoadMemoryCount", 0),
        loads_local=custom.get("statemarkLoadLocalCount", 0),
        loads_checkpoint=custom.get("statemarkLoadCheckpointCount", 0),
        replayed_changelogs=custom.get("statemarkReplayedChangelogCount", 0),
        load_checkpoint_bytes=custom.get("statemarkLoadCheckpointBytes", 0),
        load_latency_ms=custom.get("statemarkLoadLatencyMs", 0),
        distrusted=sum(n for key, n in custom.items() if key.startswith("statemarkDistrust")),
        unflushed_versions=custom.get("statemarkUnflushedVersionCount", 0),
    )
