"""Restarts and failures in the middle leave no trace in the result."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from support import faults
from support.modes import FORMATS, pairs
from support.session import STATEMARK_PROVIDER
from support.streams import Run, Source, Transform, assert_same, before_end, events, far_future

#: Two partitions, of which each has to see more rows than `faults.MIN_ROWS`.
BIG_FILE = 3000


def deduplicated(df: DataFrame) -> DataFrame:
    return df.dropDuplicates(["id"])


def totals(df: DataFrame) -> DataFrame:
    # Nearly as many groups as events, so that many rows pass; some groups return.
    return df.groupBy((sf.col("id") % 4001).alias("key")).agg(sf.sum("value").alias("total"))


def matched(df: DataFrame) -> DataFrame:
    left = before_end(df.withWatermark("ts", "1 hour"))
    right = before_end(
        df.selectExpr("id AS other", "value AS w", "ts AS seen").withWatermark("seen", "1 hour"),
        "seen",
    )
    return left.join(right, sf.expr("id = other AND ts = seen"), "inner")


QUERIES = {
    "deduplication": (deduplicated, "append"),
    "aggregation": (totals, "update"),
    "join": (matched, "append"),
}


@pytest.fixture
def query(request: pytest.FixtureRequest, run: Run) -> Transform:
    """One of the queries; `run` is set to its output mode."""
    transform, run.mode = QUERIES[request.param]
    run.key = ("key",) if run.mode == "update" else ()
    return transform


@pytest.mark.parametrize(("query", "checkpoint_format"), pairs([*QUERIES], FORMATS), indirect=True)
def test_stop_and_start_again(
    spark: SparkSession, source: Source, run: Run, query: Transform, checkpoint_format: str
) -> None:
    source.add(events(0, 400), events(400, 400))
    first = run.start(query(source.stream()))
    first.processAllAvailable()
    first.stop()
    assert first.lastProgress.stateOperators[0].numRowsTotal > 0

    # Some events again, within the watermark.
    source.add(events(780, 400), events(1180, 100))
    second = run.to_end(query(source.stream()))
    assert str(second.id) == str(first.id)
    assert str(second.runId) != str(first.runId)
    assert second.recentProgress[0].batchId >= 2
    assert_same(run.result(spark), query(source.batch()))


@pytest.mark.parametrize(
    ("query", "checkpoint_format"), pairs([*QUERIES], FORMATS[::-1]), indirect=True
)
def test_failed_task_in_the_middle(
    spark: SparkSession,
    source: Source,
    run: Run,
    query: Transform,
    checkpoint_format: str,
    provider: str,
) -> None:
    """The retry starts from what the store holds: our provider opens no file for it."""
    source.add(*[events(i * BIG_FILE, BIG_FILE) for i in range(3)], far_future())
    faults.arm(spark, run.checkpoint, batch=1)
    run.to_end(query(source.stream()).where("fail_once()"))

    assert faults.fired(spark).batchId() == 1
    opened = faults.opened_by_retry(spark)
    if provider == STATEMARK_PROVIDER:
        assert opened == []
    else:
        # Proof that the count would see files: Spark's provider reads the version again.
        assert opened != []
    assert_same(run.result(spark), query(source.batch()))
