"""The figure of `statemark.plots`: panels over the batches of one query. Imports matplotlib."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rcParams
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from statemark.operator_metrics import by_operator, query_name
from statemark.sink_metrics import of_sink, since_before

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes

    from statemark.operator_metrics import OperatorMetrics

    Rows = Sequence[OperatorMetrics]

_MIB = 2**20
#: Title of each panel, with the unit, and the value of an operator. The first has batches too.
_PANELS: tuple[tuple[str, Callable[[OperatorMetrics], float | None]], ...] = (
    ("whole batch, and slowest commit (ms)", lambda row: row.commit_latency_max_ms),
    ("rows in state", lambda row: row.rows_total),
    ("memory (MiB)", lambda row: row.memory_used_bytes / _MIB),
    ("staged when committed (MiB)", lambda row: row.staged_bytes / _MIB),
)
#: The name of each lane, and the count for which a batch has a stroke there.
_EVENTS: tuple[tuple[str, Callable[[OperatorMetrics], int]], ...] = (
    ("stores loaded from\nthe checkpoint", lambda row: row.loads_checkpoint),
    ("stores loaded from\nlocal disk", lambda row: row.loads_local),
    ("transactions\nrolled back", lambda row: row.rollbacks),
    ("staged writes\nspilled to disk", lambda row: row.spills),
)
#: The panels of the Kafka sink, and the lines of each: its name, and its value by batch.
_SINK_PANELS: tuple[tuple[str, tuple[tuple[str, Callable[[Rows], list[int]]], ...]], ...] = (
    (
        "Kafka sink: time to the readers (ms)",
        (
            ("until the decision", lambda rows: [row.sink_decision_ms or 0 for row in rows]),
            ("from then on", lambda rows: [row.sink_commit_ms or 0 for row in rows]),
        ),
    ),
    (
        "Kafka sink: rows",
        (
            ("decided", lambda rows: [row.sink_rows or 0 for row in rows]),
            ("of them refused", lambda rows: [row.sink_refused_rows or 0 for row in rows]),
            ("copied", lambda rows: since_before(rows, "sink_copied_rows")),
        ),
    ),
)
#: Apart also for those who see few colors; the next operators have them again, dashed.
_COLORS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C564B", "#7F7F7F"),
)
_DASHES = ("-", "--", ":")
#: More batches than these are lines without marks.
_MOST_MARKED = 30
#: A panel whose highest value is so many times the usual one of some line would show that as flat.
_FLAT = 10
#: Names of operators up to this length fit four in a row.
_SHORT_NAME = 24


def draw(rows: Rows) -> Figure:
    """Draw batches of one query: a color for each operator, a panel for each kind of value.

    Parameters
    ----------
    rows : sequence of OperatorMetrics
        What each operator did in each batch, and the Kafka sink where the query has one, in the
        order of batches; at least one.

    Returns
    -------
    matplotlib.figure.Figure
        The figure that `statemark.plots.dashboard` returns.
    """
    operators, written = by_operator(rows), of_sink(rows)
    heights = [3.0, 3.0, 2.0 + 0.4 * len(operators)] if operators else [3.0]
    heights += [3.0] * bool(written)
    size = (10, (7.6 + 0.3 * len(operators) if operators else 2.8) + 2.6 * bool(written))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    first = figure.add_subplot(grid[0, 0])

    def panel(row: int, column: int | slice) -> Axes:
        return figure.add_subplot(grid[row, column], sharex=first)

    _draw_batches(first, rows)
    if operators:
        panels = (first, panel(0, 1), panel(1, 0), panel(1, 1))
        for one, (title, value) in zip(panels, _PANELS, strict=True):
            _draw_operators(one, operators, value)
            _scale(one, title)
        _draw_events(panel(2, slice(None)), operators)
    else:
        _scale(first, "whole batch (ms)")
    if written:
        places = (panel(3, 0), panel(3, 1)) if operators else (panel(0, 1), panel(1, slice(None)))
        for one, (title, lines) in zip(places, _SINK_PANELS, strict=True):
            _draw_sink(one, written, title, lines)
    _draw_frames(figure.axes, [row.batch_id for row in rows])
    names = [str(line.get_label()) for line in first.lines]
    columns = 4 if max(map(len, names)) <= _SHORT_NAME else 3
    legend = figure.legend(
        handles=first.lines, loc="outside lower center", ncols=columns, frameon=False
    )
    for line in legend.get_lines():
        line.set_linewidth(3)  # so that its color can be told
    figure.suptitle(f"query {query_name(rows) or rows[0].query_id}")
    return figure


def _draw_batches(panel: Axes, rows: Rows) -> None:
    """Draw how long batches took: each has a row for each operator, and one duration."""
    durations = {(row.run_id, row.batch_id): row.batch_duration_ms for row in rows}
    batches = [batch for _, batch in durations]
    style = _marks(batches) | {"color": rcParams["text.color"], "linewidth": 1.8}
    panel.plot(batches, list(durations.values()), label="whole batch", **style)


def _draw_operators(
    panel: Axes, operators: Sequence[Rows], value: Callable[[OperatorMetrics], float | None]
) -> None:
    for i, of_one in enumerate(operators):
        batches = [row.batch_id for row in of_one]
        found = [math.nan if (y := value(row)) is None else y for row in of_one]
        style = _marks(batches) | {
            "color": _COLORS[i % len(_COLORS)],
            "linestyle": _DASHES[i // len(_COLORS) % len(_DASHES)],
        }
        label = f"{of_one[0].operator_id}: {of_one[0].operator}"
        panel.plot(batches, found, label=label, **style)


def _draw_sink(
    panel: Axes,
    rows: Rows,
    title: str,
    lines: Sequence[tuple[str, Callable[[Rows], list[int]]]],
) -> None:
    """Draw what the sink did. Its lines are not of operators: gray, apart by dashes, named here."""
    batches = [row.batch_id for row in rows]
    for (name, values), dash in zip(lines, _DASHES, strict=False):
        style = _marks(batches) | {"color": "#404040", "linestyle": dash}
        panel.plot(batches, values(rows), label=name, **style)
    _scale(panel, title)
    panel.legend(frameon=False, fontsize="small")


def _marks(batches: Sequence[int]) -> dict[str, Any]:
    marked = len(batches) <= _MOST_MARKED
    return {"marker": "o" if marked else "", "markersize": 3, "linewidth": 1}


def _scale(panel: Axes, title: str) -> None:
    """Choose a scale from 0 on which no line lies flat, and say which: none is cut.

    A first batch that loads all of the state takes a hundred times as long as the others.
    """
    lines = [np.asarray(line.get_ydata()) for line in panel.lines]
    positive = [found for found in (ys[ys > 0] for ys in lines) if found.size]
    usual = min((float(np.median(found)) for found in positive), default=0.0)
    highest = max((float(found.max()) for found in positive), default=0.0)
    if highest > _FLAT * usual:
        lowest, most = (math.floor(math.log10(value)) for value in (usual, highest))
        # Logarithmic above that, and linear below, where 0 has a place.
        panel.set_yscale("symlog", linthresh=10.0**lowest, linscale=0.5, subs=range(2, 10))
        step = 1 + (most - lowest) // 8
        panel.set_yticks([0, *(10.0**power for power in range(lowest, most + 1, step))])
        title += ", log scale"
        highest *= 1.2
    panel.set_ylim(0, 1.05 * highest or 1)
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    panel.set_title(title, loc="left", fontsize="medium")
    panel.grid(axis="y", alpha=0.3)


def _short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _draw_events(panel: Axes, operators: Sequence[Rows]) -> None:
    """Draw a lane for each kind of event, and in it a line of strokes for each operator."""
    height = len(operators) + 1
    width = min(4.0, max(1.8, 300 / len(operators[0])))
    totals = []
    for lane, (_, count) in enumerate(_EVENTS):
        for i, of_one in enumerate(operators):
            at = [row.batch_id for row in of_one if count(row)]
            y = lane * height + i
            panel.vlines(at, y - 0.45, y + 0.45, colors=_COLORS[i % len(_COLORS)], linewidth=width)
        totals.append(sum(count(row) for of_one in operators for row in of_one))
        panel.axhline((lane + 1) * height - 1, color=rcParams["axes.edgecolor"], linewidth=0.4)
    names = [f"{name}: {total:,}" for (name, _), total in zip(_EVENTS, totals, strict=True)]
    panel.set_yticks([lane * height + (height - 2) / 2 for lane in range(len(names))], names)
    panel.tick_params(axis="y", length=0, labelsize="small")
    panel.set_ylim(len(names) * height - 1, -1)
    panel.set_title("events by batch, with their sums", loc="left", fontsize="medium")


def _draw_frames(panels: Sequence[Axes], batches: Sequence[int]) -> None:
    first, last = min(batches), max(batches)
    margin = max(0.5, 0.02 * (last - first))
    panels[0].set_xlim(first - margin, last + margin)  # shared, as the ticks are
    panels[0].xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))  # none at 0.2
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels[:2]:
        panel.tick_params(labelbottom=False)
    for panel in panels[2:]:
        panel.set_xlabel("batch")
