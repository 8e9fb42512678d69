"""Format `statemark-kafka` in a session: what it writes, what it says, and what it refuses."""

from __future__ import annotations

import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from confluent_kafka import Producer
from support import topics
from support.brokers import client_settings, with_sparks_source
from support.line_files import Lines, Sink, failure, rewind
from support.processes import LIMIT_S, wait_for
from support.session import (
    IS_BEFORE_42,
    IS_FROM_43,
    SPARK_PROVIDER,
    STATE_STORE,
    STATEMARK_PROVIDER,
)
from support.topics import Isolation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.state import GroupState
    from support.brokers import Brokers
    from support.sinks import Log

    Topic = Callable[..., str]


class Source:
    """A topic that a query reads, of one partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.producer = Producer(client_settings(bootstrap))

    def put(self, value: str) -> None:
        """Add a row."""
        self.producer.produce(self.topic, value.encode())
        assert self.producer.flush(LIMIT_S) == 0

    def stream(self, spark: SparkSession) -> DataFrame:
        reader = spark.readStream.format("kafka").option("subscribe", self.topic)
        reader = reader.option("kafka.bootstrap.servers", self.bootstrap)
        rows = reader.option("startingOffsets", "earliest").load()
        return rows.selectExpr("CAST(value AS STRING) AS value")


def counted(lines: Lines) -> DataFrame:
    """A stateful query."""
    return (
        lines.stream()
        .groupBy("value")
        .count()
        .selectExpr("value AS key", "concat(value, '=', count) AS value")
    )


def gauges(spark: SparkSession) -> dict[str, int]:
    """The gauges of the plugin, by name."""
    jvm: Any = spark._jvm
    system = jvm.org.apache.spark.SparkEnv.get().metricsSystem()
    source = system.getSourcesByName("plugin.statemark.spark.StatemarkPlugin").head()
    return {name: g.getValue() for name, g in source.metricRegistry().getGauges().items()}


def test_append_and_restart(lines: Lines, sink: Sink, log: Log, spark: SparkSession) -> None:
    lines.add("a", "b")
    lines.add("c")
    query = sink.run(lines.stream())
    assert sink.values() == ["a", "b", "c"]
    last = query.lastProgress.sink
    assert last.description == f"statemark-kafka[{sink.topic}]"
    assert last.metrics["batch"] == "1"
    assert last.metrics["rows"] == "1"
    assert last.metrics["transactions"] == "1"
    assert last.metrics["discardedBatches"] == "0"
    lines.add("d")
    sink.run(lines.stream())
    assert sink.values() == ["a", "b", "c", "d"]
    shown = gauges(spark)
    own = {n.rpartition(".")[2]: g for n, g in shown.items() if f".{sink.topic}." in n}
    # Those of both runs.
    assert own == {
        "batchesDecided": 3,
        "batchesCompleted": 3,
        "discardedBatches": 0,
        "rows": 4,
        "refusedRows": 0,
        "copiedRows": 0,
    }
    assert (shown["kafka.openTransactions"], shown["kafka.oldestTransactionMs"]) == (0, 0)
    assert (sink.checkpoint / "_statemark/kafka" / str(sink.topic)).is_file()
    # One line for each run, and no warning.
    first, second = log.lines("INFO Sink ")
    assert f"{query.id}/{sink.topic}, run 1: nothing is decided yet" in first
    assert "run 2: batch 1 was decided last, it is complete; 0 open transactions" in second
    assert not [line for line in log.lines("WARN") if "was made" not in line]


@pytest.mark.parametrize(
    ("mode", "wanted", "provider"),
    [
        ("update", ["a=1", "a=2", "b=1", "c=1"], STATEMARK_PROVIDER),
        ("complete", ["a=1", "a=2", "b=1", "b=1", "c=1"], SPARK_PROVIDER),
    ],
)
def test_modes_of_a_stateful_query(
    lines: Lines, sink: Sink, spark: SparkSession, mode: str, wanted: list[str], provider: str
) -> None:
    spark.conf.set(f"{STATE_STORE}.providerClass", provider)
    lines.add("a", "b")
    lines.add("a", "c")
    sink.run(counted(lines), mode)
    assert sink.values() == wanted
    # The state is what the first try left, the output as well.
    rewind(sink.checkpoint, 1)
    lines.add("b")
    query = sink.run(counted(lines), mode)
    assert query.recentProgress[0].sink.metrics["discardedBatches"] == "1"
    more = ["b=2"] if mode == "update" else ["a=2", "b=2", "c=1"]
    assert sink.values() == sorted([*wanted, *more])


def test_all_columns(lines: Lines, sink: Sink) -> None:
    lines.add("x")
    df = lines.stream().selectExpr(
        "'k' AS key",
        "CAST(value AS BINARY) AS value",
        "2 AS partition",
        "array(struct('h', CAST('1' AS BINARY)), struct('n', CAST(NULL AS BINARY))) AS headers",
        "timestamp_millis(1234567890123) AS timestamp",
    )
    sink.run(df, includeHeaders="true")
    (row,) = sink.rows()
    assert (row.partition, row.key, row.value) == (2, b"k", b"x")
    assert row.headers == (("h", b"1"), ("n", None))
    assert row.timestamp == 1234567890123


def test_topic_of_each_row(lines: Lines, broker: Brokers, topic: Topic, tmp_path: Path) -> None:
    first, second = topic(), topic()
    sink = Sink(broker.bootstrap, None, tmp_path / "checkpoint")
    df = lines.stream().selectExpr("split(value, ' ')[0] AS topic", "value")
    lines.add(f"{first} 1")
    sink.run(df)
    lines.add(f"{second} 2", f"{first} 3")
    sink.run(df)
    assert sink.values(first) == [f"{first} 1", f"{first} 3"]
    assert sink.values(second) == [f"{second} 2"]


def test_batches_without_rows(lines: Lines, sink: Sink) -> None:
    for line in ("a", "b", "c"):
        lines.add(line)
    query = sink.run(lines.stream().where("value = 'b'"))
    assert sink.values() == ["b"]
    assert query.lastProgress.sink.metrics["rows"] == "0"


def fails_once(lines: Lines) -> DataFrame:
    """A query whose task fails when it has sent rows."""
    value = "CASE WHEN attempt() = 0 AND value = 'last' THEN raise_error('injected') ELSE value END"
    return lines.stream().coalesce(1).selectExpr(f"{value} AS value")


def test_task_that_fails_after_rows_were_sent(lines: Lines, sink: Sink, topic: Topic) -> None:
    """Spark's own sink writes them again."""
    wanted = [*(f"row {i}" for i in range(1000)), "last"]
    lines.add(*wanted)
    sink.run(fails_once(lines))
    assert sink.values() == sorted(wanted)
    own = Sink(sink.bootstrap, topic(), sink.checkpoint.with_name("own"))
    own.run(fails_once(lines), sink="kafka")
    assert len(own.values()) > len(set(own.values())) == len(wanted)


