"""A page of text on what queries did: what is slow, what is odd, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from statemark import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from statemark.operator_metrics import OperatorMetrics

    Rows = Sequence[OperatorMetrics]

# A commit that takes this part of its batch, or is this many times the mean, is worth a line.
_SLOW_SHARE = 0.25
_UNEVEN = 4
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


def text(rows: Iterable[OperatorMetrics]) -> str:
    """Return a page of text for what a listener has kept.

    Parameters
    ----------
    rows : iterable of OperatorMetrics
        Of one query after the other, each from its oldest batch on.

    Returns
    -------
    str
        A paragraph for each operator of each query: its batches and commits, then what is odd.
    """
    found = []
    for query, of_query in groupby(rows, key=lambda row: row.query_id):
        kept = list(of_query)
        name = next((row.name for row in reversed(kept) if row.name), None)
        found.append(f"query {name} ({query})" if name else f"query {query}")
        by_operator = sorted(kept, key=lambda row: row.operator_id)
        for _, of_operator in groupby(by_operator, key=lambda row: row.operator_id):
            found += _paragraph(list(of_operator))
    return "\n".join(found or ["No batch of a query on Statemark was reported yet."])


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


def _paragraph(rows: Rows) -> list[str]:
    first, last = rows[0], rows[-1]
    batch_ms = [row.batch_duration_ms for row in rows]
    lines = [
        f"  operator {last.operator_id}, {last.operator}: batches {first.batch_id} to "
        f"{last.batch_id}, {last.rows_total:,} rows in state, "
        f"{last.memory_used_bytes / 2**20:,.1f} MiB of memory",
        f"    batch: {_mean(batch_ms):,.0f} ms in the mean, {max(batch_ms):,} ms the slowest",
    ]
    commits = sum(row.commit_count for row in rows)
    if commits:
        total = _commit_ms(rows)
        parts = ", ".join(
            f"{what} {share:.0%}" for what, share in _parts(rows, total) if share >= 0.01
        )
        line = f"    commit of a store: {total / commits:,.1f} ms in the mean"
        lines.append(line + (f" ({parts})" if parts else ""))
    lines += _opened(rows)
    odd = findings(rows)
    for finding in odd:
        lines += [f"    ! {finding.what}", f"      {finding.remedy} (docs/{finding.page})"]
    return lines if odd else [*lines, "    nothing odd"]


def _opened(rows: Rows) -> list[str]:
    found = [
        ("from the local directory", sum(row.loads_local for row in rows)),
        ("from the checkpoint", sum(row.loads_checkpoint for row in rows)),
    ]
    told = ", ".join(f"{count:,} {where}" for where, count in found if count)
    return [f"    stores loaded: {told}"] if told else []


def _parts(rows: Rows, total: float) -> list[tuple[str, float]]:
    found = [
        ("serialize", sum(row.serialize_latency_ms for row in rows)),
        ("changelog", sum(row.changelog_latency_ms for row in rows)),
        ("snapshot", sum(row.snapshot_latency_ms for row in rows)),
    ]
    parts = [(what, ms / total) for what, ms in found] if total else []
    return sorted(parts, key=lambda part: -part[1])


def _commit_ms(rows: Rows) -> float:
    return sum((row.commit_latency_avg_ms or 0) * row.commit_count for row in rows)


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)


def _loads(rows: Rows) -> Iterable[Finding]:
    """Find the first batches of runs that loads made longer."""
    for _, of_run in groupby(rows, key=lambda row: row.run_id):
        row = next(of_run)
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
    later = [row for _, run in groupby(rows, key=lambda row: row.run_id) for row in list(run)[1:]]
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
    worst_ms, worst = max(slowest, key=lambda pair: pair[0])
    if share >= _SLOW_SHARE and worst_ms >= _NOTICEABLE_MS:
        parts = _parts(rows, _commit_ms(rows))
        remedy = {
            "serialize": "batches bring many keys: smaller ones, or more partitions",
            "changelog": "the file system of the checkpoint location is slow to end a file",
            "snapshot": "snapshots are uploaded inside commits: raise minDeltasForSnapshot",
        }[parts[0][0] if parts else "changelog"]
        yield Finding(f"the slowest commits take {share:.0%} of the batches", remedy, "metrics.md")
    mean = worst.commit_latency_avg_ms or 0
    if worst_ms >= max(_UNEVEN * mean, _NOTICEABLE_MS):
        yield Finding(
            f"batch {worst.batch_id}: one commit took {worst_ms:,} ms where the mean is "
            f"{mean:,.0f} ms",
            "keys are skewed, or one executor is slow: Spark's progress names the partition",
            "metrics.md",
        )


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
    commit_ms = _commit_ms(rows)
    if confirm_ms > commit_ms and confirm_ms >= _NOTICEABLE_MS * len(rows):
        yield Finding(
            f"writing versions into RocksDB took {confirm_ms:,} ms, more than the commits",
            "a slow local disk: see rocksdbWriterStallLatencyMs in Spark's progress",
            "metrics.md",
        )


_RULES: tuple[Callable[[Rows], Iterable[Finding]], ...] = (
    _loads,
    _moved,
    _commits,
    _spills,
    _repeats,
    _behind,
)
