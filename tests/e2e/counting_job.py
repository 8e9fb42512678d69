"""Counts events per key with a plain Spark; `test_switch` submits it with and without our jar."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession


def main(directory: Path) -> None:
    """Read what has arrived in `events`, a file for each batch; write the counts of each batch."""
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.coalesce(1).write.mode("overwrite").json(f"{directory}/out/batch={batch_id:06d}")

    stream = spark.readStream.schema("key LONG").option("maxFilesPerTrigger", 1)
    query = (
        stream.json(str(directory / "events"))
        .groupBy("key")
        .count()
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .foreachBatch(write)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    metrics = query.lastProgress.stateOperators[0].customMetrics
    print("metrics:", *sorted(metrics))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
