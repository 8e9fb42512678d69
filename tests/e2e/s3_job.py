"""Sums values per key with the checkpoint on S3; `test_s3` runs it, and runs it again."""

from __future__ import annotations

import json
import shutil
import sys
import urllib.request
from pathlib import Path
from typing import Any

from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

_SCHEMA = "key LONG, value LONG"


def totals(events: DataFrame) -> DataFrame:
    return events.groupBy("key").agg(sf.count("*").alias("n"), sf.sum("value").alias("total"))


def rows(df: DataFrame) -> list[list[int]]:
    return sorted(list(row) for row in df.collect())


def run(spark: SparkSession, name: str, plan: dict[str, Any]) -> dict[str, Any]:
    """Run a query over some batches, a file each; mark in the server's log where each begins."""

    def mark(what: str) -> None:
        request = urllib.request.Request(f"{plan['endpoint']}/mark/{name}/{what}", method="PUT")
        urllib.request.urlopen(request).close()

    query = plan["queries"][name]
    for key, value in query["settings"].items():
        spark.conf.set(key, value)
    events = Path(query["events"])
    events.mkdir(exist_ok=True)
    source = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1).json(str(events))
    sink = f"totals_{name.replace('-', '_')}"
    writer = totals(source).writeStream.outputMode("complete").format("memory").queryName(sink)
    mark("start")
    running = writer.option("checkpointLocation", query["checkpoint"]).start()
    maintained = []
    for batch in plan["batches"]:
        running.processAllAvailable()
        mark(f"batch/{batch}")
        keys = [{"key": (batch * 977 + i * i) % 5000, "value": i % 101} for i in range(300)]
        staged = events / f".{batch:04d}.json"
        staged.write_text("\n".join(map(json.dumps, keys)))
        staged.rename(events / f"{batch:04d}.json")
        running.processAllAvailable()
        if batch in plan["maintenance"]:
            mark(f"maintenance/{batch}")
            stores = spark.range(1).selectExpr(f"maintain('{query['checkpoint']}')").first()
            maintained += list(stores)
    mark("stop")
    running.stop()
    first = next(p for p in running.recentProgress if p.numInputRows).stateOperators[0]
    return {
        "got": rows(spark.table(sink)),
        "wanted": rows(totals(spark.read.schema(_SCHEMA).json(str(events)))),
        "maintained": maintained,
        "loads": {k: v for k, v in first.customMetrics.items() if v and "statemarkLoad" in k},
    }


def main(plan_file: Path, results: Path) -> None:
    plan = json.loads(plan_file.read_text())
    builder = SparkSession.builder
    for key, value in plan["settings"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    jvm: Any = spark._jvm
    jvm.statemark.testkit.Maintenance.register(spark._jsparkSession, "maintain")
    results.write_text(json.dumps({name: run(spark, name, plan) for name in plan["queries"]}))
    # A cluster of one machine keeps its executors' files beside Spark's jars.
    work = Path(_find_spark_home()) / "work" / spark.sparkContext.applicationId
    spark.stop()
    shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
