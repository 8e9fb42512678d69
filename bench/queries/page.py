"""The section of the page of figures on whole queries."""

from __future__ import annotations

import math
import statistics
from typing import Any

from measured import text as measured
from tables import table, wrapped

NOTES = """\
Each query has one stateful operator, the chained one two: `local[2]` with two partitions of
state, input in files of parquet, a file for each micro-batch, and a sink that throws rows away.
A run is a process of its own, with a heap of 3 GB that was not touched beforehand; contenders
take turns, and have to emit the same rows in each batch. A ratio is the median of those of the
rounds. Below 1, Statemark takes less. *Cold*
are batches 2 to 11 of a process (median of their time, mean of their processor time), *warm*
batches 20 to 27. *Tuned* is Spark's RocksDB provider with the settings of
`bench/queries/tuned.conf`, *memory* its in-memory provider with defaults. *Above the floor* is
what state costs: the processor time of a warm batch, less that of the query with its state left
out, where each micro-batch is computed by itself. Peak MB is the most that the process has had
in memory. What misses its goal is bold: [why](misses.md). [All figures](queries.md).
"""
MATRIX = """\
The same queries, measured the same way. Where a batch has few rows, the first one has filled the
state. [All figures](queries.md).
"""
#: The most of Statemark ÷ another that is wanted.
GOALS: dict[tuple[str, str], float] = {
    ("ms", "tuned"): 0.8,
    ("ms", "memory"): 1.0,
    ("CPU s", "tuned"): 0.85,
    ("peak MB", "tuned"): 1.15,
}


_RATIOS = (
    ("cold ms", "tuned"),
    ("warm ms", "tuned"),
    ("cold ms", "memory"),
    ("warm ms", "memory"),
    ("cold CPU s", "tuned"),
    ("warm CPU s", "tuned"),
    ("peak MB", "tuned"),
)


def text(results: dict[str, Any]) -> list[str]:
    """Render the table of a page: Statemark's figures ÷ those of the others, and the goals."""
    figures = [f for f in results["figures"] if "statemark" in f["median"]]
    medians = [f["median"] for f in figures]
    titles = [f["title"] for f in figures]
    took = [f"{m['statemark']['cold ms']:.0f}; {m['statemark']['warm ms']:.0f}" for m in medians]
    columns = [
        ("query", [*titles, "geometric mean", "goal"]),
        ("batch, ms: cold; warm", [*took, "", ""]),
    ]
    for what, other in _RATIOS:
        ratios = [_ratio(figure["ratio"], what, other) for figure in figures]
        if known := [ratio for ratio in ratios if ratio is not None]:
            goal = GOALS[what.removeprefix("cold ").removeprefix("warm "), other]
            cells = [_cell(ratio, goal) for ratio in ratios]
            mean = f"{statistics.geometric_mean(known):.2f}"
            columns.append((f"{what} ÷ {other}", [*cells, mean, f"{goal:.2f}"]))
    above = [_above_floor(median) for median in medians]
    if any(above):
        columns.append(("above the floor ÷ tuned", [*above, "", "0.5"]))
    header = [name for name, _ in columns]
    return table(header, [list(row) for row in zip(*(cells for _, cells in columns), strict=True)])


def _ratio(ratio: dict[str, dict[str, float]], what: str, other: str) -> float | None:
    """Return it, or nothing where the other was not measured, or not for as many batches."""
    found = ratio.get(other, {}).get(what, math.nan)
    return None if math.isnan(found) else found


def _cell(ratio: float | None, goal: float) -> str:
    if ratio is None:
        return ""
    cell = f"{ratio:.2f}"
    return f"**{cell}**" if float(cell) > goal else cell


def _above_floor(median: dict[str, dict[str, float]]) -> str:
    """Return what state costs in a warm batch, in processor time, ÷ the same of tuned."""
    if "floor" not in median or "tuned" not in median:
        return ""
    ours, tuned, floor = (median[c]["warm CPU s"] for c in ("statemark", "tuned", "floor"))
    return f"{(ours - floor) / (tuned - floor):.2f}"


def section(results: dict[str, Any]) -> str:
    """Render the section, with what was measured and how."""
    return _section("Whole queries", NOTES, results)


def matrix(results: dict[str, Any]) -> str:
    """Render the section of other sizes, keys and writes."""
    return _section("Whole queries: other sizes, keys and writes", MATRIX, results)


def _section(title: str, notes: str, results: dict[str, Any]) -> str:
    lines = [f"## {title}", "", *text(results), "", *_origin(results), *wrapped(notes), ""]
    return "\n".join(lines)


def _origin(results: dict[str, Any]) -> list[str]:
    environment = ", ".join(f"{k} {v}" for k, v in sorted(results["environment"].items()))
    return wrapped(
        f"`{results['command']}` in {results['seconds']} s, rounds: {results['rounds']},"
        f" {measured(results)}; {environment}."
    )


#: Columns of the figures behind the ratios, and the figure of each.
_COLUMNS = {
    "cold, ms": "cold ms",
    "cold, p99": "cold p99 ms",
    "warm, ms": "warm ms",
    "warm, p99": "warm p99 ms",
    "commit, warm, ms": "commit ms",
    "GC, s": "GC s",
    "JIT, s": "JIT s",
    "peak, MB": "peak MB",
    "live heap, MB": "heap MB",
}
DETAILS = """\
Figures behind those of [Whole queries](README.md#whole-queries): medians of the rounds, with the
least and the most in brackets where there were several. GC and JIT are of the whole run, as the
virtual machine tells them; the live heap is what is left behind a collection at its end. Of ten
batches or eight the p99 is the slowest.
"""


def details(parts: dict[str, dict[str, Any]]) -> str:
    """Render a page of all figures, by contender, from results by title."""
    lines = ["# Whole queries: all figures", "", *wrapped(DETAILS), ""]
    for title, results in parts.items():
        cpu = "CPU of a million rows, warm, s"
        header = ["query", "with", "rows a batch", "keys at the end", *_COLUMNS, cpu]
        rows = [
            [
                figure["title"],
                contender,
                f"{figure['rows']:,}",
                f"{figure['state']:,}",
                *(_between(figure, contender, what, 1) for what in _COLUMNS.values()),
                _between(figure, contender, "warm CPU s", 1e6 / figure["rows"]),
            ]
            for figure in results["figures"]
            for contender in figure["median"]
        ]
        lines += [f"## {title}", "", *table(header, rows), "", *_origin(results), ""]
    return "\n".join(lines)


def _between(figure: dict[str, Any], contender: str, what: str, scale: float) -> str:
    middle = figure["median"][contender][what] * scale
    if math.isnan(middle):
        return ""
    least, most = (value * scale for value in figure["range"][contender][what])
    digits = 0 if most >= 100 else 1 if most >= 10 else 2
    texts = [f"{value:,.{digits}f}" for value in (middle, least, most)]
    return texts[0] if texts[1] == texts[2] else f"{texts[0]} ({texts[1]} to {texts[2]})"
