"""One run of a query whose rows carry the number of the run: no two runs write the same rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

#: A batch has so many tasks; the last of them fails where that is asked for.
TASKS = 4


def rows(spark: SparkSession, asked: dict[str, Any]) -> DataFrame:
    """Return rows `batch,row,copy,run`; runs differ in the number of copies."""
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(asked["events"])
    run = int(asked["run"])
    copies = lines.repartition(TASKS, "value").selectExpr(
        f"explode(sequence(0, {run % 3})) AS copy", "value"
    )
    value = f"concat(value, ',', copy, ',{run}')"
    if asked["fails"]:
        row = "(monotonically_increasing_id() & 8589934591)"
        where = f"attempt() = 0 AND spark_partition_id() = {TASKS - 1} AND {row} = 5"
        value = f"CASE WHEN {where} THEN raise_error('injected') ELSE {value} END"
    return copies.selectExpr("value AS key", f"{value} AS value")


def main() -> None:
    """Process what is there."""
    asked = json.loads(sys.argv[1])
    builder = SparkSession.builder.master(asked["conf"].get("spark.master", "local[2,4]"))
    for name, value in asked["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("INFO" if asked.get("info") else "WARN")
    gates = Path(asked["checkpoint"]).parent / "gates"
    jvm: Any = spark._jvm
    jvm.statemark.testkit.TaskGate.register(spark._jsparkSession, str(gates))
    jvm.org.apache.logging.log4j.core.config.Configurator.setLevel(
        "statemark.kafka", jvm.org.apache.logging.log4j.Level.INFO
    )
    query = (
        rows(spark, asked)
        .writeStream.format(asked["format"])
        .options(**asked["options"])
        .option("checkpointLocation", asked["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        with Path(asked["progress"]).open("a") as out:
            out.writelines(f"{progress.json}\n" for progress in query.recentProgress)
    spark.stop()


if __name__ == "__main__":
    main()
