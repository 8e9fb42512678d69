"""What is odd in the metrics of an operator: the rules, each with what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from statemark import settings
from statemark.sink_metrics import since_before

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from statemark.operator_metrics import OperatorMetrics

    Rows = Sequence[OperatorMetrics]

# A commit that takes this part of its batch, or is this many times the mean, is worth a line.
_SLOW_SHARE = 0.25
_UNEVEN = 4
_FEWEST_UNEVEN = 3
# Shorter commits are uneven by chance.
_NOTICEABLE_MS = 100


@dataclass(frozen=True)
class Finding:
    """Something odd in the metrics of an operator.

    Attributes
    ----------
    what : str
        What was seen, with its numbers.
    remedy : str
        What to look at or to set.
    page : str
        The page of the documents that says more.
    """

    what: str
    remedy: str
    page: str


def runs_of(rows: Rows) -> list[list[OperatorMetrics]]:
    """Return the batches of each run of a query, from the oldest on."""
    return [list(run) for _, run in groupby(rows, key=lambda row: row.run_id)]


def findings(rows: Rows) -> list[Finding]:
    """Return what is odd in some batches of one operator.

    Parameters
    ----------
    rows : sequence of OperatorMetrics
        At least one, from the oldest on.

    Returns
    -------
    list of Finding
        What costs most comes first.
    """
    return [finding for rule in _RULES for finding in rule(rows)]


def sink_findings(rows: Rows) -> list[Finding]:
    """Return what is odd in what the Kafka sink of a query has written.

    Parameters
    ----------
    rows : sequence of OperatorMetrics
        A row for each batch, at least one, from the oldest on.

    Returns
    -------
    list of Finding
        What costs most comes first.
    """
    return [finding for rule in _SINK_RULES for finding in rule(rows)]


def parts(rows: Rows, total: float) -> list[tuple[str, float]]:
    """Return the shares of a commit's parts in `total` milliseconds, the largest first."""
    found = [
        ("serialize", sum(row.serialize_latency_ms for row in rows)),
        ("changelog", sum(row.changelog_latency_ms for row in rows)),
        ("snapshot", sum(row.snapshot_latency_ms for row in rows)),
    ]
    shares = [(what, ms / total) for what, ms in found] if total else []
    return sorted(shares, key=lambda share: -share[1])


def commit_ms(rows: Rows) -> float:
    """Return the milliseconds of all commits together."""
    return sum((row.commit_latency_avg_ms or 0) * row.commit_count for row in rows)


def _loads(rows: Rows) -> Iterable[Finding]:
    """Find the first batches of runs that loads made longer."""
    for row, *_ in runs_of(rows):
        if not row.loads_checkpoint:
            continue
        why = f"; {row.distrusted} local stores were there and not used" if row.distrusted else ""
        yield Finding(
            f"batch {row.batch_id}, the first of its run, read {row.loads_checkpoint} stores from "
            f"the checkpoint: {row.load_checkpoint_bytes / 2**20:,.1f} MiB of files and "
            f"{row.replayed_changelogs} changelogs, {row.load_latency_ms:,} ms in all{why}",
            f"set {settings.LOCAL_DIR.key} to a directory that outlives the process"
            if not row.distrusted
            else "the log says why each was not used",
            "restarts.md",
        )


def _moved(rows: Rows) -> Iterable[Finding]:
    """Find reloads after the first batch of a run."""
    later = [row for run in runs_of(rows) for row in run[1:]]
    reloads = sum(row.reloads for row in later)
    if reloads:
        batches = sum(row.reloads > 0 for row in later)
        yield Finding(
            f"{reloads} stores were loaded again in {batches} of {len(later)} later batches: "
            "partitions move, or executors were lost",
            "raise spark.locality.wait; look for lost executors in Spark's log",
            "restarts.md",
        )