def test_batch_that_failed_is_written_anew(lines: Lines, sink: Sink) -> None:
    """The second try has other rows, on purpose."""
    lines.add("a", "b", "last")
    fails = "CASE WHEN value = 'last' THEN raise_error('injected') ELSE concat(value, '-1') END"
    message = failure(lambda: sink.run(lines.stream().selectExpr(f"{fails} AS value")))
    assert "injected" in message
    assert sink.values() == []
    again = lines.stream().where("value != 'b'").selectExpr("concat(value, '-2') AS value")
    sink.run(again)
    assert sink.values() == ["a-2", "last-2"]


def of_run(lines: Lines, run: int) -> DataFrame:
    """A query whose rows say which run has written them."""
    return lines.stream().selectExpr(f"concat(value, '-{run}') AS value")


def test_rerun_of_a_decided_batch_is_dropped(lines: Lines, sink: Sink) -> None:
    lines.add("a")
    sink.run(of_run(lines, 1))
    rewind(sink.checkpoint, 0)
    lines.add("b")
    query = sink.run(of_run(lines, 2))
    assert sink.values() == ["a-1", "b-2"]
    assert query.lastProgress.sink.metrics["discardedBatches"] == "1"


def test_first_run_after_sparks_own_sink(lines: Lines, sink: Sink, log: Log) -> None:
    """A batch that runs again may be there already; one that is planned now is not."""
    lines.add("a")
    sink.run(lines.stream(), sink="kafka")
    lines.add("b")
    sink.run(lines.stream(), sinkName="new")
    assert not log.lines("before this sink's first run")
    rewind(sink.checkpoint, 1)
    sink.run(lines.stream(), sinkName="rerun")
    assert "WARN" in log.await_line("Batch 1 was planned before this sink's first run")
    assert sink.values() == ["a", "b", "b"]


