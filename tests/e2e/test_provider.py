"""The tests beside this one say something about our provider only if our provider ran."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import statemark
from support.session import LINE, STATEMARK_PROVIDER
from support.streams import Run, Source, events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _ours(provider: str) -> None:
    if provider != STATEMARK_PROVIDER:
        pytest.skip(f"the stores are those of {provider}")


def test_stores_were_opened_by_our_class(spark: SparkSession, source: Source, run: Run) -> None:
    source.add(events(0, 300))
    query = run.to_end(source.stream().dropDuplicates(["id"]))
    metrics = query.lastProgress.stateOperators[0].customMetrics
    assert [name for name in metrics if name.startswith("statemark")]


def test_the_listener_has_a_row_for_every_batch(
    spark: SparkSession, source: Source, run: Run
) -> None:
    listener = statemark.MetricsListener()
    spark.streams.addListener(listener)
    try:
        source.add(events(0, 300))
        query = run.to_end(source.stream().dropDuplicates(["id"]))
        partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 0)
        deadline = time.monotonic() + 60
        while listener.latest(query) is None and time.monotonic() < deadline:
            time.sleep(0.1)  # events arrive on a thread of their own
    finally:
        spark.streams.removeListener(listener)
    latest = listener.latest(query)
    assert latest is not None
    assert latest.commit_count == partitions
    assert latest.rows_total == 300
    # Spark 4.0 has no metrics of single stores.
    assert (latest.commit_latency_max_ms is None) == (LINE == "4.0")
    parts_ms = (
        latest.serialize_latency_ms + latest.changelog_latency_ms + latest.snapshot_latency_ms
    )
    assert latest.commit_latency_avg_ms == parts_ms / partitions
    assert latest.staged_bytes > 0
    assert (latest.rollbacks, latest.rewinds, latest.reloads) == (0, 0, 0)
    table = listener.to_pandas()
    assert set(table["query_id"]) == {str(query.id)}


def test_spark_pins_our_class_in_the_checkpoint(
    spark: SparkSession, source: Source, run: Run
) -> None:
    source.add(events(0, 300))
    run.to_end(source.stream().dropDuplicates(["id"]))
    offsets = (run.checkpoint / "offsets/0").read_text()
    assert f'"spark.sql.streaming.stateStore.providerClass":"{STATEMARK_PROVIDER}"' in offsets
