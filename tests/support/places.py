"""Where Spark has the stores of a running query, and reports that say otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_STATE = "org.apache.spark.sql.execution.streaming.state"


def places(
    spark: SparkSession, query: StreamingQuery, checkpoint: str, partitions: int
) -> list[str]:
    """
    Return the executor of each partition of a query with one operator, as `executor_<host>_<id>`.

    Parameters
    ----------
    checkpoint
        The path of the query's checkpoint location on the local file system.
    """
    jvm: Any = spark._jvm
    state = getattr(jvm, _STATE)
    run = jvm.java.util.UUID.fromString(query.runId)
    found = []
    for partition in range(partitions):
        store = state.StateStoreId(f"file:{checkpoint}/state", 0, partition, "default")
        provider = state.StateStoreProviderId(store, run)
        found.append(state.StatemarkBridge.locationOf(spark._jsparkSession, provider).get())
    return found


def misreport(
    spark: SparkSession, query: StreamingQuery, wrong: Sequence[str], version: int
) -> None:
    """Tell the driver that executors hold stores at a version of which they hold nothing."""
    jvm: Any = spark._jvm
    cluster = jvm.statemark.spark.cluster
    run = jvm.java.util.UUID.fromString(query.runId)
    unknown = getattr(getattr(jvm.scala, "None$"), "MODULE$")
    at = jvm.statemark.engine.VersionId(version, unknown)
    opened = getattr(cluster, "StoreChange$Opened")(at)
    for partition, place in enumerate(wrong):
        _, host, executor = place.split("_")
        address = jvm.statemark.spark.checkpoint.StoreAddress(run, 0, partition, "default")
        report = cluster.StoreReport(executor, host, address, query.id, opened)
        cluster.Placement.add(report)
