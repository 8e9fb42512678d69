from __future__ import annotations

import builtins
import copy
import dataclasses
import logging
import threading
import uuid
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pandas as pd
import pytest
from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryProgress

from statemark import MetricsListener, MissingDependencyError, OperatorMetrics, SettingsError

QUERY = "1f2e6c1c-0a52-4c4f-9b0e-2f6d4d3a8a11"
RUN = "7c1d9f4e-5b6a-4d3c-8e2f-0a1b2c3d4e5f"
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
    "customMetrics": {
        "rocksdbPutCount": 30,
        "statemarkCommitCount": 4,
        "statemarkCommitLatencyMs": 10,
        "statemarkCommitLatencyMsMax.partition_0_default": 3,
        "statemarkCommitLatencyMsMax.partition_3_default": 6,
        "statemarkCommitLatencyMsMax.partition_1_default": -1,
        "statemarkCommitSerializeLatencyMs": 4,
        "statemarkCommitChangelogLatencyMs": 5,
        "statemarkCommitSnapshotLatencyMs": 1,
        "statemarkConfirmLatencyMs": 7,
        "statemarkDistrustAheadCount": 1,
        "statemarkDistrustDamagedCount": 2,
        "statemarkLoadCheckpointBytes": 4000,
        "statemarkLoadCheckpointCount": 1,
        "statemarkLoadLatencyMs": 25,
        "statemarkLoadLocalCount": 2,
        "statemarkLoadMemoryCount": 1,
        "statemarkReplayedChangelogCount": 5,
        "statemarkUnflushedVersionCount": 9,
        "statemarkPreparedBytes": 512,
        "statemarkReloadCount": 1,
        "statemarkRewindCount": 2,
        "statemarkRollbackCount": 3,
        "statemarkStagedBytes": 2048,
        "statemarkRememberedBytes": 640,
        "statemarkSpillCount": 6,
        "statemarkSpilledBytes": 7000,
    },
}
PROGRESS: dict[str, Any] = {
    "id": QUERY,
    "runId": RUN,
    "name": "clicks",
    "timestamp": "2026-03-01T12:00:00.250Z",
    "batchId": 7,
    "batchDuration": 500,
    "durationMs": {"addBatch": 400, "triggerExecution": 500},
    "stateOperators": [OPERATOR],
    "sources": [],
    "sink": {"description": "console", "numOutputRows": 0},
}
EXPECTED = OperatorMetrics(
    query_id=QUERY,
    run_id=RUN,
    name="clicks",
    batch_id=7,
    timestamp=datetime(2026, 3, 1, 12, 0, 0, 250000, tzinfo=timezone.utc),
    operator="stateStoreSave",
    operator_id=0,
    batch_duration_ms=500,
    rows_total=120,
    rows_updated=30,
    rows_removed=5,
    memory_used_bytes=4096,
    commit_count=4,
    commit_rate=8.0,
    commit_latency_avg_ms=2.5,
    commit_latency_max_ms=6,
    serialize_latency_ms=4,
    changelog_latency_ms=5,
    snapshot_latency_ms=1,
    confirm_latency_ms=7,
    staged_bytes=2048,
    remembered_bytes=640,
    spills=6,
    spilled_bytes=7000,
    prepared_bytes=512,
    rollbacks=3,
    rewinds=2,
    reloads=1,
    loads_memory=1,
    loads_local=2,
    loads_checkpoint=1,
    replayed_changelogs=5,
    load_checkpoint_bytes=4000,
    load_latency_ms=25,
    distrusted=3,
    unflushed_versions=9,
)
COLUMNS = [
    "query_id", "run_id", "name", "batch_id", "timestamp", "operator", "operator_id",
    "batch_duration_ms", "rows_total", "rows_updated", "rows_removed", "memory_used_bytes",
    "commit_count", "commit_rate", "commit_latency_avg_ms", "commit_latency_max_ms",
    "serialize_latency_ms", "changelog_latency_ms", "snapshot_latency_ms",
    "confirm_latency_ms", "staged_bytes", "remembered_bytes", "spills", "spilled_bytes",
    "prepared_bytes",
    "rollbacks", "rewinds", "reloads", "loads_memory", "loads_local", "loads_checkpoint",
    "replayed_changelogs", "load_checkpoint_bytes", "load_latency_ms", "distrusted",
    "unflushed_versions",
    "sink_rows", "sink_refused_rows", "sink_transactions", "sink_decision_ms", "sink_commit_ms",
    "sink_copied_rows", "sink_discarded_batches", "sink_open_transactions",
]  # fmt: skip
#: What Statemark's Kafka sink says.
SINK = {
    "description": "statemark-kafka[orders]",
    "numOutputRows": -1,
    "metrics": {
        "batch": "7",
        "rows": "120",
        "refusedRows": "2",
        "transactions": "3",
        "decisionMs": "15",
        "commitMs": "20",
        "copiedRows": "40",
        "discardedBatches": "1",
        "openTransactionsFound": "4",
    },
}


