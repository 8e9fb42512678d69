"""`df.write` with format `statemark-kafka`: each batch once, whose options say which it is."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import statemark
from pyspark.sql.functions import count, lit
from support import sinks, topics
from support.line_files import Sink, failure, rewind, set_back
from support.modes import IS_WHOLE
from support.session import STATE_STORE, STATEMARK_PROVIDER
from support.sink_driver import KEYS
from support.sinks import Job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from support.brokers import Brokers
    from support.line_files import Lines
    from support.sinks import Log

    Topic = Callable[..., str]
    Write = Callable[[DataFrame, int], None]

#: At which the driver dies, one run after another, while `foreachBatch` writes to two sinks.
PHASES = ("row-sent", "before-decision", "decision-sent", "decision-durable", "fenced", "copied")
SOME = ("decision-durable", "copied")


@pytest.fixture
def write(sink: Sink) -> Callable[..., None]:
    """Return what writes a frame to the topic."""

    def write(df: DataFrame, mode: str = "append", **options: Any) -> None:
        writer = df.write.format(sinks.FORMAT).mode(mode).options(**options)
        writer.option("kafka.bootstrap.servers", sink.bootstrap).option("topic", sink.topic).save()

    return write


def frame(spark: SparkSession, *values: str) -> DataFrame:
    return spark.createDataFrame([(value,) for value in values], "value string")


def run(lines: Lines, sink: Sink, body: Write) -> None:
    """Run a query to its end, whose batches go to `body`."""
    writer = lines.stream().writeStream.foreachBatch(body)
    writer = writer.option("checkpointLocation", str(sink.checkpoint)).trigger(availableNow=True)
    writer.start().awaitTermination()


def test_for_each_batch(lines: Lines, sink: Sink, write: Callable[..., None]) -> None:
    """The query is the default of `txnAppId`; a batch that runs again is dropped."""
    lines.add("a", "b")
    lines.add("c")
    run(lines, sink, lambda df, batch: write(df, txnVersion=batch))
    assert sink.values() == ["a", "b", "c"]
    rewind(sink.checkpoint, 1)
    lines.add("d")
    run(lines, sink, lambda df, batch: write(df, txnVersion=batch))
    assert sink.values() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("version", [1, 2])
def test_a_decided_batch_of_a_stateful_query_commits_its_state(
    lines: Lines,
    sink: Sink,
    write: Callable[..., None],
    spark: SparkSession,
    request: pytest.FixtureRequest,
    version: int,
) -> None:
    """Two sinks have decided it; the driver died before Spark's note of the batch."""
    spark.conf.set(f"{STATE_STORE}.providerClass", STATEMARK_PROVIDER)
    settings = {
        f"{STATE_STORE}.checkpointFormatVersion": str(version),
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
    for key, value in settings.items():
        spark.conf.set(key, value)
        request.addfinalizer(partial(spark.conf.unset, key))
    rows = lines.stream().observe("seen", count(lit(1)).alias("lines"))
    rows = rows.selectExpr("value", "timestamp_seconds(ascii(value)) AS at")
    counted = rows.withWatermark("at", "10 seconds").groupBy("value").count()
    counted = counted.selectExpr("concat(value, '=', count) AS value")

    def once_more() -> StreamingQuery:
        def both(df: DataFrame, batch: int) -> None:
            write(df, txnVersion=batch)
            write(
                df.selectExpr("concat('second ', value) AS value"), txnVersion=batch, sinkName="2"
            )

        writer = counted.writeStream.foreachBatch(both).outputMode("update")
        writer = writer.option("checkpointLocation", str(sink.checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    lines.add("a")
    lines.add("a")
    lines.add("a", "d")  # which moves the watermark
    once_more()
    rewind(sink.checkpoint, 2)
    lines.add("a")
    again, after = once_more().recentProgress[:2]
    once = ["a=1", "a=2", "a=3", "a=4", "d=1"]
    assert sink.values() == once + [f"second {value}" for value in once]
    assert (again.batchId, again.observedMetrics["seen"].lines) == (2, 2)
    assert (after.batchId, after.eventTime["watermark"]) == (3, "1970-01-01T00:01:30.000Z")


def test_a_decided_batch_without_state_is_computed_for_its_metrics_alone(
    lines: Lines, sink: Sink, write: Callable[..., None]
) -> None:
    lines.add("a")

    def seen(rows: DataFrame) -> list[int]:
        rewind(sink.checkpoint, 0)
        writer = rows.writeStream.foreachBatch(lambda df, batch: write(df, txnVersion=batch))
        writer = writer.option("checkpointLocation", str(sink.checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        progress = query.recentProgress[0]
        return [progress.numInputRows, *(row.lines for row in progress.observedMetrics.values())]

    observed = lines.stream().observe("seen", count(lit(1)).alias("lines"))
    assert seen(observed) == seen(observed) == [1, 1]
    assert seen(lines.stream()) == [0]
    assert sink.values() == ["a"]


def test_for_each_batch_in_a_pool_of_threads(
    lines: Lines, sink: Sink, write: Callable[..., None]
) -> None:
    """A frame says whose batch it is: the pool is older than the query, and serves others too."""
    lines.add("a", "b")
    lines.add("c")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lines.spark.range(1).count).result()

        def threaded(df: DataFrame, batch: int, **options: Any) -> None:
            pool.submit(lambda: write(df, txnVersion=batch, **options)).result()

        run(lines, sink, threaded)
        assert sink.values() == ["a", "b", "c"]
        rewind(sink.checkpoint, 1)
        run(lines, sink, lambda df, batch: write(df, txnVersion=batch))
        assert sink.values() == ["a", "b", "c"]
        lines.add("d")
        twice = lambda df, batch: (threaded(df, batch), threaded(df, batch))  # noqa: E731
        message = failure(lambda: run(lines, sink, twice))
        assert "Batch 2 is written a second time" in message, message
    assert sink.values() == ["a", "b", "c", "d"]


def test_two_frames_of_one_batch(lines: Lines, sink: Sink, write: Callable[..., None]) -> None:
    """The second one needs a name, or would be dropped as decided; the error says so."""
    lines.add("a")

    def twice(df: DataFrame, batch: int, **second: str) -> None:
        write(df.selectExpr("'first' AS value"), txnVersion=batch)
        write(df.selectExpr("'second' AS value"), txnVersion=batch, **second)

    message = failure(lambda: run(lines, sink, twice))
    assert "Batch 0 is written a second time" in message, message
    assert "Give this write a 'sinkName' of its own, and leave the first one as it is" in message
    assert sink.values() == ["first"]
    run(lines, sink, lambda df, batch: twice(df, batch, sinkName="of its own"))
    assert sink.values() == ["first", "second"]


def test_commit_topic_that_does_not_know_the_query(
    lines: Lines, sink: Sink, write: Callable[..., None]
) -> None:
    """The checkpoint does: a batch that runs again would be written again."""
    lines.add("a")
    run(lines, sink, lambda df, batch: write(df, txnVersion=batch))
    rewind(sink.checkpoint, 0)
    elsewhere = lambda df, batch: write(df, txnVersion=batch, commitTopic=f"{sink.topic}-new")  # noqa: E731
    message = failure(lambda: run(lines, sink, elsewhere))
    assert "The commit topic does not know the sink, but the checkpoint does" in message, message
    assert sink.values() == ["a"]


def test_two_topics_under_one_name(
    lines: Lines, sink: Sink, write: Callable[..., None], topic: Topic
) -> None:
    """Other options make another sink of it on the driver, which must not forget."""
    lines.add("a")
    other = topic()

    def twice(df: DataFrame, batch: int) -> None:
        write(df, txnVersion=batch, sinkName="one")
        options = {"kafka.bootstrap.servers": sink.bootstrap, "topic": other, "sinkName": "one"}
        df.write.format(sinks.FORMAT).options(**options).option("txnVersion", batch).save()

    message = failure(lambda: run(lines, sink, twice))
    assert "Batch 0 is written a second time" in message, message
    assert (sink.values(), sink.values(other)) == (["a"], [])


def test_write_that_failed_is_tried_again_by_the_user(
    lines: Lines, sink: Sink, write: Callable[..., None]
) -> None:
    """The second try has other rows, on purpose."""
    lines.add("a", "b")

    def stubborn(df: DataFrame, batch: int) -> None:
        fails = "CASE WHEN value = 'b' THEN raise_error('injected') ELSE value END AS value"
        assert "injected" in failure(lambda: write(df.selectExpr(fails), txnVersion=batch))
        write(df.selectExpr("concat(value, '-2') AS value"), txnVersion=batch)

    run(lines, sink, stubborn)
    assert sink.values() == ["a-2", "b-2"]


def test_checkpoint_deleted_with_the_app_kept(
    lines: Lines, sink: Sink, write: Callable[..., None]
) -> None:
    """Another query begins at version 0 again: its rows must not be dropped without a word."""
    lines.add("a")
    run(lines, sink, lambda df, batch: write(df, txnAppId="app", txnVersion=batch))
    shutil.rmtree(sink.checkpoint)
    lines.add("b")
    again = lambda df, batch: write(df, txnAppId="app", txnVersion=batch)  # noqa: E731
    message = failure(lambda: run(lines, sink, again))
    assert "txnVersion 0 of txnAppId app is not of this query" in message, message
    assert sink.values() == ["a"]


#: A frame whose job fails.
UNREAD = "CAST(raise_error('a job ran') AS STRING) AS value"
OTHER = "is not the one that was decided"


@pytest.mark.parametrize("options", [{}, {"txnAppId": "app"}], ids=["query", "app"])
def test_a_checkpoint_that_was_copied_or_set_back(
    lines: Lines, sink: Sink, write: Callable[..., None], tmp_path: Path, options: dict[str, str]
) -> None:
    """A batch that was planned anew is refused before a job runs: its rows would be dropped."""

    def body(df: DataFrame, batch: int) -> None:
        write(df, txnVersion=batch, **options)

    def unread(df: DataFrame, batch: int) -> None:
        write(df.selectExpr(UNREAD), txnVersion=batch, **options)

    lines.add("a")
    run(lines, sink, body)
    copied = Sink(sink.bootstrap, sink.topic, tmp_path / "copy")
    shutil.copytree(sink.checkpoint, copied.checkpoint)
    lines.add("b")
    run(lines, copied, body)
    lines.add("c")
    message = failure(lambda: run(lines, sink, unread))
    assert f"Batch 1 {OTHER}: its sources end elsewhere now" in message, message
    # As a crash of the machine may take the last entry of the offset log.
    set_back(copied.checkpoint, 1)
    assert f"Batch 1 {OTHER}" in failure(lambda: run(lines, copied, unread))
    # The query's id is all that is left.
    for log in ("offsets", "commits"):
        shutil.rmtree(copied.checkpoint / log)
    assert f"Batch 0 {OTHER}" in failure(lambda: run(lines, copied, unread))
    assert sink.values() == ["a", "b"]


def test_from_the_streaming_sink_to_for_each_batch(
    lines: Lines, sink: Sink, write: Callable[..., None]
) -> None:
    """They are one sink: what one has decided, the other compares."""
    lines.add("a")
    lines.add("b")
    sink.run(lines.stream())
    rewind(sink.checkpoint, 1)
    run(lines, sink, lambda df, batch: write(df.selectExpr(UNREAD), txnVersion=batch))
    set_back(sink.checkpoint, 1)
    lines.add("c")
    unread = lambda df, batch: write(df.selectExpr(UNREAD), txnVersion=batch)  # noqa: E731
    assert f"Batch 1 {OTHER}" in failure(lambda: run(lines, sink, unread))
    assert sink.values() == ["a", "b"]


def test_a_query_whose_name_a_job_without_a_query_had(
    lines: Lines, sink: Sink, write: Callable[..., None], spark: SparkSession
) -> None:
    write(frame(spark, "of the job"), txnAppId="daily", txnVersion=0)
    lines.add("a")
    unread = lambda df, batch: write(df.selectExpr(UNREAD), txnAppId="daily", txnVersion=batch)  # noqa: E731
    message = failure(lambda: run(lines, sink, unread))
    assert f"Batch 0 {OTHER}: a write outside of queries has decided it" in message, message
    assert sink.values() == ["of the job"]


def test_a_version_that_is_not_the_number_of_the_batch(
    lines: Lines, sink: Sink, write: Callable[..., None]
) -> None:
    """Two versions of each batch, of one sink: what is compared is the batch that runs."""

    def body(df: DataFrame, batch: int) -> None:
        write(df, txnVersion=1000 + 2 * batch)
        write(df.selectExpr("concat(value, '-2') AS value"), txnVersion=1001 + 2 * batch)

    lines.add("a")
    lines.add("b")
    run(lines, sink, body)
    rewind(sink.checkpoint, 1)
    run(lines, sink, body)
    set_back(sink.checkpoint, 1)
    lines.add("c")
    assert f"Batch 1002 {OTHER}" in failure(lambda: run(lines, sink, body))
    assert sink.values() == ["a", "a-2", "b", "b-2"]


def test_jobs_without_a_query(
    spark: SparkSession,
    sink: Sink,
    write: Callable[..., None],
    broker: Brokers,
    topic: Topic,
    log: Log,
) -> None:
    write(frame(spark, "a"), txnAppId="daily", txnVersion=1)
    write(frame(spark, "b"), txnAppId="daily", txnVersion=2)
    write(frame(spark, "x"), txnAppId="daily", txnVersion=2)
    assert "WARN" in log.await_line("is decided already: nothing is written")
    message = failure(lambda: write(frame(spark, "x"), txnAppId="daily", txnVersion=0))
    assert "Version 0 of txnAppId daily comes too late" in message, message
    # Nobody can repeat a write without a number: nothing of it is kept.
    before = known(broker)
    write(frame(spark, "c"), mode="errorifexists")
    assert known(broker) == before
    # Nor of one that is refused when its rows are there already.
    small = [sink.topic, topic(config={"cleanup.policy": "compact"})]
    rows = spark.createDataFrame(
        [(name, "k", "x") for name in small], "topic string, key string, value string"
    )
    writer = rows.write.format(sinks.FORMAT).option("kafka.bootstrap.servers", sink.bootstrap)
    assert "is compacted too soon" in failure(writer.mode("append").save)
    assert known(broker) == before
    assert sink.values() == ["a", "b", "c"]


def test_writes_without_a_number_are_told_of(
    lines: Lines, sink: Sink, write: Callable[..., None], log: Log
) -> None:
    lines.add("a")
    lines.add("b")
    run(lines, sink, lambda df, _: write(df))
    (line,) = log.lines("writes a batch without option 'txnVersion'")
    assert line.startswith("WARN")


def known(broker: Brokers) -> int:
    """Return how many keys of the commit topic have a value."""
    last = {row.key: row.value for row in topics.read(broker.bootstrap, "statemark-commits")}
    return sum(value is not None for value in last.values())


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"txnVersion": 1}, "outside of foreachBatch nobody knows whose number it is"),
        ({"txnAppId": "a"}, "it says nothing without 'txnVersion'"),
        ({"txnAppId": "a", "txnVersion": -1}, "Option 'txnVersion' is refused"),
        ({"txnAppId": "a", "txnVersion": "one"}, "Option 'txnVersion' is refused"),
        ({"txnAppId": " ", "txnVersion": 1}, "Option 'txnAppId' is refused"),
        ({"txnAppId": "a" * 1001, "txnVersion": 1}, "it has 1001 characters"),
        ({"mode": "overwrite"}, "rows can only be appended to a topic"),
        ({"mode": "ignore"}, "rows can only be appended to a topic"),
        ({"kafka.acks": "1"}, "Option 'kafka.acks' is refused"),
        ({"kafka.Own.Plugin": "1"}, "Option 'kafka.Own.Plugin' is unknown"),
    ],
)
def test_what_is_refused(
    spark: SparkSession, write: Callable[..., None], options: dict[str, Any], part: str
) -> None:
    message = failure(lambda: write(frame(spark, "a"), **options))
    assert part in message, message


