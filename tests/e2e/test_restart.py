"""A query that is started again is served from what it left on local disk."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.session import STATEMARK_PROVIDER
from support.streams import EVENT_SCHEMA, Source, events

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

_JOB = f"""
import json
import sys
from pyspark.sql import SparkSession, functions as sf
import statemark

source, checkpoint, local, format = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.shuffle.partitions", 4)
builder = builder.config("spark.sql.streaming.stateStore.checkpointFormatVersion", format)
spark = statemark.configure(builder, local_dir=local).getOrCreate()
stream = spark.readStream.schema("{EVENT_SCHEMA}").option("maxFilesPerTrigger", 1).json(source)
counted = stream.groupBy("key").agg(sf.count("*").alias("n"))
writer = counted.writeStream.outputMode("complete").format("memory").queryName("counts")
query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()
first = query.recentProgress[0].stateOperators[0].customMetrics
served = {{k: v for k, v in first.items() if v and "Load" in k and k.endswith("Count")}}
total = spark.table("counts").selectExpr("sum(n)").first()[0]
print("DONE", json.dumps({{"served": served, "total": total}}))
"""


def _run(source: Source, tmp_path: Path, checkpoint_format: str) -> str:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            _JOB,
            str(source.directory),
            str(tmp_path / "checkpoint"),
            str(tmp_path / "local"),
            checkpoint_format,
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("DONE")]
    assert lines, done.stderr[-4000:]
    return lines[0]


def test_another_process_opens_the_stores_of_the_one_before(
    spark: SparkSession, source: Source, tmp_path: Path, provider: str, checkpoint_format: str
) -> None:
    if provider != STATEMARK_PROVIDER:
        pytest.skip("Spark's provider restores")
    source.add(events(0, 300), events(300, 300))
    assert _run(source, tmp_path, checkpoint_format) == (
        'DONE {"served": {"statemarkLoadNewCount": 4}, "total": 600}'
    )
    source.add(events(600, 300))
    assert _run(source, tmp_path, checkpoint_format) == (
        'DONE {"served": {"statemarkLoadLocalCount": 4}, "total": 900}'
    )
