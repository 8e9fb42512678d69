"""Failures in the virtual machine come to Python by their kinds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
import statemark
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as sf
from statemark import _jvm, errors, settings
from support.session import STATEMARK_PROVIDER
from support.streams import Source, events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BEYOND = statemark.Position(batch_id=0, offsets=('{"logOffset": 99}',))


@pytest.fixture
def start(provider: str, source: Source, tmp_path: Path) -> Iterator[Callable[[], StreamingQuery]]:
    """Starts a count by key."""
    if provider != STATEMARK_PROVIDER:
        pytest.skip("Spark's provider has none of these errors")
    started: list[StreamingQuery] = []

    def count() -> StreamingQuery:
        source.add(events(0, 50))
        counts = source.stream().groupBy("key").agg(sf.count("*").alias("n"))
        writer = counts.writeStream.outputMode("update").format("noop")
        started.append(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start())
        return started[-1]

    yield count
    for query in started:
        query.stop()


@pytest.mark.usefixtures("spark")
def test_python_has_the_kinds_of_the_virtual_machine() -> None:
    wanted = {name: kind.is_retryable for name, kind in errors.KINDS.items()}
    assert _jvm.kinds() == wanted
    assert len(wanted) > 10


def test_a_lookup_fails_with_the_kind(start: Callable[[], StreamingQuery]) -> None:
    query = start()
    query.processAllAvailable()
    with pytest.raises(statemark.PositionBoundError, match="99") as late:
        statemark.get(query, {"key": 1}, position_bound=BEYOND, timeout=0)
    assert late.value.is_retryable
    with pytest.raises(statemark.InvalidInputError, match="a key has") as wrong:
        statemark.get(query, {"key": 1, "k": 1})
    assert not wrong.value.is_retryable


def test_an_interrupt_is_a_kind_of_its_own(
    spark: SparkSession, start: Callable[[], StreamingQuery]
) -> None:
    query = start()
    query.processAllAvailable()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(statemark.get, query, {"key": 1}, position_bound=BEYOND, timeout=300)
        while not waiting.done() and not _interrupted(spark, "LiveQueries"):
            pass
        with pytest.raises(statemark.CallInterruptedError, match="interrupted") as stopped:
            waiting.result()
    assert not stopped.value.is_retryable


def test_a_query_over_a_view_of_a_table_has_a_kind(
    spark: SparkSession, start: Callable[[], StreamingQuery]
) -> None:
    query = start()
    query.processAllAvailable()
    statemark.live(query, position_bound=BEYOND, timeout=0).createOrReplaceTempView("late")
    # pyspark has no class of its own for an exception that is none of Spark's.
    with pytest.raises((PySparkException, Py4JJavaError)) as late:
        spark.sql("SELECT * FROM late").collect()
    error = statemark.error_of(late.value)
    assert type(error) is statemark.PositionBoundError
    assert "99" in error.reason
    assert statemark.error_of(ValueError("of another")) is None


def test_a_query_that_fails_has_a_kind(
    start: Callable[[], StreamingQuery], conf: Callable[[str, str], None]
) -> None:
    conf(f"{settings.PREFIX}isolationLevel", "SERIALIZABLE")
    query = start()
    with pytest.raises(PySparkException) as raised:
        query.awaitTermination()
    failed = query.exception()
    assert failed is not None
    for exception in (raised.value, failed):
        error = statemark.error_of(exception)
        assert type(error) is statemark.InvalidInputError, exception
        assert "SERIALIZABLE" in error.reason


def _interrupted(spark: SparkSession, where: str) -> bool:
    """Interrupt the thread of the virtual machine that waits in a class; tell whether one does."""
    jvm: Any = spark._jvm
    for thread, frames in dict(jvm.java.lang.Thread.getAllStackTraces()).items():
        if any(where in frame.getClassName() for frame in frames):
            thread.interrupt()
            return True
    return False


def test_the_kafka_format_names_the_library_that_it_lacks(
    spark: SparkSession, provider: str, tmp_path: Path
) -> None:
    if provider != STATEMARK_PROVIDER:
        pytest.skip("a format of Statemark's jar")
    rows = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
    writer = rows.writeStream.format("statemark-kafka").option("topic", "orders")
    writer = writer.option("kafka.bootstrap.servers", "127.0.0.1:1")
    lacks = "org.apache.kafka:kafka-clients"
    # Spark's own class, whose text is three lines and no stack.
    with pytest.raises(AnalysisException, match=lacks) as failed:
        writer.option("checkpointLocation", str(tmp_path)).start()
    assert str(failed.value).startswith("A write of format 'statemark-kafka' failed\n  reason: ")
    assert type(statemark.error_of(failed.value)) is statemark.MissingLibraryError
    connector = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
    assert connector in str(failed.value)
