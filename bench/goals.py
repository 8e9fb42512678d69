"""The goals that the benchmarks are held against, beside what was reached."""

from __future__ import annotations

import operator
from typing import Any

from tables import table

#: Measure, results, figure, ratio of it (None: Statemark's own figure), most that is wanted.
GOALS: list[tuple[str, str, str, str | None, float]] = [
    ("put 10,000 rows, tracked", "micro", "put 10,000, ns a row", "÷ rocksdb", 0.25),
    ("the same ÷ in-memory provider", "micro", "put 10,000, ns a row", "÷ hdfs", 1.0),
    (
        "put and commit 500,000 rows, untracked",
        "micro",
        "put and commit 500,000, ns a row",
        "untracked ÷ untracked",
        0.5,
    ),
    ("remove and commit", "micro", "remove and commit, ns a row", "÷ rocksdb", 0.5),
    (
        "merge 10 values and commit",
        "micro",
        "merge 10 values a key and commit, ns a value",
        "÷ rocksdb",
        0.5,
    ),
    (
        "evict by scan and commit",
        "micro",
        "evict half by scan and commit, ns a row",
        "÷ rocksdb",
        0.5,
    ),
    ("commit of 10,000 rows, p50", "micro", "commit of 10,000, ms", "÷ rocksdb", 0.7),
    ("commit of 10,000 rows, p99", "micro", "commit of 10,000, ms, p99", "÷ rocksdb", 0.7),
    (
        "abort after 1,000,000 rows, ms",
        "micro",
        "abort of 1,000,000 rows until the next get, ms",
        None,
        10.0,
    ),
    (
        "get then put, 10,000,000 keys, defaults",
        "scale",
        "get then put, ns a row, 10,000,000 keys",
        "÷ rocksdb, defaults",
        0.3,
    ),
    (
        "get then put, 10,000,000 keys, same memory",
        "scale",
        "get then put, ns a row, 10,000,000 keys",
        "÷ rocksdb, 256 MB",
        0.7,
    ),
    (
        "memory outside the heap, 10,000,000 keys, same bound",
        "scale",
        "memory outside the heap, MB, 10,000,000 keys",
        "÷ rocksdb, 256 MB",
        1.0,
    ),
    (
        "live heap, 10,000,000 keys",
        "scale",
        "live heap, MB, 10,000,000 keys",
        "÷ rocksdb, defaults",
        1.0,
    ),
]
#: The same for throughput, of which more is wanted.
NEXMARK_MEAN, NEXMARK_LEAST = 1.3, 1.0


def section(results: dict[str, dict[str, Any]]) -> str:
    """
    Render the section.

    Parameters
    ----------
    results
        By benchmark, `micro`, `scale` and `nexmark`; those that have not run may be missing.
    """
    rows = [_row(goal, results) for goal in GOALS]
    nexmark = results.get("nexmark")
    ratios = [f["ratio"]["spark-rocksdb"] for f in nexmark["figures"]] if nexmark else []
    mean = nexmark["geometric mean"]["spark-rocksdb"] if nexmark else None
    rows += [
        _judged("Nexmark, geometric mean of throughput", mean, NEXMARK_MEAN, least=True),
        _judged(
            "Nexmark, slowest query", min(ratios) if ratios else None, NEXMARK_LEAST, least=True
        ),
    ]
    header = ["Statemark ÷ Spark's provider", "goal", "reached", ""]
    return "\n".join(["## Goals", "", *table(header, rows), ""])


def _row(
    goal: tuple[str, str, str, str | None, float], results: dict[str, dict[str, Any]]
) -> list[str]:
    measure, benchmark, figure, ratio, most = goal
    found = [f for f in results.get(benchmark, {}).get("figures", []) if f["figure"] == figure]
    value = None
    if found:
        value = found[0]["ratio"].get(ratio) if ratio else found[0]["median"].get("statemark")
    return _judged(measure, value, most, least=False)


def _judged(measure: str, value: float | None, goal: float, *, least: bool) -> list[str]:
    sign, holds = ("≥", operator.ge) if least else ("≤", operator.le)
    wanted = f"{sign} {goal:g}"
    if value is None:
        return [measure, wanted, "not measured", ""]
    return [measure, wanted, f"{value:.2g}", "" if holds(value, goal) else "missed"]
