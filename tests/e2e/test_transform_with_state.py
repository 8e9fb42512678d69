"""transformWithState of both Python interfaces gives what a batch query gives."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
import statemark
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StatefulProcessor
from support import session
from support.session import LINE, STATEMARK_PROVIDER
from support.streams import Run, Source, assert_same, before_end, events, far_future

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Values = tuple[Any, ...]

# Workers cannot import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

HOUR_MS = 3_600_000


class InRows(StatefulProcessor):
    """Gives rows to a processor, and makes rows of the tuples that it returns."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def init(self, handle: Any) -> None:
        self.inner.init(handle)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        return self.output(self.inner.rows(key[0], self.rows_of(rows), timerValues))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        return self.output(self.inner.expired(key[0], expiredTimerInfo.getExpiryTimeInMs()))

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        for row in self.rows_of([initialState]):
            self.inner.initial(row)

    def rows_of(self, given: Any) -> Iterator[Any]:
        yield from given

    def output(self, found: list[Values]) -> Iterator[Any]:
        for values in found:
            yield Row(**dict(zip(self.inner.COLUMNS, values, strict=True)))


class InPandas(InRows):
    """Gives the rows of data frames to a processor, and makes a data frame of its tuples."""

    def rows_of(self, given: Any) -> Iterator[Any]:
        for frame in given:
            yield from frame.itertuples(index=False)

    def output(self, found: list[Values]) -> Iterator[Any]:
        if found:
            yield pd.DataFrame(found, columns=list(self.inner.COLUMNS))


def in_rows(df: DataFrame, inner: Any, **options: Any) -> DataFrame:
    return df.groupBy("key").transformWithState(InRows(inner), inner.OUTPUT, **options)


def in_pandas(df: DataFrame, inner: Any, **options: Any) -> DataFrame:
    return df.groupBy("key").transformWithStateInPandas(InPandas(inner), inner.OUTPUT, **options)


#: PySpark 4.0 has data frames alone.
INTERFACES = [in_pandas] if LINE == "4.0" else [in_rows, in_pandas]
both_interfaces = pytest.mark.parametrize("transform", INTERFACES)


def schema(fields: str) -> tuple[str, list[str]]:
    return fields, [field.split()[0] for field in fields.split(", ")]


def state(spark: SparkSession, run: Run, **options: str) -> DataFrame:
    """Read state through Spark's own reader."""
    reader = spark.read.format("statestore").options(path=str(run.checkpoint), **options)
    return reader.load()


class Tally:
    """Keeps a value, a list and a map for each key."""

    OUTPUT, COLUMNS = schema("key STRING, n LONG, total LONG, values LONG, top LONG")

    def init(self, handle: Any) -> None:
        self.tally = handle.getValueState("tally", "n LONG, total LONG")
        self.top = handle.getListState("top", "id LONG")
        self.values = handle.getMapState("values", "value LONG", "n LONG")

    def initial(self, row: Any) -> None:
        self.tally.update((row.n, row.total))

    def rows(self, key: str, rows: Iterator[Any], timers: Any) -> list[Values]:
        n, total = self.tally.get() if self.tally.exists() else (0, 0)
        ids = [top for (top,) in self.top.get()]
        for row in rows:
            n, total, ids = n + 1, total + row.value, [*ids, row.id]
            before = self.values.getValue((row.value,))
            self.values.updateValue((row.value,), ((before[0] if before else 0) + 1,))
        ids = sorted(ids)[-3:]
        self.tally.update((n, total))
        self.top.put([(top,) for top in ids])
        return [(key, n, total, len(list(self.values.keys())), sum(ids))]


