"""Reads of a running query, local and on executors of their own, into bench/results/live.json.

A query counts the rows of 100,000 keys. It is read while it has a second between its batches. Then
a query that runs without a pause is: its batches with readers are compared with those without, a
few seconds of each in turn. It has one core, so that its readers need not take theirs from it.
Every figure is of one run on one machine.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import statemark
from measured import environment
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

#: Of the query that is read at leisure, and of the one that is busy.
MASTERS = {
    "local": ("local[2]", "local[1]"),
    "cluster": ("local-cluster[2,1,1024]", "local-cluster[1,1,1024]"),
}
KEYS = 100_000
ROWS = 50_000
PARTITIONS = 4
#: Two batches bring every key once; some more, and the virtual machine has compiled what runs.
WARM = 9
#: Reads before batches are measured beside readers: until then the virtual machine compiles what a
#: read goes through, on the query's cores. What each get calls once is compiled after 5,000 calls.
WARM_GETS = 8000
WARM_SCANS = 60
ROUNDS = 6


def main() -> None:
    """Measure each master in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a look: a tenth of the reads")
    parser.add_argument("--out", type=Path, default=Path("bench/results/live.json"))
    parser.add_argument("--master", help=argparse.SUPPRESS)
    parser.add_argument("--busy", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.master:
        measured = _slowed if options.busy else _read
        options.out.write_text(json.dumps(measured(options.master, is_quick=options.quick)))
        return
    start = time.monotonic()
    rounds = 1 if options.quick else ROUNDS
    masters: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "part.json"
        command = [sys.executable, __file__, "--out", str(part), *["--quick"] * options.quick]
        for name, (leisure, busy) in MASTERS.items():
            masters[name] = {}
            for arguments in (["--master", leisure], ["--master", busy, "--busy"]):
                subprocess.run(command + arguments, check=True)
                masters[name] |= json.loads(part.read_text())
    results = {
        "command": "make bench-live" + " QUICK=1" * options.quick,
        "seconds": round(time.monotonic() - start),
        "warm-up": {"gets": _warm(WARM_GETS, rounds), "scans": _warm(WARM_SCANS, rounds)},
        "environment": environment(),
        "masters": masters,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=1) + "\n")
    for name, figures in masters.items():
        for figure, value in figures.items():
            print(f"{name:8} {figure:56} {value:10.3f}")