def test_checkpoint_deleted_writes_all_again(lines: Lines, sink: Sink, log: Log) -> None:
    lines.add("a")
    first = sink.run(lines.stream(), name="totals")
    shutil.rmtree(sink.checkpoint)
    sink.run(lines.stream(), name="totals")
    assert sink.values() == ["a", "a"]  # another query: nobody can know
    warning = log.await_line(f"Another query {first.id} of the name 'totals' has written")
    assert "last batch 0: if its checkpoint was deleted" in warning


def test_checkpoint_rewound_fails_by_name(lines: Lines, sink: Sink, tmp_path: Path) -> None:
    lines.add("a")
    sink.run(lines.stream())
    shutil.copytree(sink.checkpoint, tmp_path / "backup")
    lines.add("b")
    sink.run(lines.stream())
    shutil.rmtree(sink.checkpoint)
    shutil.move(tmp_path / "backup", sink.checkpoint)
    # The same number of files, so the same counter: only that later batches are decided tells.
    lines.add("c")
    rewind(sink.checkpoint, 0)
    message = failure(lambda: sink.run(lines.stream()))
    assert "is not the one that was decided" in message, message
    assert "sinkName" in message
    assert sink.values() == ["a", "b"]


def test_copied_checkpoint_fails_by_name(lines: Lines, sink: Sink, tmp_path: Path) -> None:
    """The copy goes another way, with as many files: counters are equal, times of plans are not."""
    lines.add("a")
    sink.run(lines.stream())
    shutil.copytree(sink.checkpoint, tmp_path / "copy")
    lines.add("b")
    lines.add("c")
    sink.run(lines.stream())
    for file in lines.folder.glob("*.txt"):
        file.unlink()
    lines.add("z")
    copied = Sink(sink.bootstrap, sink.topic, tmp_path / "copy")
    message = failure(lambda: copied.run(lines.stream()))
    assert "Batch 1 is not the one that was decided: its sources end elsewhere" in message, message
    assert sink.values() == ["a", "b", "c"]


def test_two_queries_and_a_name_that_begins_another(
    lines: Lines, sink: Sink, tmp_path: Path
) -> None:
    lines.add("a")
    names = {"orders": tmp_path / "c1", "orders.dlq": tmp_path / "c2"}
    for _ in range(2):
        for name, checkpoint in names.items():
            Sink(sink.bootstrap, sink.topic, checkpoint).run(lines.stream(), sinkName=name)
        lines.add("b")
    assert Counter(sink.values()) == {"a": 2, "b": 2}


