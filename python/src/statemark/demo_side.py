"""One side of `statemark demo`: a query on one provider, in a process of its own.

The query keeps the first of each key. Step ``run`` fills its state, fails a task once and lets the
query go on; step ``restart`` comes back to the checkpoint, as after a crash of the driver.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import statemark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: What Spark's class is called, and ours.
SPARK, STATEMARK = "Spark RocksDB", "Statemark"
#: The exit code where nobody reads what it prints, as a shell has it.
NOBODY_READS = 128 + 13

_STATE = "spark.sql.streaming.stateStore"
_SPARKS_CLASS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_QUIET = Path(__file__).parent / "log4j2-quiet.properties"
_PARTITIONS = 2
#: Where the query has its input, its checkpoint and its results.
_FOLDER = "query"
_BATCHES = 6
# By default ten, which would take more batches and twice the time.
_DELTAS_FOR_SNAPSHOT = 4
_SNAPSHOT_WAIT_S = 60
_SYSTEM = "java.lang.System"
_ARMED, _FAILED_AT = "statemark.demo.armed", "statemark.demo.failedAt"


def session(side: str, work: Path) -> SparkSession:
    """Start a session whose stateful queries run on a side's provider.

    Parameters
    ----------
    side : str
        `SPARK` or `STATEMARK`.
    work : Path
        For what Spark and the stores keep on disk.

    Returns
    -------
    SparkSession
        Local, with two task slots, and as many attempts for a task as a cluster gives.
    """
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master(f"local[{_PARTITIONS},4]")
        .appName("statemark demo")
        .config("spark.driver.memory", "2g")
        .config(
            "spark.driver.extraJavaOptions",
            f'"-Dlog4j2.configurationFile={_QUIET}" "-Djava.io.tmpdir={work}"',
        )
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(work / "tmp"))
        .config("spark.sql.warehouse.dir", str(work / "warehouse"))
        .config("spark.sql.shuffle.partitions", str(_PARTITIONS))
        # Its faster setting; Statemark has no other.
        .config(f"{_STATE}.rocksdb.changelogCheckpointing.enabled", "true")
        # A snapshot has to be there before the failure, and the default is a minute.
        .config(f"{_STATE}.maintenanceInterval", "1s")
        .config(f"{_STATE}.minDeltasForSnapshot", str(_DELTAS_FOR_SNAPSHOT))
    )
    if side == STATEMARK:
        builder = statemark.configure(builder, local_dir=str(work / "local"))
    else:
        builder = builder.config(f"{_STATE}.providerClass", _SPARKS_CLASS)
    return builder.getOrCreate()


class Side:
    """
    A query on one provider.

    Parameters
    ----------
    name : str
        `SPARK` or `STATEMARK`.
    work : Path
        A folder of its own; `restart` gets the one that `run` has left.
    keys : int
        About how many keys its state gets.
    """

    def __init__(self, *, name: str, work: Path, keys: int) -> None:
        self.name, self.work, self.keys = name, work, keys
        self.folder = work / _FOLDER
        self.checkpoint = self.folder / "checkpoint"
        for folder in (self.folder, work / "warm"):
            (folder / "arriving").mkdir(parents=True, exist_ok=True)
        self.spark = session(name, work)

    def say(self, text: str) -> None:
        """Print a line of progress."""
        print(f"  {self.name:<14} {text}", flush=True)

    def run(self) -> dict[str, Any]:
        """Fill the state, fail a task, look into the state; return what was measured."""
        started = time.monotonic()
        query = self._start()
        for batch in range(_BATCHES):
            self._deliver(batch)
            query.processAllAvailable()
        self.say(
            f"{self._count(_BATCHES):,} keys in {_BATCHES} batches, "
            f"{time.monotonic() - started:.1f} s"
        )
        self._await_snapshots()
        self._system("setProperty", _ARMED, "yes")
        self._deliver(_BATCHES)
        query.processAllAvailable()
        failed_at = self._system("getProperty", _FAILED_AT)
        if failed_at is None:
            message = "no task was failed"
            raise RuntimeError(message)
        committed = (self.checkpoint / f"commits/{_BATCHES}").stat().st_mtime * 1000
        measures: dict[str, Any] = {"to_commit_ms": committed - float(failed_at)}
        self.say(
            f"a task failed on purpose; its batch was committed {measures['to_commit_ms']:,.0f} ms"
            " later"
        )
        if self.name == STATEMARK:
            measures |= self._read(query)
        query.stop()
        return measures

    def restart(self) -> dict[str, Any]:
        """Start the query in this fresh process, and compare all that it has written."""
        # The same query on a state of its own first: how long Spark takes to compile a plan, and
        # Java to load classes, is not what differs.
        (self.work / "warm/arriving/000.csv").write_text("1\n2\n")
        self._start(folder="warm", availableNow=True).awaitTermination()
        self._deliver(_BATCHES + 1)
        started = time.monotonic()
        self._start(availableNow=True).awaitTermination()
        to_commit_ms = (time.monotonic() - started) * 1000
        self.say(f"restarted in a fresh process; first batch after {to_commit_ms:,.0f} ms")
        found = self.spark.read.parquet(str(self.folder / "results"))
        (row,) = found.agg({"key": "sum", "*": "count"}).collect()
        count = self._count(_BATCHES + 2)
        # Each key once, from 0 on.
        is_equal = row["count(1)"] == count and row["sum(key)"] == count * (count - 1) // 2
        return {"restart_ms": to_commit_ms, "equal": is_equal}

    def _start(self, *, folder: str = _FOLDER, **trigger: bool) -> StreamingQuery:
        """Start the query in one of the folders; without a trigger it goes on until stopped."""
        work = self.work / folder
        lines = self.spark.readStream.schema("key LONG").option("maxFilesPerTrigger", 1)
        result = lines.csv(f"{work}/arriving").dropDuplicates(["key"]).where(self._fails_once())
        writer = result.writeStream.format("parquet").outputMode("append")
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.option("checkpointLocation", f"{work}/checkpoint").start(f"{work}/results")

    def _count(self, batches: int) -> int:
        """Count the keys of the first batches."""
        return batches * (self.keys // _BATCHES)

    def _deliver(self, batch: int) -> None:
        """Let the file of a batch appear: its own keys, and a tenth of all those before it."""
        size = self.keys // _BATCHES
        first = batch * size
        repeated = range(0, first, 10)
        text = "\n".join(map(str, [*repeated, *range(first, first + size)]))
        draft = self.work / "draft"
        draft.write_text(text + "\n")
        draft.rename(self.folder / f"arriving/{batch:03}.csv")

    def _fails_once(self) -> str:
        """Make the condition that ends a task, once after it was armed, near the batch's end.

        It is evaluated right above the operator that has the state, in the same task. As it is not
        deterministic, Spark leaves it there.
        """
        last = (_BATCHES + 1) * (self.keys // _BATCHES) - 1
        now = f"java_method('{_SYSTEM}', 'currentTimeMillis')"
        note = f"java_method('{_SYSTEM}', 'setProperty', '{_FAILED_AT}', {now})"
        armed = f"java_method('{_SYSTEM}', 'clearProperty', '{_ARMED}') = 'yes'"
        return (
            f"CASE WHEN key = {last} AND {armed} "
            f"THEN raise_error(concat('a failure on purpose', coalesce({note}, ''))) IS NULL "
            "ELSE true END"
        )

    def _system(self, method: str, *arguments: str) -> str | None:
        values = ", ".join(f"'{value}'" for value in (_SYSTEM, method, *arguments))
        row = self.spark.sql(f"SELECT java_method({values})").first()
        return row[0] if row else None

    def _await_snapshots(self) -> None:
        """Wait until each partition has a snapshot, which both providers restart from."""
        state = self.checkpoint / "state/0"
        deadline = time.monotonic() + _SNAPSHOT_WAIT_S
        while not all(any((state / str(p)).glob("*.zip")) for p in range(_PARTITIONS)):
            if time.monotonic() > deadline:
                self.say("no snapshot in time; a restart replays all batches")
                return
            time.sleep(0.1)

    def _read(self, query: StreamingQuery) -> dict[str, Any]:
        """Read one key, and then all, of the query that runs."""
        statemark.get(query, {"key": 7})  # the first read connects
        started = time.monotonic()
        row = statemark.get(query, {"key": 7})
        got = time.monotonic()
        rows = statemark.live(query).count()
        counted = time.monotonic()
        is_right = row is not None and rows == self._count(_BATCHES + 1)
        return {
            "live_right": is_right,
            "get_ms": (got - started) * 1000,
            "count_ms": (counted - got) * 1000,
        }


def main() -> int:
    """Run a step of one side, whose measures go to a file; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m statemark.demo_side", description=__doc__)
    parser.add_argument("step", choices=("run", "restart"))
    parser.add_argument("--name", choices=(SPARK, STATEMARK), required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--keys", type=int, required=True)
    options = parser.parse_args()
    side = Side(name=options.name, work=options.work, keys=options.keys)
    try:
        measures = side.run() if options.step == "run" else side.restart()
    except BrokenPipeError:
        # Python flushes once more at its end, and would complain of it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOBODY_READS
    (options.work / f"{options.step}.json").write_text(json.dumps(measures))
    side.spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