def event(
    *, custom: dict[str, int] | None = None, operators: list[Any] | None = None, **changed: Any
) -> QueryProgressEvent:
    progress = copy.deepcopy(PROGRESS)
    if custom is not None:
        progress["stateOperators"][0]["customMetrics"] = custom
    if operators is not None:
        progress["stateOperators"] = operators
    return QueryProgressEvent(StreamingQueryProgress.fromJson(progress | changed))


def test_latest_has_every_metric() -> None:
    listener = MetricsListener()
    listener.onQueryProgress(event())
    assert listener.latest(QUERY) == EXPECTED


def test_a_query_is_found_by_object_identifier_and_text() -> None:
    class Query:
        id = QUERY

    listener = MetricsListener()
    listener.onQueryProgress(event())
    for query in (Query(), QUERY, QUERY.upper(), uuid.UUID(QUERY), "clicks"):
        assert listener.latest(query) == EXPECTED  # type: ignore[arg-type]
    assert listener.latest(uuid.uuid4()) is None
    with pytest.raises(SettingsError) as caught:
        listener.latest("cliks")
    assert str(caught.value) == (
        "'cliks' is not a query\n"
        "  reason: it is neither a StreamingQuery nor the id of one, which is a UUID, and no query"
        " of this name was reported\n"
        "  remedy: pass query or query.id"
    )
    with pytest.raises(SettingsError, match="None is not a query"):
        listener.latest(None)  # type: ignore[arg-type]


def test_a_notebook_shows_the_report_of_a_listener() -> None:
    listener = MetricsListener()
    listener.onQueryProgress(event())
    assert f"<p>query clicks ({QUERY})</p><table>" in listener._repr_html_()
    assert listener._repr_html_() == listener.report(QUERY)._repr_html_()


def test_the_sink_has_columns() -> None:
    of_sink = {"sink_rows": 120, "sink_refused_rows": 2, "sink_transactions": 3}
    of_sink |= {"sink_decision_ms": 15, "sink_commit_ms": 20, "sink_copied_rows": 40}
    of_sink |= {"sink_discarded_batches": 1, "sink_open_transactions": 4}
    listener = MetricsListener()
    listener.onQueryProgress(event(sink=SINK))
    assert listener.latest(QUERY) == dataclasses.replace(EXPECTED, **of_sink)
    # A query without state, or with state elsewhere, has rows of the sink alone.
    for operators in ([], [OPERATOR | {"customMetrics": {"rocksdbPutCount": 1}}]):
        listener.onQueryProgress(event(operators=operators, sink=SINK, batchId=8))
        row = listener.latest(QUERY, operator_id=-1)
        assert row is not None
        assert (row.operator, row.commit_count, row.batch_duration_ms) == (None, 0, 500)
        assert {name: getattr(row, name) for name in of_sink} == of_sink
    assert list(listener.to_pandas()["sink_rows"]) == [120.0] * 3


def test_a_query_on_another_provider_leaves_nothing() -> None:
    listener = MetricsListener()
    listener.onQueryProgress(event(custom={"rocksdbPutCount": 1}))
    listener.onQueryProgress(event(operators=[]))
    assert listener.latest(QUERY) is None
    assert len(listener.to_pandas()) == 0


def test_what_was_not_reported_is_zero_or_unknown() -> None:
    listener = MetricsListener()
    unreported = {"statemarkCommitCount": 0, "statemarkCommitLatencyMsMax.partition_0_default": -1}
    listener.onQueryProgress(event(custom=unreported, durationMs={}, batchDuration=0))
    row = listener.latest(QUERY)
    assert row is not None
    assert (row.commit_count, row.rollbacks, row.staged_bytes) == (0, 0, 0)
    assert row.commit_rate is None
    assert row.commit_latency_avg_ms is None
    assert row.commit_latency_max_ms is None
    frame = listener.to_pandas()
    nullable = ["commit_rate", "commit_latency_avg_ms", "commit_latency_max_ms", *COLUMNS[-8:]]
    assert frame[nullable].isna().all(axis=None)
    assert not frame.drop(columns=nullable).isna().any(axis=None)


def test_a_batch_without_trigger_time_falls_back_to_its_duration() -> None:
    listener = MetricsListener()
    listener.onQueryProgress(event(durationMs={}, batchDuration=2000))
    row = listener.latest(QUERY)
    assert row is not None
    assert (row.batch_duration_ms, row.commit_rate) == (2000, 2.0)