@pytest.mark.usefixtures("checkpoint_format")
@pytest.mark.parametrize(
    ("checkpoint_format", "transform"),
    [("1", INTERFACES[-1]), ("2", INTERFACES[0])],
    indirect=["checkpoint_format"],
)
def test_value_list_and_map_state_over_a_restart(
    spark: SparkSession,
    source: Source,
    tmp_path: Path,
    provider: str,
    checkpoint_format: str,
    transform: Callable[..., DataFrame],
) -> None:
    run = Run(tmp_path / "run", mode="update", key=("key",))
    tallied = transform(source.stream(), Tally(), outputMode="Update", timeMode="None")
    for start in (0, 600):
        source.add(events(start, 300), events(start + 300, 300))
        query = run.to_end(tallied)
    metrics = query.lastProgress.stateOperators[0].customMetrics
    assert ("statemarkCommitCount" in metrics) == (provider == STATEMARK_PROVIDER)

    # The three highest ids of a key, added up.
    top = "aggregate(slice(sort_array(collect_list(id), false), 1, 3), 0L, (a, x) -> a + x)"
    rows = source.batch()
    wanted = rows.groupBy("key").agg(
        sf.count("*").alias("n"),
        sf.sum("value").alias("total"),
        sf.countDistinct("value").alias("values"),
        sf.expr(top).alias("top"),
    )
    assert_same(run.result(spark), wanted)

    session.skip_where_source_lacks_ids(checkpoint_format)
    tally = state(spark, run, stateVarName="tally").selectExpr("key.key", "value.*")
    assert_same(tally, wanted.select("key", "n", "total"))
    listed = state(spark, run, stateVarName="top").selectExpr("key.key", "list_element.id")
    assert_same(listed.groupBy("key").agg(sf.sum("id").alias("top")), wanted.select("key", "top"))
    values = state(spark, run, stateVarName="values")
    assert_same(
        values.selectExpr("key.key", "user_map_key.value", "user_map_value.n"),
        rows.groupBy("key", "value").agg(sf.count("*").alias("n")),
    )


@both_interfaces
def test_initial_state(
    spark: SparkSession, source: Source, run: Run, transform: Callable[..., DataFrame]
) -> None:
    # One key has an initial state alone, some have rows alone.
    initial = spark.createDataFrame(
        [("k0", 5, 50), ("k1", 7, 70), ("absent", 1, 10)], "key STRING, n LONG, total LONG"
    )
    source.add(events(0, 300), events(300, 300))
    run.to_end(
        transform(
            source.stream(),
            Tally(),
            outputMode="Append",
            timeMode="None",
            initialState=initial.groupBy("key"),
        )
    )
    counted = source.batch().groupBy("key").agg(sf.count("*").alias("n"), sf.sum("value"))
    wanted = (
        initial.union(counted)
        .groupBy("key")
        .agg(sf.sum("n").alias("n"), sf.sum("total").alias("total"))
    )
    tally = state(spark, run, stateVarName="tally").selectExpr("key.key", "value.*")
    assert_same(tally, wanted)


class Hourly:
    """Counts the rows of each hour, and gives the count out when the watermark passes its end."""

    OUTPUT, COLUMNS = schema("key STRING, until LONG, n LONG")

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.hours = handle.getMapState("hours", "until LONG", "n LONG")

    def rows(self, key: str, rows: Iterator[Any], timers: Any) -> list[Values]:
        for row in rows:
            before = self.hours.getValue((row.until,))
            if before is None:
                self.handle.registerTimer(row.until)
            self.hours.updateValue((row.until,), ((before[0] if before else 0) + 1,))
        return []

    def expired(self, key: str, until: int) -> list[Values]:
        (n,) = self.hours.getValue((until,))
        self.hours.removeKey((until,))
        return [(key, until, n)]


