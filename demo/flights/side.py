"""One side of the comparison: all three queries on one provider, in a process of its own."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flights import fault, queries
from flights.load import Load
from flights.session import PARTITIONS, streaming_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Spark takes a snapshot after ten versions; the fault comes when one is in the checkpoint.
_FILES_BEFORE_FAULT = 7
_SNAPSHOT_WAIT_S = 30
_FAILED_PARTITION = 1


class Side:
    """
    Runs the queries and collects what they report.

    Parameters
    ----------
    name
        What the progress lines call this side.
    provider
        Class name of the state store provider.
    inputs
        Directory that `flights.data.write_inputs` filled.
    work
        An empty directory for checkpoints, results and logs.
    """

    def __init__(self, *, name: str, provider: str, inputs: Path, work: Path) -> None:
        self.name, self.inputs, self.work = name, inputs, work
        self.spark: SparkSession = streaming_session(provider, work)
        self.provider = provider
        fault.register(self.spark)
        jvm: Any = self.spark._jvm
        self.pid = int(jvm.java.lang.ProcessHandle.current().pid())
        self.load = self.started = Load.now(self.pid)
        self.compiled_s = self.compiler_s()
        self.say(f"{provider}, Spark {self.spark.version}")

    def compiler_s(self) -> float:
        """Return the seconds that Java's compiler (JIT) has taken so far."""
        jvm: Any = self.spark._jvm
        compiler = jvm.java.lang.management.ManagementFactory.getCompilationMXBean()
        return float(compiler.getTotalCompilationTime()) / 1000

    def say(self, text: str) -> None:
        """Print one line of progress."""
        print(f"{self.name:<14} {text}", flush=True)

    def run(self) -> dict[str, Any]:
        """Run the three queries; return their measures, ready for JSON."""
        measures: dict[str, Any] = {
            "provider": self.provider,
            "dedup": self.deduplicate(),
            "delays": self.available_now(
                "delays", queries.delays(self.flights()), "windowed aggregation"
            ),
            "weather": self.available_now(
                "weather",
                queries.with_weather(self.flights(), self.weather()),
                "stream-stream join",
            ),
        }
        measures["others"] = Load.now(self.pid).others_since(self.started)
        self.spark.stop()
        return measures

    def flights(self) -> DataFrame:
        """Stream the delivered flights."""
        return queries.read(
            self.spark, self.inputs / "flights", queries.FLIGHT_SCHEMA, files_per_batch=2
        )

    def weather(self) -> DataFrame:
        """Stream the weather."""
        return queries.read(
            self.spark, self.inputs / "weather", queries.WEATHER_SCHEMA, files_per_batch=2
        )

    def deduplicate(self) -> dict[str, Any]:
        """Fill the state, let a snapshot appear, fail a task, finish; measure all of it."""
        arriving = self.work / "arriving"
        arriving.mkdir()
        query = self.start("dedup", self.first_of_each(arriving))

        seconds = self.deliver(query, arriving, "seed", slice(None))
        self.say(f"dedup: state filled, {state_rows(query):,} keys in {seconds:.1f} s")
        seconds = self.deliver(query, arriving, "flights", slice(0, _FILES_BEFORE_FAULT))
        self.say(f"dedup: {_FILES_BEFORE_FAULT} batches of flights in {seconds:.1f} s")
        snapshot = self.await_snapshot()
        found = "none in time" if snapshot is None else f"of version {snapshot}"
        self.say(f"dedup: newest snapshot in the checkpoint: {found}")

        state = self.checkpoint("dedup") / "state/0"
        fault.arm(self.spark, str(state), partition=_FAILED_PARTITION)
        seconds = self.deliver(query, arriving, "flights", slice(_FILES_BEFORE_FAULT, None))
        recovery = fault.recovery(self.spark)
        self.say(
            f"dedup: batch {recovery.batch}, partition {recovery.partition} failed with "
            f"{recovery.rows:,} rows staged, partition {recovery.committed_partition} committed; "
            f"next commit {recovery.to_commit_ms:,.0f} ms later, "
            f"{len(recovery.opened)} checkpoint files opened"
        )
        measures = self.finish(query, "deduplication")
        return {
            **measures,
            "snapshot_version": snapshot,
            "recovery": dataclasses.asdict(recovery),
        }

    def first_of_each(self, arriving: Path) -> DataFrame:
        """Stream the first delivery of each flight in a folder; one task of it can be failed."""
        source = queries.read(self.spark, arriving, queries.FLIGHT_SCHEMA, files_per_batch=1)
        # Nothing shuffles between the operator and the fault: they share a task.
        return queries.deduplicated(source).where("fail_once()")

    def deliver(self, query: StreamingQuery, arriving: Path, kind: str, which: slice) -> float:
        """Let input files appear, in order, and wait for the query; return seconds."""
        start = time.monotonic()
        files = sorted((self.inputs / kind).iterdir())[which]
        for file in files:
            # A hard link keeps the modification time, by which Spark orders files.
            os.link(file, arriving / f"{kind}-{file.name}")
        query.processAllAvailable()
        return time.monotonic() - start

    def await_snapshot(self) -> int | None:
        """Wait until each partition has a snapshot; return the lowest of their versions."""
        deadline = time.monotonic() + _SNAPSHOT_WAIT_S
        while time.monotonic() < deadline:
            newest = [self.snapshot_version(p) for p in range(PARTITIONS)]
            if None not in newest:
                return min(v for v in newest if v is not None)
            time.sleep(0.1)
        return None

    def snapshot_version(self, partition: int) -> int | None:
        """Find the newest version with a snapshot, or None."""
        files = (self.checkpoint("dedup") / f"state/0/{partition}").glob("*.zip")
        versions = [int(m[0]) for f in files if (m := re.match(r"\d+", f.name))]
        return max(versions, default=None)

    def available_now(self, name: str, result: DataFrame, title: str) -> dict[str, Any]:
        """Run a query over all files and measure it."""
        query = self.start(name, result, availableNow=True)
        query.awaitTermination()
        return self.finish(query, title)

    def start(self, name: str, result: DataFrame, **trigger: bool) -> StreamingQuery:
        """Start a query into a directory of parquet files, which Spark writes exactly once."""
        writer = result.writeStream.queryName(name).format("parquet").outputMode("append")
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.option("checkpointLocation", f"counting://{self.checkpoint(name)}").start(
            str(self.work / "results" / name)
        )

    def finish(self, query: StreamingQuery, title: str) -> dict[str, Any]:
        """Stop a query, say what it did, and return its measures."""
        query.stop()
        before, self.load = self.load, Load.now(self.pid)
        compiled, self.compiled_s = self.compiled_s, self.compiler_s()
        measures = {
            **measure(query),
            "cpu_s": self.load.own - before.own,
            "jit_s": self.compiled_s - compiled,
        }
        self.say(
            f"{query.name}: {title}, {measures['rows']:,} rows in {measures['batches']} batches, "
            f"{measures['seconds']:.1f} s"
        )
        return measures

    def checkpoint(self, name: str) -> Path:
        """Path of a query's checkpoint, without the counting scheme."""
        return self.work / "checkpoints" / name


