"""The section of the page of figures on whole queries."""

from __future__ import annotations

import statistics
from typing import Any

from measured import text as measured
from tables import table, wrapped

NOTES = """\
Each query has one stateful operator, the chained one two: `local[2]` with two partitions of
state, input in files of parquet, a file for each micro-batch, and a sink that throws rows away.
A run is a process of its own, with a heap of 3 GB that was not touched beforehand; contenders
take turns, and have to emit the same rows in each batch. Below 1, Statemark takes less. *Cold*
are batches 2 to 11 of a process (median of their time, mean of their processor time), *warm*
batches 20 to 27. *Tuned* is Spark's RocksDB provider with the settings of
`bench/queries/tuned.conf`, *memory* its in-memory provider with defaults. *Above the floor* is
what state costs: the processor time of a warm batch, less that of the query with its state left
out, where each micro-batch is computed by itself. Peak MB is the most that the process has had
in memory. What misses its goal is bold.
"""
#: The most of Statemark ÷ another that is wanted.
GOALS: dict[tuple[str, str], float] = {
    ("ms", "tuned"): 0.8,
    ("ms", "memory"): 1.0,
    ("CPU s", "tuned"): 0.85,
    ("peak MB", "tuned"): 1.15,
}


def text(results: dict[str, Any]) -> list[str]:
    """Render the table of a page: Statemark's figures ÷ those of the others, and the goals."""
    ratios = [
        ("cold ms", "tuned"),
        ("warm ms", "tuned"),
        ("cold ms", "memory"),
        ("warm ms", "memory"),
        ("cold CPU s", "tuned"),
        ("warm CPU s", "tuned"),
        ("peak MB", "tuned"),
    ]
    rows = []
    for figure in results["figures"]:
        median = figure["median"]
        if "statemark" not in median:
            continue
        ours = median["statemark"]
        cells = [
            f"{ours[what] / median[other][what]:.2f}" if other in median else ""
            for what, other in ratios
        ]
        above = _above_floor(median)
        rows.append(
            [figure["title"], f"{ours['cold ms']:.0f}; {ours['warm ms']:.0f}", *cells, above]
        )
    means = [
        f"{statistics.geometric_mean(map(float, filter(None, column))):.2f}" if any(column) else ""
        for column in zip(*(row[2:-1] for row in rows), strict=True)
    ]
    goals = [_goal(what, other) for what, other in ratios]
    for row in rows:
        row[2:-1] = [
            f"**{cell}**" if cell and float(cell) > float(goal) else cell
            for cell, goal in zip(row[2:-1], goals, strict=True)
        ]
    header = [
        "query",
        "batch, ms: cold; warm",
        *(f"{what} ÷ {other}" for what, other in ratios),
        "above the floor ÷ tuned",
    ]
    return table(header, [*rows, ["geometric mean", "", *means, ""], ["goal", "", *goals, "0.5"]])


def _goal(what: str, other: str) -> str:
    return f"{GOALS[what.removeprefix('cold ').removeprefix('warm '), other]:.2f}"


def _above_floor(median: dict[str, dict[str, float]]) -> str:
    """Return what state costs in a warm batch, in processor time, ÷ the same of tuned."""
    if "floor" not in median or "tuned" not in median:
        return ""
    ours, tuned, floor = (median[c]["warm CPU s"] for c in ("statemark", "tuned", "floor"))
    return f"{(ours - floor) / (tuned - floor):.2f}"


def section(results: dict[str, Any]) -> str:
    """Render the section, with what was measured and how."""
    environment = ", ".join(f"{k} {v}" for k, v in sorted(results["environment"].items()))
    lines = [
        "## Whole queries",
        "",
        *text(results),
        "",
        *wrapped(
            f"`{results['command']}` in {results['seconds']} s, rounds: {results['rounds']},"
            f" {measured(results)}; {environment}."
        ),
        *wrapped(NOTES),
        "",
    ]
    return "\n".join(lines)
