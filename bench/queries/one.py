"""One run: a process with a session, a query over all of its input, and what that took.

`python -m queries.one OPERATOR CONTENDER INPUT RESULT [name=setting …]`, where INPUT is a folder,
or what `topics.broker` yields where the query has topics.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import statemark
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQueryListener

from queries import topics
from queries.matrix import ALL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from queries.operators import Operator

#: As all contenders have it. The heap is not touched beforehand: what a process takes counts.
SHARED = {
    "spark.driver.memory": "3g",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}
TUNED = Path(__file__).parent / "tuned.conf"
_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
#: What runs a query. The floor is the query with its state left out: each micro-batch by itself.
CONTENDERS = ("statemark", "tuned", "memory", "floor")
_TIMEOUT_S = 1200
_ROOT = Path(__file__).resolve().parents[2]
#: Queries in Scala.
_BENCH = next(_ROOT.glob("jvm/bench/target/spark-*/scala-*/statemark-bench.jar"))


def main(arguments: list[str]) -> None:
    """Run, and write what was measured."""
    operator, contender, source, result, *more = arguments
    settings = dict(option.split("=", 1) for option in more)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="bench-queries-") as folder:
        jars = topics.connector() if ALL[operator].topics else []
        spark = session(contender, Path(folder), settings, jars)
        measured = run(spark, ALL[operator], contender, source, Path(folder))
        Path(result).write_text(json.dumps(measured))
        _end(spark)


def _end(spark: SparkSession) -> NoReturn:
    """End this process behind its JVM, which takes processors until it is gone."""
    jvm = spark.sparkContext._gateway.proc
    jvm.stdin.close()
    jvm.wait()
    os._exit(0)


def session(
    contender: str, scratch: Path, settings: dict[str, str], jars: Sequence[str] = ()
) -> SparkSession:
    """Start a session whose stateful queries use a provider."""
    builder = SparkSession.builder.master("local[2]").appName("bench-queries")
    local = {
        "spark.jars": ",".join([str(statemark.jar_path()), str(_BENCH), *jars]),
        "spark.local.dir": str(scratch / "tmp"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    own = {
        "tuned": lambda: dict(
            line.split(maxsplit=1)
            for line in TUNED.read_text().splitlines()
            if line and not line.startswith("#")
        ),
        "memory": lambda: {_PROVIDER: _MEMORY},
    }.get(contender, dict)()
    for key, value in (SHARED | local | own).items():
        builder = builder.config(key, value)
    if contender == "statemark":
        builder = statemark.configure(builder, local_dir=str(scratch / "state"))
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def run(
    spark: SparkSession, operator: Operator, contender: str, source: str, scratch: Path
) -> dict[str, Any]:
    """
    Run a query over all of its input, a file for each micro-batch.

    Returns
    -------
    dict
        `batches`, each with its milliseconds, what the query emitted, and what the process had
        used by its end; `peak MB` and `heap MB`.
    """
    process = Process(spark)
    progress = Progress(process)
    spark.streams.addListener(progress)
    writer = _writer(spark, operator, contender, source)
    writer = writer.option("checkpointLocation", str(scratch / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    if not query.awaitTermination(_TIMEOUT_S):
        problem = f"{operator.name}: not finished in {_TIMEOUT_S} s: {query.status}"
        raise TimeoutError(problem)
    peak = process.peak_mb()
    # Listeners are told behind the query.
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    batches = [_batch(json.loads(p.json), progress) for p in query.recentProgress]
    return {"batches": batches, "peak MB": peak, "heap MB": process.live_heap_mb()}


def _writer(
    spark: SparkSession, operator: Operator, contender: str, source: str
) -> DataStreamWriter:
    if operator.topics:
        rows = topics.rows(spark, source)
    else:
        reader = spark.readStream.schema(operator.schema).option("maxFilesPerTrigger", 1)
        rows = reader.parquet(source)
    if contender == "floor":
        return rows.writeStream.foreachBatch(_without_state(operator, source))
    results = _observed(operator.stream(rows))
    if operator.topics:
        return topics.written(results, source).outputMode(operator.mode)
    return results.writeStream.format("noop").outputMode(operator.mode)


def _observed(frame: DataFrame) -> DataFrame:
    """Note what a query emits, by batch, so that contenders can be compared."""
    return frame.observe(
        "answer",
        sf.count("*").alias("rows"),
        # Remainders, as sums of hashes go over.
        sf.sum(sf.xxhash64(*frame.columns) % 1_000_003).alias("hash"),
    )


def _without_state(operator: Operator, source: str) -> Callable[[DataFrame, int], None]:
    def write(batch: DataFrame, number: int) -> None:
        results = (operator.floor or operator.query)(batch)
        if operator.topics:
            topics.write(results, source, number)
        else:
            results.write.format("noop").mode("overwrite").save()

    return write


def _batch(progress: dict[str, Any], seen: Progress) -> dict[str, Any]:
    state = progress["stateOperators"]
    return {
        "id": progress["batchId"],
        "rows": progress["numInputRows"],
        "ms": progress["durationMs"]["triggerExecution"],
        "state": sum(o["numRowsTotal"] for o in state),
        "updates ms": sum(o["allUpdatesTimeMs"] for o in state),
        "removals ms": sum(o["allRemovalsTimeMs"] for o in state),
        "commit ms": sum(o["commitTimeMs"] for o in state),
        "answer": progress.get("observedMetrics", {}).get("answer"),
        "used": seen.used.get(progress["batchId"], {}),
    }


class Process:
    """What the session's process has used so far."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = spark._jvm
        java = spark._jvm.java.lang
        self._management = java.management.ManagementFactory
        self._system, self._runtime = java.System, java.Runtime.getRuntime()
        self._folder = Path(f"/proc/{java.ProcessHandle.current().pid()}")

    def used(self) -> dict[str, float]:
        """Return seconds of processors, collectors and compilers."""
        cpu = sum(map(int, (self._folder / "stat").read_text().rsplit(")", 1)[1].split()[11:13]))
        collectors = self._management.getGarbageCollectorMXBeans()
        return {
            "cpu s": cpu / os.sysconf("SC_CLK_TCK"),
            "gc s": sum(c.getCollectionTime() for c in collectors) / 1000,
            "jit s": self._management.getCompilationMXBean().getTotalCompilationTime() / 1000,
        }

    def peak_mb(self) -> float:
        """Return the most that the process has had in memory."""
        lines = (self._folder / "status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines)
        return int(status["VmHWM"].split()[0]) / 1024

    def live_heap_mb(self) -> float:
        """Return what lives on the heap."""
        self._system.gc()
        return float(self._runtime.totalMemory() - self._runtime.freeMemory()) / 2**20


class Progress(StreamingQueryListener):
    """What the process had used by the end of each batch."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.used: dict[int, dict[str, float]] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: ARG002
        """Note the beginning as the end of a batch before the first."""
        self.used[-1] = self._process.used()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Note the end of a batch."""
        self.used[event.progress.batchId] = self._process.used()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing."""


if __name__ == "__main__":
    main(sys.argv[1:])
