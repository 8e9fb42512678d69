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

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

_READ = """
import json, sys
from http.client import HTTPConnection
from urllib.parse import urlsplit
from pyspark.sql import SparkSession
import statemark

builder = SparkSession.builder.master("local[2]").config("spark.ui.port", "0")
# Spark does not take the format from the checkpoint.
builder = builder.config("spark.sql.streaming.stateStore.checkpointFormatVersion", sys.argv[2])
spark = statemark.configure(builder).getOrCreate()
state = spark.read.format("statestore").load(sys.argv[1])
print("rows", state.selectExpr("sum(value.count)").first()[0])
def gauges():
    page = HTTPConnection(urlsplit(spark.sparkContext.uiWebUrl).netloc)
    page.request("GET", "/metrics/json/")
    found = json.load(page.getresponse())["gauges"]
    ours = ".plugin.statemark.spark.StatemarkPlugin."
    return {name.split(ours)[1]: g["value"] for name, g in found.items() if ours in name}

print("gauges", *sorted(gauges()))
# Without a limit as well.
spark.conf.set("spark.sql.streaming.stateStore.statemark.maxUncommittedBytes", "-1")
numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
counts = numbers.groupBy("value").count().writeStream.outputMode("update").format("noop")
query = counts.start()
while not gauges()["preparedBytes"]:
    assert query.isActive
found = gauges()
print("used", found["uncommittedUsedBytes"] > 0, found["uncommittedLimitBytes"])
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
    checkpoint = tmp_path / "checkpoint"
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
        [sys.executable, "-c", _READ, str(checkpoint), checkpoint_format],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
    )
    gauges = (
        "nativeBytes nativeLimitBytes openStores preparedBytes rememberedBytes spilledBytes spills"
        " stagedBytes uncommittedLimitBytes uncommittedUsedBytes"
    )
    said = ["rows 600", f"gauges {gauges}", "used True -1", "the query failed"]
    assert done.stdout.splitlines() == said, done.stderr[-4000:]
    assert "Using default name" not in done.stderr, "gauges without the id of the application"
