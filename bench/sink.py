"""Rows written to Kafka by Statemark's sink and by Spark's own, into bench/results/sink.json.

Both write rows of a kilobyte, from the same source, to topics of a broker on this machine. For each
interval of a trigger, batches have as many rows as Spark's sink writes in that time; both sinks
then take turns with such batches, one after the other without a pause. What is compared is how long
a batch takes, and so how many rows a second a query can sustain at that trigger.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import statemark
from measured import environment
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from support import topics
from support.brokers import Brokers, jars

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS, SPARKS = "statemark-kafka", "kafka"
#: In local mode rows and decision are one transaction; on executors each has one, and the driver's
#: decision lies between.
MASTERS = {"local": "local[2]", "cluster": "local-cluster[2,1,1024]"}
PARTITIONS = {"local": (4, 64, 200), "cluster": (4, 64)}
INTERVALS_S = {"local": (0.1, 1.0, 10.0), "cluster": (0.1, 1.0)}
ROW_BYTES = 1000
#: So many seconds of batches a turn, and at least so many batches.
TURN_S, TURN_BATCHES = 6, 2
ROUNDS = 3
#: Batches of this long are measured in one round less, behind one batch that does not count.
LONG_S = 5.0
#: Rows of the batches that calibrate, and how many come before those that count.
PROBE_ROWS, WARM = 20_000, 3


def main() -> None:
    """Measure each master in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a look: one round, fewer cases")
    parser.add_argument("--out", type=Path, default=Path("bench/results/sink.json"))
    parser.add_argument("--master", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.master:
        options.out.write_text(json.dumps(_measured(options.master, is_quick=options.quick)))
        return
    start = time.monotonic()
    cases: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "part.json"
        command = [sys.executable, __file__, "--out", str(part), *["--quick"] * options.quick]
        for master in MASTERS:
            subprocess.run([*command, "--master", master], check=True)
            cases += json.loads(part.read_text())
    results = {
        "command": "make bench-kafka" + " QUICK=1" * options.quick,
        "seconds": round(time.monotonic() - start),
        "environment": environment(),
        "cases": cases,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=1) + "\n")
    head = ("master", "partitions", "interval", "rows a batch", "Spark's ms", "ours ms", "ratio")
    print(("{:>12} " * len(head)).format(*head))
    for case in cases:
        print(
            f"{case['master']:>12} {case['partitions']:12} {case['interval_s']:12} "
            f"{case['rows']:12} {case['sparks_ms']:12.0f} {case['ours_ms']:12.0f} "
            f"{case['throughput_ratio']:12.3f}"
        )


def _measured(master: str, *, is_quick: bool) -> list[dict[str, Any]]:
    cases = []
    partitions = PARTITIONS[master][:1] if is_quick else PARTITIONS[master]
    intervals = INTERVALS_S[master][:2] if is_quick else INTERVALS_S[master]
    with _broker() as bootstrap, _session(MASTERS[master]) as spark:
        bench = Bench(spark, bootstrap)
        for count in partitions:
            base, per_row = bench.calibrate(count)
            for interval in intervals:
                rows = max(count, round((interval - base) / per_row))
                is_long = interval >= LONG_S
                rounds = 1 if is_quick else ROUNDS - is_long
                case = bench.compare(count, rows, rounds=rounds, warm=1 if is_long else WARM)
                cases.append({"master": master, "interval_s": interval, **case})
                print(cases[-1], file=sys.stderr, flush=True)
    return cases


@contextmanager
def _broker() -> Iterator[str]:
    directory = Path(tempfile.mkdtemp(prefix="bench-kafka-"))
    # Segments are deleted as soon as they are full: what was written is not read again.
    kept = {"log.retention.bytes": 64 << 20, "log.segment.bytes": 64 << 20}
    swept = {"log.retention.check.interval.ms": 5000, "log.segment.delete.delay.ms": 1000}
    try:
        with Brokers(directory, settings=kept | swept) as brokers:
            yield brokers.bootstrap
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _session(master: str) -> Iterator[SparkSession]:
    connector = [str(statemark.jar_path()), *jars("spark-connector")]
    settings = {
        "spark.jars": ",".join(connector),
        "spark.driver.extraClassPath": ":".join(connector),
        "spark.executor.extraClassPath": ":".join(connector),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
    }
    builder = SparkSession.builder.master(master).appName("bench-kafka")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


