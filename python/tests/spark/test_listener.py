"""The listener on a real session: Spark's own events can be read.

The plugin is not needed. Spark's default provider stands in for it, its metrics taken for ours.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark

SCRIPT = """
import logging, sys, tempfile, time
import statemark
from statemark import operator_metrics
from pyspark.sql import SparkSession

logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
listener = statemark.MetricsListener()
spark.streams.addListener(listener)

def run():
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    counts = source.groupBy((source.value % 3).alias("k")).count()
    query = (
        counts.writeStream.outputMode("update").format("noop").queryName("counts")
        .option("checkpointLocation", tempfile.mkdtemp()).start()
    )
    while query.lastProgress is None or query.lastProgress.batchId < 1:
        assert query.isActive, query.exception()
        time.sleep(0.1)
    query.stop()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    return query

assert listener.latest(run()) is None, "another provider's metrics were taken for ours"

operator_metrics._PREFIX = "loadedMapCacheHitCount"
query = run()
row = listener.latest(query)
assert (row.query_id, row.run_id, row.name) == (query.id, query.runId, "counts"), row
assert (row.operator, row.operator_id, row.rows_total) == ("stateStoreSave", 0, 3), row
assert row.batch_duration_ms > 0 and row.memory_used_bytes > 0, row
frame = listener.to_pandas()
assert list(frame["batch_id"])[:2] == [0, 1], frame
assert list(frame["rows_updated"])[:2] == [3, 3], frame
print("DONE")
"""


def test_events_of_a_real_query_are_read() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["DONE"]
