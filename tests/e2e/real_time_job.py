"""A job with queries of both kinds, as `test_real_time` starts it; nothing in it names a provider.

The source of the real-time query is Spark's own for tests of the mode: its Kafka source, the only
other one, is in no package for the line.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.query import StreamingQuery

_TIMEOUT_S = 120
_MODE = "org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream"


def count(spark: SparkSession, directory: Path) -> None:
    """Count rows of files in micro-batches, with state."""
    events = spark.readStream.schema("id LONG, key STRING").json(str(directory / "events"))
    query = (
        events.groupBy("key")
        .count()
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(directory / "checkpoint-counts"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(_TIMEOUT_S)


def real_time(
    spark: SparkSession, checkpoint: Path, transform: Callable[[DataFrame], DataFrame]
) -> dict[str, Any]:
    """Run a real-time query until two rows are in a batch that is over, or it has failed."""
    jvm: Any = spark._jvm
    stream = jvm
    for part in _MODE.split("."):
        stream = getattr(stream, part)
    encoder = jvm.org.apache.spark.sql.Encoders.STRING()
    source = stream.singlePartition(spark._jsparkSession, encoder)
    try:
        query: StreamingQuery = (
            transform(DataFrame(source.toDF(), spark))
            .writeStream.format("console")
            .outputMode("update")
            .option("checkpointLocation", str(checkpoint))
            .trigger(realTime="5 seconds")
            .start()
        )
    except PySparkException as error:
        return {"rows": 0, "error": str(error)}
    source.addData(jvm.scala.jdk.javaapi.CollectionConverters.asScala(["a", "b"]).toSeq())
    deadline = time.monotonic() + _TIMEOUT_S
    rows = 0
    while rows < 2 and query.isActive and time.monotonic() < deadline:
        rows = sum(progress["numInputRows"] for progress in query.recentProgress)
        time.sleep(0.1)
    error = query.exception()
    query.stop()
    return {"rows": rows, "error": str(error) if error else None}


def main(builder: SparkSession.Builder, directory: Path) -> None:
    """Run queries in a session, and write down what became of them."""
    # Spark has no shorter interval for a user, and runs all stages of such a query at once.
    spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    found: dict[str, Any] = {}
    count(spark, directory)
    run = len(list(directory.glob("found-*.json")))
    for name, session in (("first", spark), ("second", spark.newSession())):
        checkpoint = directory / f"checkpoint-{name}-{run}"
        found[name] = real_time(session, checkpoint, lambda df: df.selectExpr("upper(value)"))
    stateful = directory / f"checkpoint-stateful-{run}"
    found["stateful"] = real_time(spark, stateful, lambda df: df.groupBy("value").count())
    (directory / f"found-{run}.json").write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(SparkSession.builder, Path(sys.argv[1]))
