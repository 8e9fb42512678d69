"""One run of a query whose rows carry the number of the run: no two runs write the same rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

#: Of a batch, where nothing else is asked for.
TASKS = 4
#: The row at which a task fails once, where that is asked for: others of the task are sent then.
FAILS_AT = 77
#: Begins values of the second sink.
KEYS = "key of "
#: Rows whose numbers end so are those at which a task meets its gate: others are sent then.
GATED = "%7"


def rows(spark: SparkSession, asked: dict[str, Any]) -> DataFrame:
    """
    Return rows `batch,row,copy,run`; runs differ in the number of copies.

    Asked for may be, as `query`:

    - `tasks`: how many write a batch, None for as many as Spark likes;
    - `counts`: rows are counted first, by key, in state;
    - `gates`: a folder of `statemark.testkit.TaskGate`. Tasks pass `gate_in` before the shuffle,
      and `gate_out` in the midst of writing where the stage runs for the first time. A header of
      each row says who wrote it: partition, attempt at the stage, attempt at the task;
    - `key_bytes`: the length of a row's key;
    - `in_batches`: `foreachBatch` writes, to two sinks of the topic.
    """
    query = asked["query"]
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(asked["events"])
    run, gates = int(asked["run"]), query.get("gates")
    if gates:
        lines = lines.where("gate_in()")
    if query.get("counts"):
        # A row that state knows already would be a copy that nobody expects.
        dealt, first = lines.groupBy("value").count(), "int(count) - 1"
    else:
        tasks = query.get("tasks", TASKS)
        dealt = lines.repartition(*filter(None, (tasks,)), "value")
        first = "0"
    copies = dealt.selectExpr(f"explode(sequence({first}, {first} + {run % 3})) AS copy", "value")
    columns = ["value AS key"]
    if gates:
        meets = f"value LIKE '{GATED}' AND stage_attempt() = 0"
        copies = copies.where(f"CASE WHEN {meets} THEN gate_out() ELSE true END")
        writer = "concat_ws(' ', spark_partition_id(), stage_attempt(), attempt())"
        columns.append(f"array(struct('task', CAST({writer} AS BINARY))) AS headers")
    if query.get("key_bytes"):
        columns[0] = f"rpad(value, {query['key_bytes']}, '.') AS key"
    value = f"concat(value, ',', copy, ',{run}')"
    if asked["fails"]:
        where = f"attempt() = 0 AND copy = 0 AND value LIKE '%,{FAILS_AT}'"
        value = f"CASE WHEN {where} THEN raise_error('injected') ELSE {value} END"
    return copies.selectExpr(*columns, f"{value} AS value")


def start(spark: SparkSession, asked: dict[str, Any]) -> StreamingQuery:
    """Start the query; it ends when it has processed what is there."""
    jvm: Any = spark._jvm
    gates = asked["query"].get("gates", "/nowhere")  # `attempt()` needs none
    jvm.statemark.testkit.TaskGate.register(spark._jsparkSession, gates)
    df = rows(spark, asked)
    if asked["query"].get("in_batches"):
        writer = df.writeStream.foreachBatch(lambda frame, batch: write(frame, batch, asked))
    else:
        writer = df.writeStream.format(asked["format"]).options(**asked["options"])
    writer = writer.option("checkpointLocation", asked["checkpoint"])
    mode = "update" if asked["query"].get("counts") else "append"
    return writer.outputMode(mode).trigger(availableNow=True).start()


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
