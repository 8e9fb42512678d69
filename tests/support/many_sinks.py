"""A query each of whose batches writes to the next of many topics, and what its driver holds.

``python -m support.many_sinks --batches 2000 --names 200 --others 10000`` is the long run, in a
driver of 512 MB: the commit topic knows so many other sinks from the start. It prints a line of
figures for every 50 batches.
"""

from __future__ import annotations

import argparse
import struct
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from support import sinks, topics
from support.brokers import Brokers

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Batches that a decision remembers.
_REMEMBERED = 100


class Held(NamedTuple):
    """
    What the driver's process holds behind a batch.

    Attributes
    ----------
    batch
        Its number.
    clients
        Threads of Kafka's producers and admin clients, of which each client has one.
    descriptors
        Open files and sockets.
    lines
        Transactional ids that have something in memory.
    heap
        Bytes, once garbage is gone.
    """

    batch: int
    clients: int
    descriptors: int
    lines: int
    heap: int


def run(
    spark: SparkSession,
    bootstrap: str,
    checkpoint: Path,
    names: Sequence[str],
    batches: int,
    *,
    every: int = 1,
    **options: Any,
) -> list[Held]:
    """Run the query for so many batches; look after each `every` of them."""
    found: list[Held] = []

    def write(df: DataFrame, batch: int) -> None:
        if batch < batches:
            writer = df.selectExpr("CAST(value AS STRING) AS value").write.format(sinks.FORMAT)
            writer = writer.options(**options).option("kafka.bootstrap.servers", bootstrap)
            writer.option("topic", names[batch % len(names)]).option("txnVersion", batch).save()
        if batch < batches and batch % every == every - 1:
            found.append(held(spark, batch))
            if every > 1:
                print(*found[-1], flush=True)

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    writer = rows.writeStream.foreachBatch(write).trigger(processingTime="0 seconds")
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        while len(found) < batches // every:
            query.awaitTermination(1)  # it raises what has failed
    finally:
        query.stop()
    return found


def held(spark: SparkSession, batch: int) -> Held:
    """Return what the driver's process holds."""
    jvm: Any = spark._jvm
    process = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}")
    threads = (_name(thread) for thread in process.glob("task/*/comm"))
    runtime = jvm.java.lang.Runtime.getRuntime()
    runtime.gc()
    return Held(
        batch,
        # As Linux has the names of `kafka-producer-network-thread | …` and `kafka-admin-client-…`.
        sum(name.startswith(("kafka-p", "kafka-a")) for name in threads),
        len(list(process.glob("fd/*"))),
        jvm.statemark.kafka.sink.executor.SinkProcess.sinks().lineCount(),
        runtime.totalMemory() - runtime.freeMemory(),
    )


def _name(thread: Path) -> str:
    try:
        return thread.read_text()
    except OSError:  # it has ended
        return ""


def fill(bootstrap: str, commit_topic: str, others: int) -> None:
    """Write what so many other sinks have decided, as FORMAT.md has it."""
    topics.create(bootstrap, commit_topic, partitions=16, config={"cleanup.policy": "compact"})
    producer = topics.producer(bootstrap, "others")
    for first in range(0, others, 1000):
        producer.begin_transaction()
        for number in range(first, min(first + 1000, others)):
            for key, value in _records(f"other-{number}"):
                producer.produce(commit_topic, value, key, number % 16)
            producer.poll(0)
        producer.commit_transaction()


def _records(app: str) -> tuple[tuple[bytes, bytes], ...]:
    key = _utf(app) + _utf("out")
    driver = f"statemark.{app}.out.driver"
    who = _utf(app) + _utf(driver) + _utf("statemark") + struct.pack(">q", 1) + _utf("")
    decided = b"".join(
        struct.pack(">q?b16s?", batch, True, 16, app.encode().ljust(16), True)  # noqa: FBT003
        for batch in reversed(range(_REMEMBERED))
    )
    decision = struct.pack(">qi", _REMEMBERED, 0) + _utf(app) + struct.pack(">i??", 1, False, False)  # noqa: FBT003
    decision += struct.pack(">i", _REMEMBERED) + decided + struct.pack(">?i", True, 0)  # noqa: FBT003
    part = struct.pack(">qiii", _REMEMBERED, 0, 1, len(decision)) + decision
    return (
        (b"\1\1" + key, b"\1\1" + who + struct.pack(">i", 0)),
        (b"\1\2" + key + struct.pack(">i", 0), b"\1\2" + part),
    )


def _utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it in a session of its own."""
    parser = argparse.ArgumentParser(prog="python -m support.many_sinks", description=__doc__)
    parser.add_argument("--batches", type=int, default=2000)
    parser.add_argument("--names", type=int, default=200)
    parser.add_argument("--others", type=int, default=10000)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--open-sinks", type=int)
    asked = parser.parse_args(arguments)
    options = {} if asked.open_sinks is None else {"openSinks": asked.open_sinks}
    with tempfile.TemporaryDirectory() as folder, Brokers(Path(folder, "brokers")) as brokers:
        fill(brokers.bootstrap, "statemark-commits", asked.others)
        names = [f"many-{number}" for number in range(asked.names)]
        for name in names:
            topics.create(brokers.bootstrap, name)
        builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "512m")
        for name, value in sinks.settings(Path(folder)).items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        print(*Held._fields, flush=True)
        checkpoint = Path(folder, "checkpoint")
        every = asked.every
        run(spark, brokers.bootstrap, checkpoint, names, asked.batches, every=every, **options)
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