def test_row_that_is_too_large_is_named(lines: Lines, sink: Sink) -> None:
    lines.add("small")
    df = lines.stream().selectExpr("'the key' AS key", "repeat(value, 400000) AS value")
    message = failure(lambda: sink.run(df))
    assert "too large" in message
    assert "key=the key" in message
    assert "bytes=2000007" in message
    assert f"topic={sink.topic}" in message
    assert sink.values() == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kafka.acks": "1"}, "kafka.acks"),
        ({"kafka.enable.idempotence": "false"}, "kafka.enable.idempotence"),
        ({"kafka.retries": "0"}, "kafka.retries"),
        ({"kafka.transactional.id": "mine"}, "transactionalIdPrefix"),
        ({"kafka.max.in.flight.requests.per.connection": "6"}, "max.in.flight"),
        ({"asyncProgressTrackingEnabled": "true"}, "Asynchronous progress"),
        (
            {
                "asyncProgressTrackingEnabled": "true",
                "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
            },
            "Asynchronous progress",
        ),
        ({"onLostRows": "perhaps"}, "onLostRows"),
    ],
)
def test_refused_options(lines: Lines, sink: Sink, options: dict[str, str], named: str) -> None:
    lines.add("a")
    # Before the query starts: no task has run, and none will.
    message = failure(lambda: sink.start(lines.stream(), **options))
    assert named in message
    assert not sink.checkpoint.exists()


def test_continuous_trigger_is_refused(spark: SparkSession, sink: Sink) -> None:
    df = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
    query = sink.start(df, trigger={"continuous": "1 second"})
    assert "The continuous trigger is refused" in failure(query.awaitTermination)


@pytest.mark.skipif(IS_BEFORE_42, reason="newer than that line")
def test_real_time_mode_is_refused(spark: SparkSession, sink: Sink) -> None:
    """Also where Spark's own list of sinks is switched off."""
    rows = spark.readStream.format("kafka").option("kafka.bootstrap.servers", sink.bootstrap)
    df = rows.option("subscribe", str(sink.topic)).load().selectExpr("value")
    spark.conf.set("spark.sql.streaming.realTimeMode.allowlistCheck", "false")
    # Spark 4.3 refuses it by itself, as the query starts.
    says = "not support async progress" if IS_FROM_43 else "Real-time mode is refused"
    trigger = {"realTime": "5 minutes"}
    try:
        assert says in failure(lambda: sink.start(df, "update", trigger=trigger).awaitTermination())
    finally:
        spark.conf.unset("spark.sql.streaming.realTimeMode.allowlistCheck")


def test_columns_that_cannot_be_written(lines: Lines, sink: Sink) -> None:
    lines.add("a")
    message = failure(lambda: sink.run(lines.stream().selectExpr("1 AS value")))
    assert "Column 'value' is of a type" in message
    message = failure(lambda: sink.run(lines.stream().selectExpr("value AS val")))
    assert "no column 'value'" in message
    headers = "array(struct(CAST(NULL AS STRING), CAST('1' AS BINARY))) AS headers"
    message = failure(lambda: sink.run(lines.stream().selectExpr("value", headers)))
    assert "one of its headers has no key" in message, message
    message = failure(lambda: sink.run(lines.stream().selectExpr("value", "-1 AS partition")))
    assert "its column 'partition' is negative" in message


def test_stop_ends_open_transactions_at_once(lines: Lines, sink: Sink) -> None:
    lines.add("a", "sleep")
    # The task has sent a row, and would go on for ten minutes.
    sleep = "java_method('java.lang.Thread', 'sleep', 600000L)"
    slow = lines.stream().selectExpr(f"if(value = 'sleep', {sleep}, value) AS value")
    query = sink.start(slow)
    name = str(sink.topic)

    def is_open() -> bool:
        ends = [sum(topics.ends(sink.bootstrap, name, level).values()) for level in Isolation]
        return ends[0] != ends[1]

    wait_for("an open transaction", is_open)
    query.stop()
    assert query.exception() is None
    # Long before its timeout, which is 15 minutes.
    topics.settle(sink.bootstrap, name)
    assert sink.values() == []