def _read(master: str, *, is_quick: bool) -> dict[str, float]:
    scale = 10 if is_quick else 1
    with _session(master) as spark, _query(spark, trigger="1 second") as (query, checkpoint):
        figures = _lookups(query, 5000 // scale, 100 // scale)
        return figures | _scans(spark, query, checkpoint, max(2, 10 // scale))


def _slowed(master: str, *, is_quick: bool) -> dict[str, float]:
    with _session(master) as spark, _query(spark, trigger="0 seconds") as (query, _):
        return _slowdowns(query, rounds=1 if is_quick else ROUNDS, seconds=8)


@contextmanager
def _session(master: str) -> Iterator[SparkSession]:
    builder = statemark.configure(SparkSession.builder.master(master).appName("bench-live"))
    # Executors of a cluster load the plugin when they start, before Spark sends them its jar.
    settings = {
        "spark.executor.extraClassPath": str(statemark.jar_path()),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.sql.shuffle.partitions": PARTITIONS,
        "spark.sql.streaming.numRecentProgressUpdates": 100_000,
    }
    for key, value in settings.items():
        builder = builder.config(key, str(value))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _query(spark: SparkSession, *, trigger: str) -> Iterator[tuple[StreamingQuery, Path]]:
    """Run the query, and give it and its checkpoint once it is warm."""
    directory = Path(tempfile.mkdtemp(prefix="bench-live-"))
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    # 7,919 has no divisor in common with the number of keys: every batch has keys of all places.
    key = (sf.col("value") * 7919) % KEYS
    query = (
        source.withColumn("key", key)
        .groupBy("key")
        .agg(sf.count("*").alias("n"), sf.max("timestamp").alias("last"))
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(directory))
        .trigger(processingTime=trigger)
        .start()
    )
    try:
        while _last_batch(query) < WARM:
            if error := query.exception():
                raise error
            time.sleep(0.05)
        yield query, directory
    finally:
        query.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _lookups(query: StreamingQuery, gets: int, reads: int) -> dict[str, float]:
    pick = random.Random(1)

    def read() -> None:
        where = sf.col("key.key") == pick.randrange(KEYS)
        assert len(statemark.live(query).where(where).collect()) == 1

    def many() -> None:
        rows = statemark.get_many(query, [{"key": pick.randrange(KEYS)} for _ in range(100)])
        assert all(rows)

    figures = {}
    for name, body, times in (
        ("get", lambda: _get(query, pick), gets),
        ("get_many of 100", many, reads),
        ("data source with the key as filter", read, reads),
    ):
        for _ in range(max(10, times // 5)):
            body()  # the virtual machine compiles what is run often
        took = sorted(_timed(body) for _ in range(times))
        figures[f"{name}, ms, p50"] = 1000 * statistics.median(took)
        figures[f"{name}, ms, p99"] = 1000 * took[int(0.99 * (len(took) - 1))]
        figures[f"{name}, calls a second"] = len(took) / sum(took)
    return figures


def _scans(
    spark: SparkSession, query: StreamingQuery, checkpoint: Path, rounds: int
) -> dict[str, float]:
    def live() -> None:
        _scan(statemark.live(query))

    def offline() -> None:
        _scan(spark.read.format("statestore").load(str(checkpoint)))

    live()
    offline()
    took: dict[str, list[float]] = {"live": [], "statestore": []}
    for _ in range(rounds):
        took["live"].append(_timed(live))
        took["statestore"].append(_timed(offline))
    median = {name: statistics.median(times) for name, times in took.items()}
    return {
        "scan of all keys, ms": 1000 * median["live"],
        "scan by format statestore, ms": 1000 * median["statestore"],
        "scan throughput ÷ that of format statestore": median["statestore"] / median["live"],
    }


def _slowdowns(query: StreamingQuery, *, rounds: int, seconds: int) -> dict[str, float]:
    pick = random.Random(2)

    def get() -> None:
        took = _timed(lambda: _get(query, pick))
        time.sleep(max(0.0, 0.01 - took))

    def scan() -> None:
        _scan(statemark.live(query))
        time.sleep(1)

    readers: dict[str, Callable[[], None]] = {"100 gets a second": get, "a scan a second": scan}
    for _ in range(_warm(WARM_GETS, rounds)):
        _get(query, pick)
    for _ in range(_warm(WARM_SCANS, rounds)):
        _scan(statemark.live(query))
    took: dict[str, list[float]] = {name: [] for name in ["", *readers]}
    for _ in range(rounds):
        for name, body in readers.items():
            took[""] += _batches(query, None, seconds)
            took[name] += _batches(query, body, seconds)
    quiet = statistics.median(took[""])
    return {"batch of the busy query, ms": quiet} | {
        f"batch time with {name} ÷ without": statistics.median(took[name]) / quiet
        for name in readers
    }


def _warm(reads: int, rounds: int) -> int:
    return reads * rounds // ROUNDS


def _batches(query: StreamingQuery, body: Callable[[], None] | None, seconds: int) -> list[float]:
    """Milliseconds of each batch that began and ended while `body` was run again and again."""
    is_over = threading.Event()

    def read() -> None:
        while body and not is_over.is_set():
            body()

    reader = threading.Thread(target=read)
    reader.start()
    first = _last_batch(query) + 2
    time.sleep(seconds)
    last = _last_batch(query)
    is_over.set()
    reader.join()
    progress = [json.loads(p.json) for p in query.recentProgress]
    return [p["batchDuration"] for p in progress if first <= p["batchId"] <= last]


def _last_batch(query: StreamingQuery) -> int:
    progress: Any = query.lastProgress
    return int(progress["batchId"]) if progress else -1


def _get(query: StreamingQuery, pick: random.Random) -> None:
    assert statemark.get(query, {"key": pick.randrange(KEYS)})


def _scan(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _timed(body: Callable[[], None]) -> float:
    start = time.perf_counter()
    body()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