def test_failures_by_their_kinds(spark: SparkSession, write: Callable[..., None]) -> None:
    """Those of tasks, too."""

    def kind_of(*values: str, **options: Any) -> type | None:
        with pytest.raises(Exception) as failed:  # which one is Spark's affair
            write(frame(spark, *values), **options)
        error = statemark.error_of(failed.value)
        return error and type(error)

    assert kind_of("a", **{"kafka.acks": "1"}) is statemark.RefusedSettingError
    assert kind_of("a", **{"kafka.max.request.size": "1000"}) is statemark.RefusedSettingError
    assert kind_of("x" * 1_100_000) is statemark.UnsendableRowError
    sasl = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    assert kind_of("a", **sasl) is statemark.RefusedSettingError
    write(frame(spark, "b"), txnAppId="kinds", txnVersion=2)
    assert kind_of("c", txnAppId="kinds", txnVersion=1) is statemark.WrongHistoryError


@pytest.mark.parametrize("phases", [PHASES if IS_WHOLE else SOME], ids=["phases"])
def test_driver_dies_in_for_each_batch(
    broker: Brokers, topic: Topic, tmp_path: Path, spark: SparkSession, phases: tuple[str, ...]
) -> None:
    job = Job(tmp_path / "job", broker.bootstrap, topic(partitions=3))
    job.query["in_batches"] = True
    for phase in phases:
        job.add()
        assert job.run(phase) != 0, job.log()
        assert job.died(phase), job.log()
    job.run_in(spark)
    for verdict in job.judge_all("", KEYS):
        assert verdict.is_right, verdict
        assert verdict.rows > 0
