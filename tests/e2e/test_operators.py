"""Every kind of stateful operator gives what the same query gives in batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from support.streams import Run, Source, assert_same, before_end, events, far_future

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOUR = "1 hour"


def watermarked(df: DataFrame) -> DataFrame:
    return before_end(df.withWatermark("ts", HOUR))


def per_key(df: DataFrame) -> DataFrame:
    return df.groupBy("key").agg(sf.count("*").alias("n"), sf.sum("value").alias("total"))


def per_window(df: DataFrame) -> DataFrame:
    windows = watermarked(df).groupBy(sf.window("ts", "3 hours", "1 hour"), "key")
    return windows.agg(sf.count("*").alias("n"), sf.max("value").alias("top"))


def four_files(source: Source, **how: int) -> Source:
    return source.add(*[events(i * 300, 300, **how) for i in range(4)], far_future())


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_aggregation(spark: SparkSession, source: Source, tmp_path: Path, mode: str) -> None:
    four_files(source)
    run = Run(tmp_path / "run", mode=mode, key=("key",) if mode == "update" else ())
    run.to_end(per_key(source.stream()))
    assert_same(run.result(spark), per_key(source.batch()))


def test_aggregation_with_several_values_for_a_key(spark: SparkSession, source: Source) -> None:
    """The batch twin is only worth something if keys return in later batches."""
    four_files(source)
    assert per_key(source.batch()).where("n > 4").count() > 4


def test_windowed_aggregation_in_append_mode(
    spark: SparkSession, source: Source, run: Run, checkpoint_format: str
) -> None:
    four_files(source)
    run.to_end(per_window(source.stream()))
    assert_same(run.result(spark), per_window(source.batch()))


def test_deduplication(spark: SparkSession, source: Source, run: Run) -> None:
    # The second file repeats the first one, beside repeats within a file.
    source.add(events(0, 300, repeat_every=3), events(0, 300), events(200, 300, repeat_every=7))
    run.to_end(source.stream().dropDuplicates(["id"]))
    assert_same(run.result(spark), source.batch().dropDuplicates(["id"]))


def test_deduplication_within_watermark(spark: SparkSession, source: Source, run: Run) -> None:
    # Repeats of the last half hour of each file come with the next one, within the watermark.
    source.add(*[events(max(0, i * 300 - 30), 330, repeat_every=5) for i in range(4)], far_future())
    run.to_end(watermarked(source.stream()).dropDuplicatesWithinWatermark(["id"]))
    assert_same(run.result(spark), watermarked(source.batch()).dropDuplicates(["id"]))


def joined(left: DataFrame, right: DataFrame, how: str) -> DataFrame:
    left = before_end(left.withWatermark("ts", HOUR))
    right = before_end(right.withWatermark("seen", HOUR), "seen")
    condition = (
        (left.key == right.item)
        & (right.seen >= left.ts)
        & (right.seen <= left.ts + sf.expr("INTERVAL 40 MINUTES"))
    )
    return left.join(right, condition, how)


@pytest.mark.parametrize("how", ["inner", "left_outer"])
def test_stream_stream_join(
    spark: SparkSession, source: Source, tmp_path: Path, run: Run, how: str
) -> None:
    four_files(source)
    other = Source(spark, tmp_path / "seen", "n LONG, item STRING, w LONG, seen TIMESTAMP")
    # Only some of the keys, so that rows without a match exist on both sides.
    other.add(*[events(i * 300, 300, keys=31) for i in range(4)], far_future())
    run.to_end(joined(source.stream(), other.stream(), how))
    wanted = joined(source.batch(), other.batch(), how)
    assert_same(run.result(spark), wanted)
    unmatched = wanted.where("item IS NULL").count()
    assert (unmatched > 0) == (how == "left_outer")


def test_session_windows(spark: SparkSession, source: Source, run: Run) -> None:
    def sessions(df: DataFrame) -> DataFrame:
        grouped = watermarked(df).groupBy(sf.session_window("ts", "7 minutes"), "key")
        return grouped.agg(sf.count("*").alias("n"), sf.sum("value").alias("total"))

    four_files(source)
    run.to_end(sessions(source.stream()))
    wanted = sessions(source.batch())
    assert_same(run.result(spark), wanted)
    assert wanted.where("n > 1").count() > 0


def test_apply_in_pandas_with_state(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    # Inside the test, so that it travels by value: workers cannot import this module.
    def running_total(
        key: tuple[Any, ...], batches: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        n, total = state.get if state.exists else (0, 0)
        for batch in batches:
            n, total = n + len(batch), total + int(batch["value"].sum())
        state.update((n, total))
        yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})

    four_files(source)
    run = Run(tmp_path / "run", mode="update", key=("key",))
    totals = (
        source.stream()
        .groupBy("key")
        .applyInPandasWithState(
            running_total,
            "key STRING, n LONG, total LONG",
            "n LONG, total LONG",
            "update",
            GroupStateTimeout.NoTimeout,
        )
    )
    run.to_end(totals)
    assert_same(run.result(spark), per_key(source.batch()))


def test_several_stateful_operators(
    spark: SparkSession, source: Source, run: Run, checkpoint_format: str
) -> None:
    def hourly_then_daily(df: DataFrame) -> DataFrame:
        df = watermarked(df)
        once = df.dropDuplicatesWithinWatermark(["id"]) if df.isStreaming else df.distinct()
        hourly = once.groupBy(sf.window("ts", "1 hour"), "key").agg(sf.sum("value").alias("v"))
        return hourly.groupBy(sf.window("window", "6 hours")).agg(
            sf.count("*").alias("groups"), sf.sum("v").alias("v"), sf.max("v").alias("top")
        )

    four_files(source, repeat_every=4)
    query = run.to_end(hourly_then_daily(source.stream()))
    assert len(query.lastProgress.stateOperators) == 3
    assert_same(run.result(spark), hourly_then_daily(source.batch()))


def test_foreach_batch_with_two_actions(
    spark: SparkSession, source: Source, tmp_path: Path, checkpoint_format: str
) -> None:
    """Each action runs the operators of the batch again, from the same version of the state."""
    four_files(source)
    counts: dict[int, int] = {}

    def twice(batch: DataFrame, batch_id: int) -> None:
        counts[batch_id] = batch.count()
        batch.write.mode("overwrite").parquet(f"{tmp_path}/out/batch={batch_id:06d}")

    query = (
        per_key(source.stream())
        .writeStream.outputMode("update")
        .option("checkpointLocation", f"counting://{tmp_path}/run/checkpoint")
        .foreachBatch(twice)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    run = Run(tmp_path, mode="update", key=("key",))
    assert_same(run.result(spark), per_key(source.batch()))
    written = spark.read.parquet(f"{tmp_path}/out").groupBy("batch").count().collect()
    assert {int(row["batch"]): row["count"] for row in written} == {
        batch: n for batch, n in counts.items() if n
    }
