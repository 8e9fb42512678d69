"""The dashboard of a listener."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryProgress

import statemark
from statemark import plots

OPERATOR: dict[str, Any] = {
    "operatorName": "stateStoreSave",
    "numRowsTotal": 120,
    "numRowsUpdated": 30,
    "allUpdatesTimeMs": 11,
    "numRowsRemoved": 5,
    "allRemovalsTimeMs": 2,
    "commitTimeMs": 17,
    "memoryUsedBytes": 4096,
    "numRowsDroppedByWatermark": 0,
    "numShufflePartitions": 4,
    "numStateStoreInstances": 4,
    "customMetrics": {"statemarkCommitLatencyMsMax.partition_3_default": 6},
}
PROGRESS: dict[str, Any] = {
    "id": "1f2e6c1c-0a52-4c4f-9b0e-2f6d4d3a8a11",
    "runId": "7c1d9f4e-5b6a-4d3c-8e2f-0a1b2c3d4e5f",
    "name": "clicks",
    "timestamp": "2026-03-01T12:00:00.250Z",
    "batchDuration": 500,
    "durationMs": {"triggerExecution": 500},
    "stateOperators": [OPERATOR],
    "sources": [],
    "sink": {"description": "console", "numOutputRows": 0},
}


def listener(*progresses: dict[str, Any]) -> statemark.MetricsListener:
    """A listener that was told of batches."""
    found = statemark.MetricsListener()
    for progress in progresses:
        found.onQueryProgress(QueryProgressEvent(StreamingQueryProgress.fromJson(progress)))
    return found


def batches(count: int, **changed: Any) -> list[dict[str, Any]]:
    """The progress of some batches, in order."""
    return [copy.deepcopy(PROGRESS) | {"batchId": i} | changed for i in range(count)]


def test_draws_a_line_for_each_value_of_each_operator(tmp_path: Path) -> None:
    figure = plots.dashboard(listener(*batches(3)))
    assert figure.get_suptitle() == "query clicks"
    titles = {panel.get_title(): panel for panel in figure.axes}
    assert list(titles) == ["time (ms)", "rows in state", "bytes (MiB)", "stores (count)"]
    batch, slowest = titles["time (ms)"].lines
    assert list(batch.get_xdata()) == [0, 1, 2]
    assert list(batch.get_ydata()) == [500, 500, 500]
    assert list(slowest.get_ydata()) == [6, 6, 6]
    assert [list(line.get_ydata()) for line in titles["rows in state"].lines] == [[120] * 3]
    two = plots.dashboard(listener(*batches(2, stateOperators=[OPERATOR, OPERATOR])))
    labels = [line.get_label() for line in two.axes[1].lines]
    assert labels == ["rows, stateStoreSave 0", "rows, stateStoreSave 1"]
    for panel in figure.axes:
        assert all(tick == int(tick) for tick in panel.get_xticks())
    figure.savefig(tmp_path / "query.svg")
    assert "<svg" in (tmp_path / "query.svg").read_text()


def test_a_query_of_several_is_named() -> None:
    other = "0f2e6c1c-0a52-4c4f-9b0e-2f6d4d3a8a11"
    both = listener(*batches(2), *batches(1, id=other, name=None))
    with pytest.raises(statemark.SettingsError, match=f"kept 2 queries: {other}, "):
        plots.dashboard(both)
    assert plots.dashboard(both, other).get_suptitle() == f"query {other}"
    with pytest.raises(statemark.SettingsError, match="addListener"):
        plots.dashboard(listener())


def test_a_query_is_no_listener() -> None:
    with pytest.raises(statemark.SettingsError, match="str given in place of a listener") as caught:
        plots.dashboard("clicks")  # type: ignore[arg-type]
    assert "dashboard(listener, query)" in caught.value.remedy


def test_matplotlib_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(statemark.MissingDependencyError, match="statemark\\[plots\\]"):
        plots.dashboard(listener(*batches(1)))
