"""The dashboard of a listener: what it draws, that it can be read, and its picture in the docs."""

from __future__ import annotations

import dataclasses
import math
import random
import re
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

import statemark
from statemark import OperatorMetrics, drawing, plots
from statemark.operator_metrics import sink_columns

if TYPE_CHECKING:
    from matplotlib.transforms import Bbox

PICTURE = Path(__file__).parents[3] / "docs/dashboard.svg"
TITLES = [
    "whole batch, and slowest commit (ms)",
    "rows in state",
    "memory (MiB)",
    "staged when committed (MiB)",
    "events by batch, with their sums",
]
SINK_TITLES = ["Kafka sink: time to the readers (ms)", "Kafka sink: rows"]
NOTHING: dict[str, Any] = {
    field.name: 0 for field in dataclasses.fields(OperatorMetrics) if "sink_" not in field.name
} | {
    "query_id": "1f2e6c1c-0a52-4c4f-9b0e-2f6d4d3a8a11",
    "run_id": "first",
    "name": "clicks",
    "timestamp": datetime(2026, 3, 1, tzinfo=timezone.utc),
    "operator": "stateStoreSave",
    "batch_duration_ms": 500,
    "commit_latency_max_ms": 6,
    "rows_total": 120,
}
#: Operators of one query, the names as Spark has them, and how many times the rows of the last.
OPERATORS = (
    ("stateStoreSave", 1.0),
    ("symmetricHashJoin", 40.0),
    ("dedupeWithinWatermark", 0.02),
    ("sessionWindowStateStoreSaveExec", 3.0),
    ("transformWithStateInPandasExec", 9.0),
    ("flatMapGroupsWithState", 0.5),
    ("dedupe", 12.0),
    ("globalLimit", 0.0),
)


def row(**changed: Any) -> OperatorMetrics:
    """What an operator did in a batch, of which most is 0."""
    return OperatorMetrics(**NOTHING | changed)