def test_operators_keep_their_position() -> None:
    foreign = copy.deepcopy(OPERATOR) | {"customMetrics": {}}
    second = copy.deepcopy(OPERATOR) | {"operatorName": "dedupe"}
    listener = MetricsListener()
    listener.onQueryProgress(event(operators=[foreign, second]))
    assert listener.latest(QUERY) is None
    row = listener.latest(QUERY, operator_id=1)
    assert row is not None
    assert (row.operator, row.operator_id) == ("dedupe", 1)


def test_the_frame_has_a_row_for_each_query_batch_and_operator() -> None:
    other = str(uuid.uuid4())
    listener = MetricsListener()
    listener.onQueryProgress(event())
    listener.onQueryProgress(event(id=other, name=None, operators=[OPERATOR, OPERATOR]))
    listener.onQueryProgress(event(batchId=8))
    frame = listener.to_pandas()
    assert list(frame.columns) == COLUMNS
    keys = [tuple(key) for key in frame[["query_id", "batch_id", "operator_id"]].to_numpy()]
    assert sorted(keys) == sorted([(QUERY, 7, 0), (QUERY, 8, 0), (other, 7, 0), (other, 7, 1)])
    mine = frame[frame["query_id"] == QUERY]
    assert list(mine["batch_id"]) == [7, 8]
    first = mine.iloc[0]
    own = [name for name in COLUMNS if "sink_" not in name]
    assert {name: first[name] for name in own} == {name: getattr(EXPECTED, name) for name in own}
    assert first[[name for name in COLUMNS if "sink_" in name]].isna().all()


def test_an_empty_frame_has_the_same_columns_and_types() -> None:
    listener = MetricsListener()
    empty = listener.to_pandas()
    listener.onQueryProgress(event())
    full = listener.to_pandas()
    assert list(empty.columns) == COLUMNS
    assert list(empty.dtypes) == list(full.dtypes)
    assert str(full["timestamp"].dtype) == "datetime64[ns, UTC]"
    assert full["rows_total"].dtype == "int64"
    assert full["commit_latency_max_ms"].dtype == "float64"
    assert isinstance(full, pd.DataFrame)


def test_memory_is_bounded_in_batches_and_queries() -> None:
    listener = MetricsListener(max_batches=2, max_queries=2)
    first, second, third = (str(uuid.uuid4()) for _ in range(3))
    for batch in range(3):
        listener.onQueryProgress(event(id=first, batchId=batch))
    assert list(listener.to_pandas()["batch_id"]) == [1, 2]
    listener.onQueryProgress(event(id=second))
    listener.onQueryProgress(event(id=first, batchId=3))  # the second has now been silent longest
    listener.onQueryProgress(event(id=third))
    assert listener.latest(second) is None
    assert listener.latest(first) is not None
    assert listener.latest(third) is not None


@pytest.mark.parametrize("limit", ["max_batches", "max_queries"])
def test_a_limit_of_nothing_is_refused(limit: str) -> None:
    with pytest.raises(SettingsError, match=f"bad value 0 for {limit}"):
        MetricsListener(**{limit: 0})


def test_an_unreadable_event_is_logged_and_dropped(caplog: pytest.LogCaptureFixture) -> None:
    listener = MetricsListener()
    with caplog.at_level(logging.WARNING, logger="statemark"):
        listener.onQueryProgress(event(timestamp="yesterday"))
        listener.onQueryProgress(None)  # type: ignore[arg-type]
    assert [record.message for record in caplog.records] == [
        "progress of a query was dropped: it cannot be read"
    ] * 2
    listener.onQueryProgress(event())
    assert listener.latest(QUERY) == EXPECTED


def test_reading_while_events_arrive() -> None:
    listener = MetricsListener(max_batches=5)
    failures: list[Exception] = []

    def write() -> None:
        for batch in range(100):
            listener.onQueryProgress(event(batchId=batch))

    def read() -> None:
        try:
            for _ in range(20):
                listener.to_pandas()
                listener.latest(QUERY)
        except Exception as error:  # noqa: BLE001 - reported by the assertion below
            failures.append(error)

    threads = [threading.Thread(target=work) for work in (write, write, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(listener.to_pandas()) == 5


def test_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = builtins.__import__

    def absent(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    listener = MetricsListener()
    listener.onQueryProgress(event())
    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingDependencyError) as caught:
        listener.to_pandas()
    assert str(caught.value) == (
        "MetricsListener.to_pandas() needs pandas\n"
        "  reason: pandas is not installed in this environment\n"
        "  remedy: pip install 'statemark[pandas]'; latest() works without it"
    )
    assert listener.latest(QUERY) == EXPECTED
