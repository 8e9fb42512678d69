"""One run of a query, and what it emitted beside its batch twin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from nexmark.sources import Events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from nexmark.events import Input
    from nexmark.queries import Query

#: Batches at the beginning of each run that are not timed: stores are created, plans compiled.
WARM = 1
_TIMEOUT_S = 1200


class MismatchError(Exception):
    """A query has not emitted what its batch twin does."""


def run(
    spark: SparkSession, query: Query, wanted: Input, events: Path, work: Path
) -> dict[str, float]:
    """
    Run a query over all of its input, one micro-batch after the other.

    Parameters
    ----------
    spark
        The session.
    query
        The query.
    wanted
        What was generated.
    events
        Directory of the input.
    work
        Directory for checkpoint and results; it is created.

    Returns
    -------
    dict of str to float
        `events/s` after the first batch; `seconds` of the whole run; `state rows` and `state MB`
        (as the provider reports them), the most of any batch; in MiB, `peak MB`, the most that the
        process had in memory, and `heap MB`, what lives on its heap after the last batch.

    Notes
    -----
    Every batch is written to a directory of its own, as Parquet by `foreachBatch`: the only sink
    of Spark's that takes both output modes, keeps no rows on the heap, and tells which row of a key
    was the last. It is the same for all providers. The batch that closes all windows is not timed,
    as no batch of a stream that goes on is like it.
    """
    memory = _Memory(spark)
    running = (
        query.over(Events(spark, events, is_stream=True))
        .writeStream.outputMode(query.mode)
        .option("checkpointLocation", str(work / "checkpoint"))
        .foreachBatch(_writer(work))
        .trigger(availableNow=True)
        .start()
    )
    if not running.awaitTermination(_TIMEOUT_S):
        problem = f"{query.name}: not finished in {_TIMEOUT_S} s: {running.status}"
        raise TimeoutError(problem)
    progress = [json.loads(p.json) for p in running.recentProgress]
    took = {p["batchId"]: p["batchDuration"] for p in progress}
    timed = [took[batch] for batch in range(min(WARM, wanted.batches - 1), wanted.batches)]
    state = [p["stateOperators"] for p in progress]
    return {
        "events/s": 1000 * wanted.events * len(timed) / sum(timed),
        "seconds": sum(took.values()) / 1000,
        "state rows": max(sum(o["numRowsTotal"] for o in batch) for batch in state),
        "state MB": max(sum(o["memoryUsedBytes"] for o in batch) for batch in state) / 1e6,
        **memory.used(),
    }


def release(spark: SparkSession) -> None:
    """Close the stores of queries that have ended; Spark itself would do it within two minutes."""
    stores = "org.apache.spark.sql.execution.streaming.state.StateStore$"
    getattr(getattr(spark._jvm, stores), "MODULE$").stop()


def write_twin(spark: SparkSession, query: Query, events: Path, directory: Path) -> None:
    """Write what a query gives in batch."""
    query.over(Events(spark, events, is_stream=False)).write.parquet(str(directory))


def check(query: Query, work: Path, twin: Path) -> int:
    """
    Compare what a run emitted with the batch twin, row for row.

    Returns
    -------
    int
        Number of rows, > 0.

    Raises
    ------
    MismatchError
        If rows differ, or there are none.
    """
    got, wanted = _result(query, work), pq.read_table(twin)
    order = [(name, "ascending") for name in wanted.column_names]
    got, wanted = got.select(wanted.column_names).sort_by(order), wanted.sort_by(order)
    if not len(wanted):
        problem = f"{query.name}: the batch twin has no rows; there is nothing to compare"
        raise MismatchError(problem)
    if len(got) != len(wanted) or any(got[c] != wanted[c] for c in wanted.column_names):
        first = next(_differing(got, wanted), "one of them ends")
        problem = (
            f"{query.name}: {len(got)} rows, in batch {len(wanted)}; first difference: {first}"
        )
        raise MismatchError(problem)
    return len(wanted)


def _writer(work: Path) -> Callable[[DataFrame, int], None]:
    # Overwriting a directory named by the batch makes a repeated batch harmless.
    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.mode("overwrite").parquet(str(work / f"out/batch={batch_id:06d}"))

    return write


def _result(query: Query, work: Path) -> pa.Table:
    emitted = pq.read_table(work / "out")
    if query.mode == "append":
        return emitted
    emitted = emitted.set_column(
        emitted.column_names.index("batch"), "batch", emitted["batch"].cast(pa.int64())
    )
    last = emitted.group_by(query.key).aggregate([("batch", "max")])
    last = last.rename_columns([*query.key, "batch"])
    return emitted.join(last, [*query.key, "batch"], join_type="inner")


def _differing(got: pa.Table, wanted: pa.Table) -> Iterator[str]:
    for a, b in zip(got.to_pylist(), wanted.to_pylist(), strict=False):
        if a != b:
            yield f"{a}, in batch {b}"


class _Memory:
    """What the session's process has in memory during a run."""

    def __init__(self, spark: SparkSession) -> None:
        self._java = spark._jvm.java.lang
        self._process = Path(f"/proc/{self._java.ProcessHandle.current().pid()}")
        self._live_mb()
        if self._process.is_dir():
            # Linux begins the peak anew.
            (self._process / "clear_refs").write_text("5")

    def used(self) -> dict[str, float]:
        used = {"heap MB": self._live_mb()}
        if self._process.is_dir():
            status = dict(
                line.split(":", 1) for line in (self._process / "status").read_text().splitlines()
            )
            used["peak MB"] = int(status["VmHWM"].split()[0]) / 1024
        return used

    def _live_mb(self) -> float:
        self._java.System.gc()
        runtime = self._java.Runtime.getRuntime()
        return float(runtime.totalMemory() - runtime.freeMemory()) / 2**20
