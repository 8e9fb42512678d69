"""Queries that start and stop in one process, again and again, leave nothing behind."""

from __future__ import annotations

import gc
import os
import re
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Any

from support import sinks, topics
from support.processes import LIMIT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from support.brokers import Brokers

    Topic = Callable[..., str]

STARTS = int(os.environ.get("STATEMARK_KAFKA_STARTS", "12"))
#: What is made once is there then.
WARM_UP = 4
#: Objects of the sink and of Kafka's clients; Spark keeps notes of queries that have ended.
OURS = ("statemark.kafka.", "org.apache.kafka.")
#: Spark's pools grow as they like.
OF_A_QUERY = "kafka|statemark|stream"
#: A client that is open has an object for the metrics that the process shows.
CLIENT = "org.apache.kafka.common.utils.AppInfoParser$AppInfo"
#: Each producer has a thread. Spark's own sink keeps one for minutes, of other tests as well.
SENDER = "kafka-producer-network-thread | statemark."
#: Of all objects, and how many more a start may leave: Spark's notes of it, which take 1 MB or so.
BYTES, MOST_BYTES = "bytes", 3 * 2**20


def names(spark: SparkSession) -> list[str]:
    """Return the names of the threads that live."""
    jvm: Any = spark._jvm
    return [thread.getName() for thread in jvm.java.lang.Thread.getAllStackTraces().keySet()]


def threads(spark: SparkSession) -> Counter[str]:
    """Count living threads that queries and clients have, by the beginning of their names."""
    of_queries = (name for name in names(spark) if re.search(OF_A_QUERY, name))
    return Counter(re.split(r" |\d", name)[0] for name in of_queries)


def senders(spark: SparkSession) -> list[str]:
    """Return the threads of the sink's producers."""
    return [name for name in names(spark) if name.startswith(SENDER)]


def objects(spark: SparkSession) -> Counter[str]:
    """Count living objects of ours, and the bytes of all objects, after a collection."""
    jvm: Any = spark._jvm
    command = ["jcmd", str(jvm.java.lang.ProcessHandle.current().pid()), "GC.class_histogram"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    found: Counter[str] = Counter()
    for line in done.stdout.splitlines():
        match line.split():
            case [_, instances, _, name, *_] if name.startswith(OURS):
                found[name] += int(instances)
            case ["Total", _, size]:
                found[BYTES] = int(size)
    return found


def test_starts_and_stops_leave_nothing_behind(
    spark: SparkSession, broker: Brokers, topic: Topic, tmp_path: Path
) -> None:
    """Half of the queries are stopped as they wait for rows, the others come to their end."""
    # Spark's own source keeps a client of each query for some minutes.
    folder, target = tmp_path / "lines", topic(partitions=3)
    folder.mkdir()

    def start(number: int) -> StreamingQuery:
        writer = spark.readStream.text(str(folder)).writeStream.format(sinks.FORMAT)
        writer = writer.option("kafka.bootstrap.servers", broker.bootstrap).option("topic", target)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        if number % 2:
            writer = writer.trigger(availableNow=True)
        return writer.start()

    def run(number: int) -> None:
        hidden = folder / ".next"
        hidden.write_text(f"{number}\n")
        hidden.rename(folder / f"{number}.txt")
        query = start(number)
        if number % 2:
            query.awaitTermination()
        else:
            query.processAllAvailable()
            query.stop()
        assert query.exception() is None

    def left() -> Counter[str]:
        """Wait for the end of the last query, and count what is there."""
        wait_for("the end of producers", lambda: not senders(spark))
        gc.collect()  # an object of Python's holds a query of Spark's
        return threads(spark) + objects(spark)

    for number in range(WARM_UP):
        run(number)
    before = left()
    for number in range(WARM_UP, WARM_UP + STARTS):
        run(number)
    grown: Counter[str] = Counter()

    def is_flat() -> bool:
        grown.clear()
        after = left()
        grown.update(after - before)
        size = grown.pop(BYTES, 0)
        # What a start left behind would be there once for each of its kind.
        is_kept = any(more >= STARTS // 2 for more in grown.values())
        is_open = after[CLIENT] != before[CLIENT]
        return not is_kept and not is_open and size < STARTS * MOST_BYTES

    # Python tells the other side in its own time what it has let go.
    try:
        wait_for("what the starts have left to go", is_flat)
    except AssertionError as e:
        raise AssertionError(grown) from e
    topics.settle(broker.bootstrap, target)
    found = sorted(int(row.value) for row in topics.read(broker.bootstrap, target) if row.value)
    assert found == list(range(WARM_UP + STARTS))
