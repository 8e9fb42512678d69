"""The deduplication once more, in a fresh process: how long until it has committed a batch."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flights import fault, queries
from flights.session import streaming_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def restarted(spark: SparkSession, *, inputs: Path, work: Path) -> dict[str, Any]:
    """
    Start the query of `flights.side` again, with one more file of flights that it has seen.

    Parameters
    ----------
    spark
        A fresh session with the provider of that side.
    inputs
        Directory that `flights.data.write_inputs` filled.
    work
        The directory of that side, with its checkpoint.

    Returns
    -------
    dict of str to Any
        ``to_commit_ms`` from the start of the query to the end of its first batch; ``opened`` and
        ``opened_bytes``, how many files were opened below its state directory, and their size.
    """
    fault.register(spark)  # the query has the function in it
    seen = min((inputs / "flights").iterdir())
    # The same query on a state of its own first: how long Spark takes to compile a plan, and Java
    # to load classes, is not what differs.
    warm = work / "warm"
    (warm / "arriving").mkdir(parents=True)
    os.link(seen, warm / "arriving" / seen.name)
    _run(spark, arriving=warm / "arriving", checkpoint=warm / "dedup", results=warm / "results")
    os.link(seen, work / "arriving" / f"flights-again-{seen.name}")
    checkpoint = work / "checkpoints/dedup"
    start = time.monotonic()
    _run(
        spark,
        arriving=work / "arriving",
        checkpoint=checkpoint,
        results=work / "results/dedup",
    )
    to_commit_ms = (time.monotonic() - start) * 1000
    jvm: Any = spark._jvm
    events = jvm.statemark.testkit.FileCounts.eventsSince(str(checkpoint / "state"), 0)
    files = {event.path() for event in events if event.kind() == "open"}
    # What was read and then deleted is not there to be measured; nothing of this size is.
    sizes = [path.stat().st_size for path in map(Path, files) if path.exists()]
    return {"to_commit_ms": to_commit_ms, "opened": len(files), "opened_bytes": sum(sizes)}


def _run(spark: SparkSession, *, arriving: Path, checkpoint: Path, results: Path) -> None:
    """Run the query on all files that are there."""
    source = queries.read(spark, arriving, queries.FLIGHT_SCHEMA, files_per_batch=1)
    result = queries.deduplicated(source).where("fail_once()")
    query = (
        result.writeStream.format("parquet")
        .outputMode("append")
        .trigger(availableNow=True)
        .option("checkpointLocation", f"counting://{checkpoint}")
        .start(str(results))
    )
    query.awaitTermination()


def main() -> None:
    """Restart one side and write its measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--provider", required=True)
    parser.add_argument("--inputs", required=True, type=Path)
    parser.add_argument("--work", required=True, type=Path)
    options = parser.parse_args()
    spark = streaming_session(options.provider, options.work)
    measures = restarted(spark, inputs=options.inputs, work=options.work)
    print(
        f"{options.name:<14} dedup: restarted in a fresh process, "
        f"first batch committed after {measures['to_commit_ms']:,.0f} ms",
        flush=True,
    )
    (options.work / "restart.json").write_text(json.dumps(measures, indent=2))
    spark.stop()


if __name__ == "__main__":
    main()