class Bench:
    """Queries of both sinks, which run one at a time."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self.spark, self.bootstrap = spark, bootstrap

    def calibrate(self, partitions: int) -> tuple[float, float]:
        """Return the seconds of Spark's sink for a batch without rows, and for each row."""
        with self._topic(partitions) as topic:
            few, many = (
                statistics.median(self._run(SPARKS, topic, partitions, rows, batches=3 + WARM)[0])
                for rows in (partitions, PROBE_ROWS)
            )
        return few, max(1e-6, (many - few) / (PROBE_ROWS - partitions))

    def compare(self, partitions: int, rows: int, *, rounds: int, warm: int) -> dict[str, Any]:
        """Let both sinks write batches of so many rows in turns."""
        took: dict[str, list[float]] = {OURS: [], SPARKS: []}
        ratios, metrics = [], []
        for turn in range(rounds):
            medians = {}
            # Neither is always the one that comes after the other.
            for sink in (OURS, SPARKS) if turn % 2 else (SPARKS, OURS):
                with self._topic(partitions) as topic:
                    seconds, told = self._run(sink, topic, partitions, rows, warm)
                took[sink] += seconds
                medians[sink] = statistics.median(seconds)
                metrics += told if sink == OURS else []
            ratios.append(medians[SPARKS] / medians[OURS])
        ours, sparks = (1000 * statistics.median(took[sink]) for sink in (OURS, SPARKS))
        return {
            "partitions": partitions,
            "rows": rows,
            "sparks_ms": sparks,
            "ours_ms": ours,
            "decision_ms": statistics.median(int(m["decisionMs"]) for m in metrics),
            "commit_ms": statistics.median(int(m["commitMs"]) for m in metrics),
            "sparks_rows_a_second": 1000 * rows / sparks,
            "ours_rows_a_second": 1000 * rows / ours,
            "throughput_ratio": statistics.median(ratios),
        }

    @contextmanager
    def _topic(self, partitions: int) -> Iterator[str]:
        """Make a topic that is there for one turn."""
        name = f"bench-{time.monotonic_ns()}"
        topics.create(self.bootstrap, name, partitions=partitions)
        yield name
        topics.delete(self.bootstrap, name)

    def _run(
        self,
        sink: str,
        topic: str,
        partitions: int,
        rows: int,
        warm: int = WARM,
        batches: int = 0,
    ) -> tuple[list[float], list[dict[str, str]]]:
        """Return the seconds of each batch that counts, and what the sink told of them."""
        checkpoint = tempfile.mkdtemp(prefix="bench-kafka-")
        source = self.spark.readStream.format("rate-micro-batch")
        df = source.option("rowsPerBatch", rows).option("numPartitions", partitions).load()
        value = sf.rpad(sf.col("value").cast("string"), ROW_BYTES, "x")
        query = (
            df.select(sf.col("value").cast("string").alias("key"), value.alias("value"))
            .writeStream.format(sink)
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("topic", topic)
            # Spark's sink would share its producer with the next turn, which would wait for rows of
            # this one: on their way when it was stopped, to a topic that is gone.
            .option("kafka.client.id", topic)
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime="0 seconds")
            .start()
        )
        try:
            counted: list[Any] = []
            begun = time.monotonic()
            while True:
                if error := query.exception():
                    raise error
                counted = [p for p in query.recentProgress if p.numInputRows][warm:]
                if len(counted) == 0:
                    begun = time.monotonic()
                is_long = time.monotonic() - begun > TURN_S and len(counted) >= TURN_BATCHES
                if len(counted) + warm >= batches if batches else is_long:
                    break
                time.sleep(0.05)
        finally:
            query.stop()
            shutil.rmtree(checkpoint, ignore_errors=True)
        seconds = [p.durationMs["triggerExecution"] / 1000 for p in counted]
        return seconds, [p.sink.metrics for p in counted if p.sink.metrics]


if __name__ == "__main__":
    main()
