"""Half an hour of a query whose state outgrows its cache, in an executor of limited memory.

Heap, uncommitted rows and native memory are bounded, and what the process has is noted as it goes.

The executor runs in a control group that is as large as a cluster manager would make its container:
heap and memory overhead. Linux ends a process that wants more. The state grows to six million keys.
At the end every row must be counted, and nothing may have restarted. Needs Linux, and the right to
make control groups (root, mostly). Results go to bench/results/soak.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import stat
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import statemark
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.streaming.query import StreamingQuery

HEAP_MB = 1024
#: What Spark adds by default.
OVERHEAD_MB = 384
PARTITIONS = 16
KEYS = 6_000_000
ROWS = 30_000
PAUSE_S = 1
#: Of uncommitted rows, and of native memory.
BOUND_MB = 64
#: Between two looks at the process.
LOOK_S = 5


@dataclass(frozen=True)
class Group:
    """A control group of either version."""

    directory: Path
    limit: str
    peak: str

    def used_mb(self) -> float:
        """Return the most that its processes had, page cache included."""
        return int((self.directory / self.peak).read_text()) / 2**20

    def processes(self) -> list[str]:
        """Return the ids of its processes."""
        return (self.directory / "cgroup.procs").read_text().split()


@contextmanager
def _group(limit_mb: int) -> Iterator[Group]:
    mounted = Path("/sys/fs/cgroup")
    name = f"statemark-soak-{os.getpid()}"
    if (mounted / "memory").is_dir():
        directory = mounted / "memory" / name
        group = Group(directory, "memory.limit_in_bytes", "memory.max_usage_in_bytes")
    else:
        group = Group(mounted / name, "memory.max", "memory.peak")
    try:
        group.directory.mkdir()
        (group.directory / group.limit).write_text(str(limit_mb * 2**20))
    except OSError as e:
        problem = f"no control group at {group.directory}: {e}. Run as root, on Linux."
        raise SystemExit(problem) from e
    try:
        yield group
    finally:
        _remove(group.directory)


def _remove(group: Path) -> None:
    # Linux takes a moment to forget the processes that have ended.
    end = time.monotonic() + 60
    while group.exists() and time.monotonic() < end:
        with suppress(OSError):
            group.rmdir()
        time.sleep(0.2)


def _java_in(group: Group, scratch: Path) -> Path:
    """Make a JAVA_HOME whose `java` enters the group first."""
    real = os.environ.get("JAVA_HOME") or str(Path(shutil.which("java") or "").resolve().parents[1])
    java = scratch / "java/bin/java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f'#!/bin/sh\necho $$ > {group.directory}/cgroup.procs && exec {real}/bin/java "$@"\n'
    )
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return java.parents[1]


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--out", type=Path, default=Path("bench/results/soak.json"))
    options = parser.parse_args()
    limit_mb = HEAP_MB + OVERHEAD_MB
    with tempfile.TemporaryDirectory(prefix="bench-soak-") as folder, _group(limit_mb) as group:
        scratch = Path(folder)
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.executorEnv.JAVA_HOME": str(_java_in(group, scratch)),
            "spark.executor.extraClassPath": str(statemark.jar_path()),
            "spark.executor.memory": f"{HEAP_MB}m",
            "spark.executor.memoryOverhead": f"{OVERHEAD_MB}m",
            "spark.local.dir": str(scratch / "tmp"),
            "spark.sql.shuffle.partitions": str(PARTITIONS),
            "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": str(BOUND_MB),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        builder = SparkSession.builder.master(f"local-cluster[1,2,{HEAP_MB}]").appName("soak")
        builder = statemark.configure(
            builder,
            local_dir=str(scratch / "state"),
            max_uncommitted_bytes=BOUND_MB * 2**20,
        )
        for key, value in settings.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        try:
            results = _soak(spark, group, scratch / "checkpoint", options.minutes)
        finally:
            spark.stop()
    results |= {
        "limit MB": limit_mb,
        "heap MB": HEAP_MB,
        "bound MB": BOUND_MB,
        "command": f"make bench-soak MINUTES={options.minutes:.0f}",
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results) + "\n")
    print(json.dumps({key: value for key, value in results.items() if key != "resident MB"}))


def _soak(spark: SparkSession, group: Group, checkpoint: Path, minutes: float) -> dict[str, object]:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    # Keys come from all of the range seen so far, which grows with the rows.
    key = sf.pmod(
        sf.xxhash64("value"), sf.least(sf.col("value") / 2 + 1, sf.lit(KEYS)).cast("long")
    )
    query = (
        source.groupBy(key.alias("key"))
        .agg(sf.count("*").alias("n"), sf.max("value").alias("newest"))
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=f"{PAUSE_S} seconds")
        .start()
    )
    executor = ""
    begin = time.monotonic()
    resident: list[tuple[float, float]] = []
    while (now := time.monotonic() - begin) < 60 * minutes:
        if error := query.exception():
            raise error
        time.sleep(LOOK_S)
        # It may start others, for a moment.
        pids = group.processes()
        executor = executor or pids[0]
        if executor not in pids:
            problem = f"the executor {executor} became {pids}: its memory did not suffice"
            raise SystemExit(problem)
        resident.append((round(now / 60, 2), round(_resident_mb(executor))))
        if now // 60 != (now - LOOK_S) // 60:
            print(
                f"[{minutes - now / 60:3.0f} min left] batch {_batches(query)},"
                f" {resident[-1][1]:,.0f} MB resident, {group.used_mb():,.0f} MB at most with page"
                " cache",
                flush=True,
            )
    query.stop()
    batches = _committed(checkpoint)
    state = spark.read.format("statestore").load(str(checkpoint))
    keys, rows = state.agg(sf.count("*"), sf.sum("value.count")).first() or (0, 0)
    if rows != batches * ROWS:
        problem = f"{rows:,} rows are counted of {batches * ROWS:,} in {batches} batches"
        raise SystemExit(problem)
    return {
        "minutes": minutes,
        "batches": batches,
        "rows": rows,
        "keys": keys,
        "partitions": PARTITIONS,
        "peak resident MB": max(mb for _, mb in resident),
        "resident MB": resident,
        "peak with page cache MB": round(group.used_mb()),
    }


def _resident_mb(process: str) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _batches(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return int(progress["batchId"]) + 1 if progress else 0


def _committed(checkpoint: Path) -> int:
    return max(int(f.name) for f in (checkpoint / "commits").iterdir() if f.name.isdigit()) + 1


if __name__ == "__main__":
    main()