def history(operators: int, batches: int) -> list[OperatorMetrics]:
    """Batches of a query whose first one loads all of its state, and which starts again halfway."""
    seed = random.Random(1)
    found = []
    for batch in range(batches):
        is_first, is_again = batch == 0, batch == batches // 2
        duration_ms = int(seed.lognormvariate(6, 0.25)) + is_first * 42_000 + is_again * 2_500
        for i, (operator, size) in enumerate(OPERATORS[:operators]):
            staged = 3e6 * size * seed.lognormvariate(0, 0.3) * (60 if is_first else 1)
            is_lost = i == 1 and batch in (batches * 3 // 4, batches * 4 // 5)
            found.append(
                row(
                    run_id="second" if batch >= batches // 2 else "first",
                    batch_id=batch,
                    operator=operator,
                    operator_id=i,
                    batch_duration_ms=duration_ms,
                    commit_latency_max_ms=max(1, int(seed.lognormvariate(3, 0.4) * size**0.3)),
                    rows_total=int(4e5 * size * (1 - 0.8 / (1 + batch / 50))),
                    memory_used_bytes=int(2e7 * size * (1 + min(batch, 80) / 80)),
                    staged_bytes=int(staged),
                    spills=int(staged > 2e9) * 4,
                    loads_checkpoint=is_first * 24,
                    loads_local=is_again * 24,
                    rollbacks=int(is_lost) * 3,
                )
            )
    return found


def overlapping(boxes: Sequence[Bbox], others: Sequence[Bbox]) -> list[tuple[Bbox, Bbox]]:
    """Pairs that have more in common than an edge."""
    return [(box, other) for box in boxes for other in others if box.padded(-1).overlaps(other)]


@pytest.mark.parametrize(
    ("operators", "batches"), [(1, 1), (1, 5), (3, 5), (8, 5), (1, 500), (3, 500), (8, 500)]
)
def test_can_be_read(operators: int, batches: int) -> None:
    rows = history(operators, batches)
    figure = drawing.draw(rows)
    FigureCanvasAgg(figure).draw()
    (legend,) = figure.legends
    assert [panel.get_legend() for panel in figure.axes] == [None] * 5
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == [
        "whole batch",
        *(f"{i}: {name}" for i, (name, _) in enumerate(OPERATORS[:operators])),
    ]

    # Neither the legend nor the title lies over a panel or its labels, and all are on the page.
    drawn = [panel.get_tightbbox() for panel in figure.axes]
    around = [legend.get_window_extent(), figure._suptitle.get_window_extent()]  # type: ignore[attr-defined]
    assert overlapping(around, drawn) == []
    assert overlapping(around[:1], around[1:]) == []
    assert [pair for i, box in enumerate(drawn) for pair in overlapping([box], drawn[:i])] == []
    for box in [*drawn, *around, *(text.get_window_extent() for text in legend.get_texts())]:
        assert figure.bbox.x0 <= box.x0 <= box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 <= box.y1 <= figure.bbox.y1

    first, *others, events = figure.axes
    assert [len(panel.lines) for panel in (first, *others)] == [operators + 1, *[operators] * 3]
    whole = first.lines[0]
    assert list(whole.get_ydata()) == [one.batch_duration_ms for one in rows[::operators]]
    # An operator has one color wherever it is, and no other has it.
    colors = [line.get_color() for line in first.lines]
    assert len({*colors}) == operators + 1
    assert [[line.get_color() for line in panel.lines] for panel in others] == [colors[1:]] * 3
    assert {line.get_marker() for line in (*first.lines, *others[0].lines)} == {
        "o" if batches <= 30 else ""
    }

    # Nothing is outside, and no line lies flat.
    for panel in (first, *others):
        bottom, top = panel.get_ylim()
        assert bottom == 0
        for line in panel.lines:
            values = sorted(line.get_ydata())
            assert values[-1] <= top
            ends = panel.transLimits.transform(
                panel.transScale.transform([(0, 0), (0, values[len(values) // 2])])
            )
            assert values[-1] == 0 or ends[1][1] - ends[0][1] > 0.05
    left, right = first.get_xlim()
    assert left < 0 <= batches - 1 < right
    assert all(panel.get_xlim() == (left, right) for panel in figure.axes)
    assert all(tick == int(tick) for tick in events.get_xticks())


def test_says_which_scale_a_panel_has() -> None:
    calm = [row(batch_id=i, batch_duration_ms=50 + i, rows_total=1000 + i) for i in range(9)]
    assert [panel.get_title(loc="left") for panel in drawing.draw(calm).axes] == TITLES
    slow = [dataclasses.replace(calm[0], batch_duration_ms=40_000), *calm[1:]]
    first, rows, *_ = drawing.draw(slow).axes
    assert (first.get_title(loc="left"), first.get_yscale()) == (
        f"{TITLES[0]}, log scale",
        "symlog",
    )
    assert (rows.get_title(loc="left"), rows.get_yscale()) == (TITLES[1], "linear")
    # What is 0 has a place as well.
    assert 0 in first.get_yticks()


def test_what_was_not_reported_leaves_a_gap() -> None:
    found = drawing.draw([row(batch_id=i, commit_latency_max_ms=None if i else 6) for i in (0, 1)])
    commits = [float(value) for value in found.axes[0].lines[1].get_ydata()]
    assert (commits[0], math.isnan(commits[1])) == (6, True)


def test_events_have_a_stroke_for_each_batch_and_a_sum() -> None:
    changed = {0: {"loads_checkpoint": 4}, 3: {"rollbacks": 2, "spills": 1}, 5: {"rollbacks": 1}}
    of_one = [row(batch_id=i, **changed.get(i, {})) for i in range(6)]
    both = [*of_one, *(dataclasses.replace(one, operator_id=1, operator="join") for one in of_one)]
    panel = drawing.draw(both).axes[-1]
    names = [label.get_text().replace("\n", " ") for label in panel.get_yticklabels()]
    assert names == [
        "stores loaded from the checkpoint: 8",
        "stores loaded from local disk: 0",
        "transactions rolled back: 6",
        "staged writes spilled to disk: 2",
    ]
    assert list(panel.get_yticks()) == [0.5, 3.5, 6.5, 9.5]
    strokes = [
        (batch, round((top + bottom) / 2, 6))
        for collection in panel.collections
        for (batch, top), (_, bottom) in collection.get_segments()
    ]
    # Two rows in each lane, one for each operator.
    assert strokes == [(0, 0), (0, 1), (3, 6), (5, 6), (3, 7), (5, 7), (3, 9), (3, 10)]


@pytest.mark.parametrize("operator", ["dedupe", None])
def test_the_sink_has_panels_of_its_own(operator: str | None) -> None:
    of_sink = dict.fromkeys(sink_columns(), 0) | {"sink_rows": 50, "sink_decision_ms": 7}
    of_query = of_sink | {"operator": operator, "operator_id": 0 if operator else -1}
    rows = [
        row(**of_query | {"batch_id": i, "run_id": run, "sink_commit_ms": i, "sink_copied_rows": c})
        for i, (run, c) in enumerate([("a", 0), ("a", 30), ("a", 30), ("b", 0), ("b", 20)])
    ]
    figure = drawing.draw(rows)
    FigureCanvasAgg(figure).draw()
    titles = [panel.get_title(loc="left").partition(", log")[0] for panel in figure.axes]
    assert titles == [*(TITLES if operator else ["whole batch (ms)"]), *SINK_TITLES]
    times, counts = figure.axes[-2:]
    drawn = {line.get_label(): list(line.get_ydata()) for line in (*times.lines, *counts.lines)}
    assert drawn == {
        "until the decision": [7] * 5,
        "from then on": [0, 1, 2, 3, 4],
        "decided": [50] * 5,
        "of them refused": [0] * 5,
        # The metric counts over a run.
        "copied": [0, 30, 0, 0, 20],
    }
    boxes = [panel.get_tightbbox() for panel in figure.axes]
    assert [pair for i, box in enumerate(boxes) for pair in overlapping([box], boxes[:i])] == []


def test_a_batch_that_ran_twice_is_drawn_twice() -> None:
    rows = [row(batch_id=i, run_id=run) for i, run in ((0, "a"), (1, "a"), (1, "b"), (2, "b"))]
    assert list(drawing.draw(rows).axes[0].lines[0].get_xdata()) == [0, 1, 1, 2]


def test_many_operators_differ_by_color_or_dashes() -> None:
    rows = [row(batch_id=i, operator_id=n) for i in range(3) for n in range(20)]
    lines = drawing.draw(rows).axes[1].lines
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 20


def test_the_picture_in_the_docs_is_what_is_drawn(tmp_path: Path) -> None:
    drawn = tmp_path / PICTURE.name
    # As bench/plot.py has it: the same batches give the same file.
    with matplotlib.rc_context({"svg.hashsalt": "statemark", "svg.fonttype": "none"}):
        drawing.draw(history(3, 200)).savefig(drawn, metadata={"Date": None})
    assert drawn.stat().st_size < 150_000
    told = f"what is drawn has changed; look at it, then: cp {drawn} {PICTURE}"
    # Paths differ from release to release of matplotlib.
    for part in (r">([^<>]+)</(?:text|tspan)>", r"stroke: (#\w+)"):
        old, new = (
            Counter(re.findall(part, file.read_text() if file.exists() else ""))
            for file in (PICTURE, drawn)
        )
        assert new == old, told


def listener(*rows: OperatorMetrics) -> statemark.MetricsListener:
    """A listener that was told of batches."""
    found = statemark.MetricsListener()
    for one in rows:
        found._keep([one])
    return found


def test_a_query_of_several_is_named() -> None:
    other = "0f2e6c1c-0a52-4c4f-9b0e-2f6d4d3a8a11"
    both = listener(row(), row(batch_id=1), row(query_id=other, name=None))
    with pytest.raises(statemark.SettingsError, match=f"kept 2 queries: {other}, "):
        plots.dashboard(both)
    assert plots.dashboard(both, other).get_suptitle() == f"query {other}"
    assert plots.dashboard(both, row().query_id).get_suptitle() == "query clicks"
    with pytest.raises(statemark.SettingsError, match="addListener"):
        plots.dashboard(listener())


def test_a_query_is_no_listener() -> None:
    with pytest.raises(statemark.SettingsError, match="str given in place of a listener") as caught:
        plots.dashboard("clicks")  # type: ignore[arg-type]
    assert "dashboard(listener, query)" in caught.value.remedy


def test_matplotlib_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(statemark, "drawing")
    monkeypatch.delitem(sys.modules, "statemark.drawing")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(statemark.MissingDependencyError, match="statemark\\[plots\\]"):
        plots.dashboard(listener(row()))
