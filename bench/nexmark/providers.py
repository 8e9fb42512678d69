"""State store providers side by side: the same session but for the provider and its settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import statemark
from pyspark.sql import SparkSession

_STATE = "spark.sql.streaming.stateStore"
_SPARKS = "org.apache.spark.sql.execution.streaming.state"
HEAP_MB = 2048
#: What all run with. The whole heap is there from the start, so that what a process takes more
#: than another one is native memory.
SHARED = {
    "spark.driver.memory": f"{HEAP_MB}m",
    "spark.driver.extraJavaOptions": f"-Xms{HEAP_MB}m -XX:+AlwaysPreTouch",
    "spark.sql.shuffle.partitions": "4",
}
_PLAIN = {
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Results are read without Spark as well.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}


@dataclass(frozen=True)
class Provider:
    """A provider and the settings it runs with.

    Attributes
    ----------
    name
        As in results.
    settings
        Beside the shared ones.
    note
        Why these.
    is_statemark
        Set up by `statemark.configure`.
    """

    name: str
    settings: dict[str, str] = field(default_factory=dict)
    note: str = ""
    is_statemark: bool = False


PROVIDERS = {
    provider.name: provider
    for provider in (
        Provider(
            "spark-rocksdb",
            {f"{_STATE}.providerClass": f"{_SPARKS}.RocksDBStateStoreProvider"},
            note="Spark's defaults",
        ),
        Provider(
            "spark-rocksdb-tuned",
            {
                f"{_STATE}.providerClass": f"{_SPARKS}.RocksDBStateStoreProvider",
                f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
                f"{_STATE}.rocksdb.trackTotalNumberOfRows": "false",
                f"{_STATE}.rocksdb.boundedMemoryUsage": "true",
                f"{_STATE}.rocksdb.maxMemoryUsageMB": "500",
            },
            note="what a manual of it advises: changelogs, rows not counted, and one cache and one "
            "bound of 500 MB for all stores, where the others have caches of 8 MB for each store; "
            "that leaves room for more than what Statemark stages on the heap",
        ),
        Provider(
            "spark-memory",
            {f"{_STATE}.providerClass": f"{_SPARKS}.HDFSBackedStateStoreProvider"},
            note="all state on the heap",
        ),
        Provider("statemark", note="defaults, as `statemark.configure` sets it", is_statemark=True),
    )
}


def session(provider: Provider | None, scratch: Path) -> SparkSession:
    """
    Start a session whose stateful queries use a provider.

    Parameters
    ----------
    provider
        None for a session that runs batch queries only.
    scratch
        Directory for everything that is local.
    """
    builder = SparkSession.builder.master("local[2]").appName("bench-nexmark")
    local = {
        # As a session with a connector has: fetching a jar is in none of the differences.
        "spark.jars": str(statemark.jar_path()),
        "spark.local.dir": str(scratch / "tmp"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    for key, value in (SHARED | _PLAIN | local | (provider.settings if provider else {})).items():
        builder = builder.config(key, value)
    if provider and provider.is_statemark:
        builder = statemark.configure(builder, local_dir=str(scratch / "state"))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