@both_interfaces
def test_event_time_timers(
    spark: SparkSession,
    provider: str,
    source: Source,
    run: Run,
    transform: Callable[..., DataFrame],
) -> None:
    def with_end(df: DataFrame) -> DataFrame:
        until = (sf.expr(f"unix_millis(ts) DIV {HOUR_MS}") + 1) * HOUR_MS
        return before_end(df.withWatermark("ts", "1 hour")).withColumn("until", until)

    source.add(*[events(i * 300, 300) for i in range(3)])
    hourly = transform(
        with_end(source.stream()), Hourly(), outputMode="Append", timeMode="EventTime"
    )
    run.to_end(hourly)
    wanted = with_end(source.batch()).groupBy("key", "until").agg(sf.count("*").alias("n"))

    # The timers of hours that the watermark has not passed wait in the state.
    (latest,) = source.batch().selectExpr("unix_millis(max(ts))").first() or (0,)
    timers = state(spark, run, readRegisteredTimers="true")
    assert_same(
        timers.selectExpr("key.key", "expiration_timestamp_ms AS until"),
        wanted.where(wanted.until > latest - HOUR_MS).select("key", "until"),
    )

    if provider == STATEMARK_PROVIDER:
        query = run.start(hourly)
        try:
            live = statemark.live(query, read_registered_timers=True)
            assert_same(live.drop("partition_id"), timers.drop("partition_id"))
        finally:
            query.stop()

    source.add(far_future())
    run.to_end(hourly)
    assert_same(run.result(spark), wanted)
    assert state(spark, run, readRegisteredTimers="true").isEmpty()


class Expiring:
    """Counts batches in states that live on, and in states that are gone by the next batch."""

    OUTPUT, COLUMNS = schema("key STRING, fired LONG, kept LONG, value LONG, list LONG, map LONG")

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.kept = handle.getValueState("kept", "n LONG", HOUR_MS)
        self.value = handle.getValueState("value", "n LONG", 1)
        self.list = handle.getListState("list", "n LONG", 1)
        self.map = handle.getMapState("map", "n LONG", "n LONG", 1)

    def rows(self, key: str, rows: Iterator[Any], timers: Any) -> list[Values]:
        n = sum(1 for _ in rows)
        kept = (self.kept.get()[0] if self.kept.exists() else 0) + n
        value = (self.value.get()[0] if self.value.exists() else 0) + n
        self.kept.update((kept,))
        self.value.update((value,))
        self.list.appendValue((n,))
        self.map.updateValue((kept,), (n,))
        # The processing time of a batch stands still; that of the next one is later.
        self.handle.registerTimer(timers.getCurrentProcessingTimeInMs() + 1)
        listed = len(list(self.list.get()))
        mapped = len(list(self.map.keys()))
        return [(key, 0, kept, value, listed, mapped)]

    def expired(self, key: str, at: int) -> list[Values]:
        return [(key, 1, 0, 0, 0, 0)]


@both_interfaces
def test_processing_time_timers_and_ttl(
    spark: SparkSession,
    source: Source,
    run: Run,
    conf: Callable[[str, str], None],
    transform: Callable[..., DataFrame],
) -> None:
    # In this mode a batch without data follows the last one, and another, for ever.
    conf("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    source.add(*[events(i * 300, 300) for i in range(3)])
    run.to_end(
        transform(source.stream(), Expiring(), outputMode="Append", timeMode="ProcessingTime")
    )
    emitted = run.result(spark)
    rows = source.batch()
    counted = rows.groupBy("key").agg(sf.count("*").alias("n"))
    seen = rows.selectExpr("key", "id DIV 300 AS batch").distinct()

    live = emitted.where("fired = 0")
    assert live.count() == seen.count()
    # What expires begins anew in each batch, so that its counts add up; what is kept is the sum.
    assert_same(live.groupBy("key").agg(sf.max("kept").alias("n")), counted)
    assert_same(live.groupBy("key").agg(sf.sum("value").alias("n")), counted)
    assert live.select("list", "map").distinct().collect() == [(1, 1)]
    kept = state(spark, run, stateVarName="kept").selectExpr("key.key", "value.value.n")
    assert_same(kept, counted)

    # A timer fires in the next batch, once; those of the last batch wait.
    assert_same(emitted.where("fired = 1").select("key"), seen.where("batch < 2").select("key"))
    waiting = state(spark, run, readRegisteredTimers="true").select("key.key")
    assert_same(waiting, seen.where("batch = 2").select("key"))
