"""Stores of a query that is stopped and started in one application, into bench/results/homes.json.

Four executors with a core and a local directory each hold 64 stores. After each restart a store
counts as moved where the first batch has it on another executor than the last batch before.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import statemark
from measured import environment
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from support.places import places

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

EXECUTORS = 4
PARTITIONS = 64
#: Enough for rows in every partition.
KEYS = 4000
#: Each executor of a local cluster has a working directory of its own.
OWN_DISKS = "/proc/self/cwd/state"


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a look: three restarts")
    parser.add_argument("--out", type=Path, default=Path("bench/results/homes.json"))
    options = parser.parse_args()
    start = time.monotonic()
    # Executors may write for a moment when the session has ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        restarts = _restarted(Path(folder), 3 if options.quick else 20)
    moved = sum(one["moved"] for one in restarts)
    results = {
        "command": "make bench-homes" + " QUICK=1" * options.quick,
        "seconds": round(time.monotonic() - start),
        "environment": environment(),
        "atHome": round(1 - moved / (PARTITIONS * len(restarts)), 4),
        "restarts": restarts,
    }
    options.out.write_text(json.dumps(results, indent=1) + "\n")


def _restarted(folder: Path, times: int) -> list[dict[str, Any]]:
    builder = SparkSession.builder.master(f"local-cluster[{EXECUTORS},1,1024]").appName("homes")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.executor.memory": "768m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = statemark.configure(builder, local_dir=OWN_DISKS).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        query = _started(spark, folder, 0)
        restarts = []
        for number in range(1, times + 1):
            _run(query, folder, 2 * number - 1)
            before = places(spark, query, f"{folder}/checkpoint", PARTITIONS)
            query.stop()
            began = time.monotonic()
            query = _started(spark, folder, 2 * number)
            seconds = time.monotonic() - began
            after = places(spark, query, f"{folder}/checkpoint", PARTITIONS)
            metrics = _first_batch(query)
            one = {
                "moved": sum(a != b for a, b in zip(after, before, strict=True)),
                "seconds": round(seconds, 1),
                "stores": sorted(Counter(after).values()),
                **{
                    source.lower(): metrics[f"statemarkLoad{source}Count"]
                    for source in ("Memory", "Local", "Checkpoint")
                },
            }
            print(number, one, flush=True)
            restarts.append(one)
        query.stop()
        return restarts
    finally:
        spark.stop()


def _started(spark: SparkSession, folder: Path, batch: int) -> StreamingQuery:
    events = folder / "events"
    events.mkdir(exist_ok=True)
    stream = spark.readStream.schema("id LONG").option("maxFilesPerTrigger", 1).json(str(events))
    counts = stream.groupBy((sf.col("id") % KEYS).alias("key")).count()
    query = (
        counts.writeStream.outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .format("noop")
        .start()
    )
    _run(query, folder, batch)
    return query


def _first_batch(query: StreamingQuery) -> dict[str, int]:
    """Return the metrics of the operator in the first batch; Spark shows them a moment after it."""
    while True:
        for progress in query.recentProgress:
            for operator in json.loads(progress.json)["stateOperators"]:
                metrics: dict[str, int] = operator["customMetrics"]
                return metrics
        time.sleep(0.1)


def _run(query: StreamingQuery, folder: Path, batch: int) -> None:
    rows = "".join(f'{{"id":{batch * KEYS + i}}}\n' for i in range(KEYS))
    written = folder / f"{batch:06d}.json"
    written.write_text(rows)
    written.rename(folder / "events" / written.name)
    query.processAllAvailable()


if __name__ == "__main__":
    main()