def _commits(rows: Rows) -> Iterable[Finding]:
    """Find commits that take much of their batches, and those far above the mean."""
    slowest = [(row.commit_latency_max_ms or 0, row) for row in rows]
    share = sum(ms for ms, _ in slowest) / max(sum(row.batch_duration_ms for row in rows), 1)
    if share >= _SLOW_SHARE and max(ms for ms, _ in slowest) >= _NOTICEABLE_MS:
        shares = parts(rows, commit_ms(rows))
        remedy = {
            "serialize": "batches bring many keys: smaller ones, or more partitions",
            "changelog": "the file system of the checkpoint location is slow to end a file",
            "snapshot": "snapshots are uploaded inside commits: raise minDeltasForSnapshot",
        }[shares[0][0] if shares else "changelog"]
        yield Finding(f"the slowest commits take {share:.0%} of the batches", remedy, "metrics.md")
    uneven = [(ms, row) for ms, row in slowest if _is_uneven(ms, row)]
    # One alone is what a busy machine does now and then.
    if len(uneven) >= max(_FEWEST_UNEVEN, len(rows) // 10):
        worst_ms, worst = max(uneven, key=lambda pair: pair[0])
        yield Finding(
            f"in {len(uneven)} of {len(rows)} batches one commit took far longer than the mean: "
            f"{worst_ms:,} ms in batch {worst.batch_id}, where the mean is "
            f"{worst.commit_latency_avg_ms or 0:,.0f} ms",
            "keys are skewed, or one executor is slow: Spark's progress names the partition",
            "metrics.md",
        )


def _is_uneven(worst_ms: int, row: OperatorMetrics) -> bool:
    """Tell whether the slowest commit of a batch took far longer than its commits on average."""
    return worst_ms >= max(_UNEVEN * (row.commit_latency_avg_ms or 0), _NOTICEABLE_MS)


def _spills(rows: Rows) -> Iterable[Finding]:
    """Find staged writes that went to disk."""
    spills = sum(row.spills for row in rows)
    if spills:
        mib = sum(row.spilled_bytes for row in rows) / 2**20
        yield Finding(
            f"staged writes went to disk {spills} times, {mib:,.1f} MiB",
            f"raise {settings.MAX_UNCOMMITTED_BYTES.key} and the executor's heap, or have more "
            "partitions",
            "memory.md",
        )


def _repeats(rows: Rows) -> Iterable[Finding]:
    """Find tasks that failed, and batches that were computed twice."""
    rollbacks = sum(row.rollbacks for row in rows)
    if rollbacks:
        yield Finding(
            f"{rollbacks} transactions were rolled back: tasks failed or were cancelled",
            "their reason is in Spark's log",
            "failures.md",
        )
    repeated = sum(row.rewinds > 0 for row in rows)
    if repeated:
        often = 2 * repeated > len(rows)
        yield Finding(
            f"versions were computed again in {repeated} of {len(rows)} batches",
            "a foreachBatch with two actions: persist its frame"
            if often
            else "a batch or a task was repeated, or another attempt was the committed one",
            "metrics.md",
        )


def _behind(rows: Rows) -> Iterable[Finding]:
    """Find stores whose disk does not keep up."""
    confirm_ms = sum(row.confirm_latency_ms for row in rows)
    if confirm_ms > commit_ms(rows) and confirm_ms >= _NOTICEABLE_MS * len(rows):
        yield Finding(
            f"writing versions into RocksDB took {confirm_ms:,} ms, more than the commits",
            "a slow local disk: see rocksdbWriterStallLatencyMs in Spark's progress",
            "metrics.md",
        )


def _refused(rows: Rows) -> Iterable[Finding]:
    """Find rows that no broker takes."""
    refused = sum(row.sink_refused_rows or 0 for row in rows)
    if refused:
        yield Finding(
            f"{refused:,} of {sum(row.sink_rows or 0 for row in rows):,} rows can never be sent, "
            "and went to the topic of refused rows",
            "their headers there say why",
            "kafka-sink.md",
        )


def _copied(rows: Rows) -> Iterable[Finding]:
    """Find rows whose own transactions were not committed."""
    copied = sum(since_before(rows, "sink_copied_rows"))
    if copied:
        yield Finding(
            f"{copied:,} rows came to their readers by a copy: transactions were decided, and not "
            "committed",
            "executors, the driver or brokers died: see Spark's log",
            "kafka-sink.md",
        )


def _discarded(rows: Rows) -> Iterable[Finding]:
    """Find batches that had been decided before."""
    batches = sum(since_before(rows, "sink_discarded_batches"))
    if batches > len({row.run_id for row in rows}):  # a run may begin with one
        yield Finding(
            f"{batches} batches were decided before, and their rows dropped",
            "was the checkpoint set back to a copy?",
            "kafka-sink.md",
        )


def _slow_sink(rows: Rows) -> Iterable[Finding]:
    """Find decisions and commits that take much of their batches."""
    longest = max(sink_ms(row) for row in rows)
    share = sum(map(sink_ms, rows)) / max(sum(row.batch_duration_ms for row in rows), 1)
    if share >= _SLOW_SHARE and longest >= _NOTICEABLE_MS:
        yield Finding(
            f"decisions and commits of the Kafka sink take {share:.0%} of the batches",
            "the brokers are slow, or far away",
            "kafka-sink.md",
        )


def sink_ms(row: OperatorMetrics) -> int:
    """Return the milliseconds from the last row of a batch until readers see all of it."""
    return (row.sink_decision_ms or 0) + (row.sink_commit_ms or 0)


_RULES: tuple[Callable[[Rows], Iterable[Finding]], ...] = (
    _loads,
    _moved,
    _commits,
    _spills,
    _repeats,
    _behind,
)
_SINK_RULES: tuple[Callable[[Rows], Iterable[Finding]], ...] = (
    _refused,
    _discarded,
    _copied,
    _slow_sink,
)