def test_a_restored_checkpoint_whose_batch_has_more_files_loses_nothing(
    lines: Lines, sink: Sink, tmp_path: Path
) -> None:
    """The file source only counts: a batch that is planned anew ends at the same offset."""

    def stream() -> DataFrame:
        return lines.spark.readStream.text(str(lines.folder))

    lines.add("a")
    sink.run(stream())
    shutil.copytree(sink.checkpoint, tmp_path / "backup")
    lines.add("b")
    sink.run(stream())
    shutil.rmtree(sink.checkpoint)
    shutil.move(tmp_path / "backup", sink.checkpoint)
    lines.add("c")
    assert "Batch 1 is not the one that was decided" in failure(lambda: sink.run(stream()))
    assert sink.values() == ["a", "b"]


@with_sparks_source
def test_a_copy_that_diverged_over_a_batch_without_rows_fails_by_name(
    spark: SparkSession, sink: Sink, broker: Brokers, topic: Topic, tmp_path: Path
) -> None:
    source = Source(broker.bootstrap, topic())

    def stream() -> DataFrame:
        return source.stream(spark).where("value <> 'skipped'")

    source.put("a")
    sink.run(stream())
    shutil.copytree(sink.checkpoint, tmp_path / "copy")
    source.put("skipped")
    sink.run(stream())  # batch 1, which decides nothing
    source.put("b")
    Sink(sink.bootstrap, sink.topic, tmp_path / "copy").run(stream())  # batch 1, decided
    source.put("c")
    assert "Batch 1 is not the one that was decided" in failure(lambda: sink.run(stream()))
    assert sink.values() == ["a", "b"]


@with_sparks_source
def test_a_restored_checkpoint_of_a_query_with_timers_fails_by_name(
    spark: SparkSession, sink: Sink, broker: Brokers, topic: Topic, tmp_path: Path
) -> None:
    """Equal ends in Kafka say equal input: what timers make of it depends on when a batch runs."""
    source = Source(broker.bootstrap, topic())

    def count(
        key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        rows = 0 if state.hasTimedOut else sum(len(frame) for frame in frames)
        if not state.hasTimedOut:
            state.setTimeoutDuration(3_600_000)
        yield pd.DataFrame({"value": [f"{key[0]} {rows}"]})

    def stream() -> DataFrame:
        return (
            source.stream(spark)
            .groupBy("value")
            .applyInPandasWithState(
                count, "value string", "n long", "append", "ProcessingTimeTimeout"
            )
        )

    once = {"once": True}  # with such timers, one batch without data follows another
    source.put("a")
    sink.run(stream(), trigger=once)
    shutil.copytree(sink.checkpoint, tmp_path / "backup")
    source.put("b")
    sink.run(stream(), trigger=once)
    shutil.rmtree(sink.checkpoint)
    shutil.move(tmp_path / "backup", sink.checkpoint)
    assert "Batch 1 is not the one that was decided" in failure(
        lambda: sink.run(stream(), trigger=once)
    )
    assert sink.values() == ["a 1", "b 1"]


@with_sparks_source
def test_a_query_whose_timers_go_over_to_processing_time_goes_on(
    spark: SparkSession, sink: Sink, broker: Brokers, topic: Topic
) -> None:
    """What its batches were is compared by the plan that they had: the one that runs again, too."""
    source = Source(broker.bootstrap, topic())

    def count(
        key: tuple[Any, ...], frames: Iterator[pd.DataFrame], _: GroupState
    ) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame({"value": [f"{key[0]} {sum(len(frame) for frame in frames)}"]})

    def run(timers: str) -> None:
        rows = source.stream(spark).selectExpr("value", "timestamp_seconds(1) AS at")
        keys = rows.withWatermark("at", "1 second").groupBy("value")
        counts = keys.applyInPandasWithState(count, "value string", "n long", "append", timers)
        sink.run(counts, trigger={"once": True})

    source.put("a")
    run("EventTimeTimeout")
    rewind(sink.checkpoint, 0)
    source.put("b")
    for _ in range(2):  # batch 0 again, then batch 1
        run("ProcessingTimeTimeout")
    source.put("c")
    run("EventTimeTimeout")
    assert sink.values() == ["a 1", "b 1", "c 1"]
