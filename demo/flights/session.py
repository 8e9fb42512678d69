"""Spark sessions: the same settings for both providers, but for the provider."""

from __future__ import annotations

from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

SPARK_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STATEMARK_PROVIDER = "statemark.spark.StatemarkStateStoreProvider"
PARTITIONS = 2

_DEMO = Path(__file__).resolve().parents[1]
_LINE = ".".join(pyspark.__version__.split(".")[:2])
_TESTKIT = _DEMO.parent / f"jvm/testkit/target/spark-{_LINE}/scala-2.13/statemark-testkit.jar"
_STATE = "spark.sql.streaming.stateStore"


def streaming_session(provider: str, work: Path) -> SparkSession:
    """
    Start a session whose stateful queries use a provider.

    Parameters
    ----------
    provider
        Class name of the state store provider.
    work
        Directory for logs and local state.

    Returns
    -------
    SparkSession
        Two task slots, four attempts for each task, and the counting file system.
    """
    builder = _local_builder(work)
    settings = {
        "spark.jars": str(_TESTKIT),
        "spark.hadoop.fs.counting.impl": "statemark.testkit.CountingFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.counting.impl": (
            "statemark.testkit.CountingAbstractFileSystem"
        ),
        # Spark's provider at its best: without it each commit uploads files of RocksDB.
        f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
        # The demo is shorter than the default minute, and a snapshot has to exist before the fault.
        f"{_STATE}.maintenanceInterval": "2s",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return _with_provider(builder, provider, work).getOrCreate()


def batch_session(work: Path) -> SparkSession:
    """Start a session for batch queries; the provider plays no part in it."""
    return _local_builder(work).getOrCreate()


def _with_provider(
    builder: SparkSession.Builder, provider: str, work: Path
) -> SparkSession.Builder:
    if provider != STATEMARK_PROVIDER:
        return builder.config(f"{_STATE}.providerClass", provider)
    import statemark  # the other side must run without it

    return statemark.configure(builder, local_dir=str(work / "local-state"))


def _local_builder(work: Path) -> SparkSession.Builder:
    work.mkdir(parents=True, exist_ok=True)
    logging = f"-Dlog4j2.configurationFile={_DEMO / 'log4j2.properties'} -Ddemo.log={work / 'log'}"
    return (
        SparkSession.builder.master(f"local[{PARTITIONS},4]")
        .appName("statemark-demo")
        .config("spark.driver.memory", "3g")
        .config("spark.driver.extraJavaOptions", logging)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(work / "tmp"))
        .config("spark.sql.warehouse.dir", str(work / "warehouse"))
        .config("spark.sql.shuffle.partitions", str(PARTITIONS))
        .config("spark.sql.session.timeZone", "UTC")
    )