def state_rows(query: StreamingQuery) -> int:
    """Rows in the first operator's state after the last batch."""
    progress = query.lastProgress
    return progress.stateOperators[0].numRowsTotal if progress else 0


def measure(query: StreamingQuery) -> dict[str, Any]:
    """Sum up a query's progress reports."""
    batches = [p for p in query.recentProgress if p.stateOperators]
    return {
        "rows": sum(p.numInputRows for p in batches),
        "batches": len(batches),
        "seconds": sum(p.batchDuration for p in batches) / 1000,
        "batch_ms": statistics.median(p.batchDuration for p in batches),
        "state_rows": max(sum(o.numRowsTotal for o in p.stateOperators) for p in batches),
        # Spark adds up the partitions of all operators.
        "commit_ms": statistics.median(
            sum(o.commitTimeMs for o in p.stateOperators) / PARTITIONS for p in batches
        ),
    }


def from_arguments() -> Side:
    """Make the side that the arguments of this process name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--provider", required=True)
    parser.add_argument("--inputs", required=True, type=Path)
    parser.add_argument("--work", required=True, type=Path)
    return Side(**vars(parser.parse_args()))


def main() -> None:
    """Run one side and write its measures."""
    side = from_arguments()
    measures = side.run()
    (side.work / "measures.json").write_text(json.dumps(measures, indent=2))


if __name__ == "__main__":
    main()
