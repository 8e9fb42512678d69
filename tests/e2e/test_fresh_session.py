"""State is read in a session that never had a streaming query."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as sf
from support import session
from support.session import STATEMARK_PROVIDER
from support.streams import Source, events
from support.tables import ask

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

_METRICS = session.ROOT / "conf/metrics.properties"
_READ = """
import json, sys
from http.client import HTTPConnection
from urllib.parse import urlsplit
from pyspark.sql import SparkSession
import statemark

builder = SparkSession.builder.master("local[2]").config("spark.ui.port", "0")
# Spark does not take the format from the checkpoint.
builder = builder.config("spark.sql.streaming.stateStore.checkpointFormatVersion", sys.argv[2])
builder = builder.config("spark.sql.shuffle.partitions", "2")
builder = builder.config("spark.metrics.conf", sys.argv[4])
builder = builder.config("spark.metrics.namespace", "orders")
shown = "statemarkCommitLatencyMs"
builder = builder.config("spark.sql.streaming.ui.enabledCustomMetricList", shown)
spark = statemark.configure(builder).getOrCreate()
state = spark.read.format("statestore").load(sys.argv[1])
print("rows", state.selectExpr("sum(value.count)").first()[0])
def page(path):
    connection = HTTPConnection(urlsplit(spark.sparkContext.uiWebUrl).netloc)
    connection.request("GET", path)
    answer = connection.getresponse()
    assert answer.status == 200, (path, answer.status)
    return answer.read().decode()

ours = "orders.driver.plugin.statemark.spark.StatemarkPlugin."
def gauges():
    found = json.loads(page("/metrics/json/"))["gauges"]
    return {name.split(ours)[1]: g["value"] for name, g in found.items() if ours in name}

print("gauges", *sorted(gauges()))
# Without a limit as well.
spark.conf.set("spark.sql.streaming.stateStore.statemark.maxUncommittedBytes", "-1")
numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
counts = numbers.groupBy("value").count().writeStream.outputMode("update").format("noop")
counts = counts.queryName("by value").option("checkpointLocation", sys.argv[3])
own = "queries.by value.0."
def run(until):
    query = counts.start()
    while not until(gauges()):
        assert query.isActive, query.exception()
    return query

query = run(lambda found: found["preparedBytes"] and found.get(own + "commitCount", 0) > 4)
found = gauges()
print("used", found["uncommittedUsedBytes"] > 0, found["uncommittedLimitBytes"])
print("read", statemark.get(query, 7)["value"]["count"])
found = gauges()
reads = [found[f"liveReads.{level}.count"] for level in ("READ_COMMITTED", "READ_UNCOMMITTED")]
print("reads", *reads, found["liveReads.READ_COMMITTED.latencyMsMax"] > 0)
# What Spark's page of a query shows of the metrics that it was told to.
print("page", f'id="aggregated-{shown}' in page(f"/StreamingQuery/statistics/?id={query.runId}"))
query.stop()
before = gauges()
print("operator", *sorted(name[len(own):] for name in before if name.startswith(own)))
query = run(lambda found: found[own + "commitCount"] > before[own + "commitCount"] + 4)
after = gauges()
print("restarted", before.keys() == after.keys(), after[own + "loadCheckpointBytes"] >= 0)
slowest, mean = after[own + "commitLatencyMsMax"], after[own + "commitLatencyMsAvg"]
print("commits", after[own + "commitRate"] > 0, 0 < mean <= slowest, after["localDirFreeBytes"] > 0)
lines = dict(line.rsplit(" ", 1) for line in page("/metrics/prometheus/").splitlines())
name = (ours + own + "commitCount").translate({ord(c): "_" for c in ". "})
commits = int(lines["metrics_" + name + '_Value{type="gauges"}'])
jvm = spark._jvm
beans = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
asked = spark.sparkContext._gateway.new_array(jvm.Object, 2)
asked[0] = jvm.javax.management.ObjectName(f"metrics:name={ours}{own}commitCount,type=gauges")
asked[1] = "Value"
# The server's own class is none that may be called.
methods = jvm.java.lang.Class.forName("javax.management.MBeanServer").getMethods()
read = next(method for method in methods if method.getName() == "getAttribute")
by_jmx = read.invoke(beans, asked)
print("everywhere", after[own + "commitCount"] <= commits <= by_jmx)
query.stop()
rows = spark.readStream.format("rate").load().selectExpr("raise_error('no more')")
query = rows.writeStream.format("noop").queryName("ends").start()
try:
    query.awaitTermination()
except Exception:
    told = ""
while "no more" not in told:  # until the plugin has heard of it
    try:
        statemark.get("ends", 1)
    except statemark.InvalidInputError as e:
        told = e.reason
print(told.split("; ")[-1].partition(" at ")[0])
"""


def test_state_is_read(
    spark: SparkSession, source: Source, tmp_path: Path, provider: str, checkpoint_format: str
) -> None:
    if provider != STATEMARK_PROVIDER:
        pytest.skip("Spark's provider fails where no query ever ran")
    session.skip_where_source_lacks_ids(checkpoint_format)
    source.add(events(0, 300), events(300, 300))
    checkpoint, own = tmp_path / "checkpoint", tmp_path / "own"
    query = (
        source.stream()
        .groupBy("key")
        .agg(sf.count("*").alias("count"))
        .writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    done = subprocess.run(
        [sys.executable, "-c", _READ, *map(str, (checkpoint, checkpoint_format, own, _METRICS))],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
    )
    reads = [
        f"liveReads.{level}.{figure}"
        for level in ("READ_COMMITTED", "READ_UNCOMMITTED")
        for figure in ("count", "latencyMsAvg", "latencyMsMax")
    ]
    process = (
        "localDirBytes localDirFreeBytes nativeBytes nativeLimitBytes openStores preparedBytes"
        " rememberedBytes spilledBytes spills stagedBytes uncommittedLimitBytes"
        " uncommittedUsedBytes"
    )
    said = [
        "rows 600",
        f"gauges {' '.join(reads)} {process}",
        "used True -1",
        "read 1",
        "reads 1 0 True",
        "page True",
        f"operator {' '.join(sorted(gauge['name'] for gauge in ask()['gauges']))}",
        "restarted True True",
        "commits True True True",
        "everywhere True",
        "the query failed",
    ]
    assert done.stdout.splitlines() == said, done.stderr[-4000:]
    assert "Using default name" not in done.stderr, "gauges without the id of the application"
