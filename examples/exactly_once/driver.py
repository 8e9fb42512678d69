"""The job in a process that will be killed, with either sink: each row says who wrote it.

Ends when all input is processed. A header of each row names batch, run of the job, partition, and
attempt at the task: so whoever reads the topic can tell whether a batch is of one try.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import job
import statemark
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import QueryProgressEvent

#: Of the header that says who wrote a row.
HEADER = "written-by"


def main() -> None:
    """Process what is there."""
    asked: dict[str, Any] = json.loads(sys.argv[1])
    builder = SparkSession.builder.appName("exactly-once")
    for name, value in asked["conf"].items():
        builder = builder.config(name, value)
    spark = statemark.configure(builder, local_dir=asked["local_dir"]).getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    spark.streams.addListener(_Progress(Path(asked["progress"])))
    df = signed(job.totals(job.flights(spark, asked["bootstrap"], asked["input"])), asked["run"])
    if asked["sink"] == "kafka":
        writer = df.writeStream.format("kafka").option("topic", asked["output"])
        writer = writer.option("kafka.bootstrap.servers", asked["bootstrap"])
    else:
        writer = statemark.kafka_sink(
            df, bootstrap_servers=asked["bootstrap"], topic=asked["output"]
        )
    writer = writer.outputMode("update").option("checkpointLocation", asked["checkpoint"])
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


def signed(df: DataFrame, run: int) -> DataFrame:
    """Add a header to each row: `<batch> <run> <partition> <attempt at the task>`."""
    name = sf.udf(_writer(run), useArrow=False).asNondeterministic()
    header = sf.struct(sf.lit(HEADER).alias("key"), name("key").cast("binary").alias("value"))
    return df.withColumn("headers", sf.array(header))


def _writer(run: int) -> Callable[[str], str]:
    # A function within a function travels by value: executors do not have this module.
    def writer(_key: str) -> str:
        context = TaskContext.get()
        assert context is not None
        batch = context.getLocalProperty("streaming.sql.batchId")
        return f"{batch} {run} {context.partitionId()} {context.taskAttemptId()}"

    return writer


class _Progress(StreamingQueryListener):
    """Writes a line for each batch as it ends: nobody asks a driver that was killed."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        with self._file.open("a") as out:
            out.write(f"{event.progress.json}\n")

    def onQueryStarted(self, event: object) -> None:
        """Do nothing, as in those below."""

    def onQueryIdle(self, event: object) -> None: ...

    def onQueryTerminated(self, event: object) -> None: ...


if __name__ == "__main__":
    main()
