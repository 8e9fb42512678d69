"""The driver of an application on a test's cluster: does what it is told line by line.

A request is `[method, arguments]`, an answer `[error or null, value]`, both in JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import statemark
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as sf

from support import live_cells, places
from support.operators import OPERATORS
from support.session import STATE_STORE
from support.streams import EVENT_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

#: Of the result; `late` counts the rows that were not processed by a task's first attempt.
COLUMNS = ("key", "n", "total", "last")


def totals(df: DataFrame, *more: Column) -> DataFrame:
    """What the query computes, and its batch twin."""
    count, total = sf.count("*").alias("n"), sf.sum("value").alias("total")
    return df.groupBy("key").agg(count, total, sf.max("id").alias("last"), *more)


class Driver:
    """
    One session, one query at a time.

    Parameters
    ----------
    spark
        The session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.query: StreamingQuery | None = None
        self.partitions = 0

    def await_executors(self, *, count: int) -> None:
        """Wait until as many executors have registered."""
        jvm: Any = self.spark.sparkContext._jsc.sc()
        while jvm.getExecutorMemoryStatus().size() <= count:  # the driver is one of them
            time.sleep(0.05)

    def start(self, *, directory: str, partitions: int, checkpoint_format: str) -> None:
        """Stop the query before, start one on `<directory>/events`, a file for each batch."""
        if self.query:
            self.query.stop()
        self.directory = directory
        self.spark.conf.set("spark.sql.shuffle.partitions", partitions)
        self.spark.conf.set(f"{STATE_STORE}.checkpointFormatVersion", checkpoint_format)
        self.partitions = partitions
        jvm: Any = self.spark._jvm
        jvm.statemark.testkit.TaskGate.register(self.spark._jsparkSession, directory)

        def write(batch: DataFrame, batch_id: int) -> None:
            # Overwriting a directory named by the batch makes a repeated batch harmless.
            batch.write.mode("overwrite").json(f"{directory}/out/batch={batch_id:06d}")

        stream = self.spark.readStream.schema(EVENT_SCHEMA).option("maxFilesPerTrigger", 1)
        rows = stream.json(f"{directory}/events")
        # Dealt out before the aggregation, rows meet the attempt that updates their store.
        dealt = rows.repartition(partitions, "key").where("gate_in()")
        counted = totals(
            dealt.withColumn("attempt", sf.expr("attempt()")),
            sf.sum(sf.col("attempt").cast("long")).alias("late"),
        )
        self.query = (
            counted.where("gate_out()")
            .writeStream.outputMode("update")
            .option("checkpointLocation", f"{directory}/checkpoint")
            .foreachBatch(write)
            .start()
        )

    def failure(self) -> list[str] | None:
        """Return the kind of the query's failure, and what its exception says; None before."""
        failed = self._query().exception()
        if failed is None:
            return None
        kind = statemark.error_of(failed)
        return [type(kind).__name__, str(failed)]

    def check(self) -> None:
        """Fail if the query has failed."""
        if error := self._query().exception():
            raise error

    def progress(self) -> list[dict[str, Any]]:
        """Batches of the run with data: number, metrics of the operator."""
        self.check()
        return [
            {"batch": one["batchId"], **one["stateOperators"][0]["customMetrics"]}
            for one in (json.loads(p.json) for p in self._query().recentProgress)
            if one["stateOperators"]
        ]

    def idle(self) -> None:
        """Process all that has arrived."""
        self._query().processAllAvailable()

    def live(self) -> list[list[object]]:
        """Read the state of the running query: rows as those of a batch."""
        rows = statemark.live(self._query(), timeout=60).select("key", "value").collect()
        return [[*row.key, *row.value[:3]] for row in sorted(rows, key=lambda row: row.key)]

    def plan(self) -> None:
        """Have Spark plan a read of the running query."""
        self.planned = statemark.live(self._query(), timeout=60).select("key", "value")
        plan: Any = self.planned._jdf.queryExecution()
        plan.executedPlan()

    def read_planned(self) -> int:
        """Run that read, and return how many events it shows."""
        return sum(row.value[0] for row in self.planned.collect())

    def get(self, *, keys: list[str]) -> list[list[object] | None]:
        """Look keys up, one by one."""
        found = [statemark.get(self._query(), {"key": key}) for key in keys]
        return [self._columns(row) for row in found]

    def get_many(self, *, keys: list[str]) -> list[list[object] | None]:
        """Look keys up, all at once."""
        asked = [{"key": key} for key in keys]
        return [self._columns(row) for row in statemark.get_many(self._query(), asked, timeout=60)]

    @staticmethod
    def _columns(row: Row | None) -> list[object] | None:
        return None if row is None else [*row.key, *row.value[:3]]

    def has_opened_stores(self) -> bool:
        """Tell whether this driver has opened a store ever: RocksDB's library is loaded then."""
        jvm: Any = self.spark._jvm
        pid = jvm.java.lang.ProcessHandle.current().pid()
        return "librocksdbjni" in Path(f"/proc/{pid}/maps").read_text()

    def start_reading(self) -> None:
        """Read the state of the running query again and again, until `stop_reading`."""
        self.reads: dict[str, list[Any]] = {"events": [], "failures": []}
        self.is_over = threading.Event()

        def read() -> None:
            while not self.is_over.is_set():
                try:
                    self.reads["events"].append(sum(row[1] for row in self.live()))
                except Exception as e:  # noqa: BLE001, PERF203 - the test is told
                    self.reads["failures"].append([type(e).__name__, traceback.format_exc()])

        self.reader = threading.Thread(target=read)
        self.reader.start()

    def stop_reading(self) -> dict[str, list[Any]]:
        """Return how many events each read has shown, and the classes and texts of failures."""
        self.is_over.set()
        self.reader.join()
        return self.reads

    def start_operator(self, *, name: str, directory: str, checkpoint_format: str) -> None:
        """Start a query with an operator of `support.operators`."""
        self.spark.conf.set("spark.sql.shuffle.partitions", 4)
        operator = next(o for o in OPERATORS if o.name == name)
        self.running = live_cells.start(self.spark, operator, Path(directory), checkpoint_format)

    def live_cell(self, *, name: str) -> None:
        """Check reads of that query."""
        next(c for c in live_cells.CELLS if c.__name__ == name)(self.spark, self.running)

    def stop_operator(self) -> None:
        """Stop that query."""
        self.running.query.stop()

    def position(self) -> dict[str, int]:
        """Return the last committed batch, and the number of sources."""
        position = statemark.position(self._query())
        return {"batch": position.batch_id, "sources": len(position.offsets)}

    def finish(self) -> list[dict[str, Any]]:
        """Process all that has arrived, stop, and return the progress."""
        self._query().processAllAvailable()
        found = self.progress()
        self._query().stop()
        return found

    def places(self) -> list[str]:
        """Return the executor of each partition of the running query."""
        checkpoint = f"{self.directory}/checkpoint"
        return places.places(self.spark, self._query(), checkpoint, self.partitions)

    def misreport(self, *, wrong: list[str], version: int) -> None:
        """Tell the driver of stores that executors do not hold."""
        places.misreport(self.spark, self._query(), wrong, version)

    def results(self, *, directory: str) -> dict[str, Any]:
        """Rows that the query has last emitted for each key, what the batch says, and late rows."""
        last = sf.max("batch").over(Window.partitionBy("key"))
        schema = "key STRING, n LONG, total LONG, last LONG, late LONG, batch LONG"
        emitted = self.spark.read.schema(schema).json(f"{directory}/out").withColumn("newest", last)
        place = sf.pmod(sf.hash("key"), sf.lit(self.partitions)).alias("place")
        got = emitted.where("batch = newest").select("*", place).orderBy("key").collect()
        wanted = totals(self.spark.read.schema(EVENT_SCHEMA).json(f"{directory}/events"))
        return {
            "got": [[row[c] for c in COLUMNS] for row in got],
            "wanted": [[row[c] for c in COLUMNS] for row in wanted.orderBy("key").collect()],
            "late": {row.key: row.late for row in got},
            "partitions": {row.key: row.place for row in got},
        }

    def end(self) -> None:
        """Stop the session."""
        self.spark.stop()

    def _query(self) -> StreamingQuery:
        assert self.query
        return self.query


def main(local_dir: str, conf: dict[str, str]) -> None:
    """Serve requests until there are no more."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    builder = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    # A test of how the jar gets to executors sets everything by hand.
    if f"{STATE_STORE}.providerClass" not in conf:
        builder = statemark.configure(builder, local_dir=local_dir)
    driver = Driver(builder.getOrCreate())
    for line in sys.stdin:
        method, arguments = json.loads(line)
        error, value = None, None
        try:
            value = getattr(driver, method)(**arguments)
        except Exception:  # noqa: BLE001 - the test is told
            error = traceback.format_exc()
        print(json.dumps([error, value]), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
