"""One run of a query whose rows carry the number of the run: no two runs write the same rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

#: Of a batch.
TASKS = 4
#: The row at which a task fails once, where that is asked for: others of the task are sent then.
FAILS_AT = 77
#: Begins values of the second sink.
KEYS = "key of "


def rows(spark: SparkSession, asked: dict[str, Any]) -> DataFrame:
    """Return rows `batch,row,copy,run`; runs differ in the number of copies."""
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(asked["events"])
    run = int(asked["run"])
    copies = lines.repartition(TASKS, "value").selectExpr(
        f"explode(sequence(0, {run % 3})) AS copy", "value"
    )
    value = f"concat(value, ',', copy, ',{run}')"
    if asked["fails"]:
        where = f"attempt() = 0 AND copy = 0 AND value LIKE '%,{FAILS_AT}'"
        value = f"CASE WHEN {where} THEN raise_error('injected') ELSE {value} END"
    return copies.selectExpr("value AS key", f"{value} AS value")


def start(spark: SparkSession, asked: dict[str, Any]) -> StreamingQuery:
    """Start the query; it ends when it has processed what is there."""
    jvm: Any = spark._jvm
    jvm.statemark.testkit.TaskGate.register(spark._jsparkSession, "/nowhere")  # for `attempt()`
    df = rows(spark, asked)
    if asked["batches"]:
        writer = df.writeStream.foreachBatch(lambda frame, batch: write(frame, batch, asked))
    else:
        writer = df.writeStream.format(asked["format"]).options(**asked["options"])
    writer = writer.option("checkpointLocation", asked["checkpoint"])
    return writer.trigger(availableNow=True).start()


def write(df: DataFrame, batch: int, asked: dict[str, Any]) -> None:
    """Write a batch to two sinks of one topic."""
    for sink in ("whole", "keys"):
        frame = df if sink == "whole" else df.selectExpr("key", f"concat('{KEYS}', value) AS value")
        writer = frame.write.format(asked["format"]).options(**asked["options"])
        writer = writer.option("txnVersion", batch).option("sinkName", sink)
        writer.save()


def main() -> None:
    """Process what is there."""
    asked = json.loads(sys.argv[1])
    builder = SparkSession.builder.master("local[2,4]")
    for name, value in asked["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    jvm: Any = spark._jvm
    jvm.org.apache.logging.log4j.core.config.Configurator.setLevel(
        "statemark.kafka", jvm.org.apache.logging.log4j.Level.INFO
    )
    query = start(spark, asked)
    try:
        query.awaitTermination()
    finally:
        with Path(asked["progress"]).open("a") as out:
            out.writelines(f"{progress.json}\n" for progress in query.recentProgress)
    spark.stop()


if __name__ == "__main__":
    main()
