"""The Spark session that end-to-end tests share, set up by hand with plain settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from support import faults

ROOT = Path(__file__).resolve().parents[2]
SPARK_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STATEMARK_PROVIDER = "statemark.spark.StatemarkStateStoreProvider"
#: The line of Spark that this environment has, such as 4.2.
LINE = ".".join(pyspark.__version__.split(".")[:2])
IS_BEFORE_42 = LINE in ("4.0", "4.1")
IS_FROM_43 = LINE not in ("4.0", "4.1", "4.2")
TESTKIT_JAR = ROOT / f"jvm/testkit/target/spark-{LINE}/scala-2.13/statemark-testkit.jar"
STATE_STORE = "spark.sql.streaming.stateStore"
#: Python workers of a busy machine take longer than 15 seconds to begin.
PATIENT = {"spark.python.authenticate.socketTimeout": "180s"}


def statemark_jar() -> Path:
    """Path of the plugin's jar that `make build` leaves in the package."""
    version = (ROOT / "VERSION").read_text().strip()
    jars = ROOT / "python/src/statemark/jars"
    return built(jars / f"statemark-spark_{LINE}_2.13-{version}.jar", "make build")


def environment(spark: SparkSession) -> Any:
    """
    Return the SparkConf that the driver's SparkEnv has.

    py4j looks at all methods of a class, and the wheel of Spark 4.3 lacks a class of SparkEnv's.
    """
    return spark.sparkContext._jsc.sc().conf()


def skip_where_source_lacks_ids(checkpoint_format: str) -> None:
    """Leave a test out that reads state by a source that does not know checkpoint ids."""
    if LINE == "4.0" and checkpoint_format == "2":
        pytest.skip("the state data source of Spark 4.0 reads checkpoint format v1 only")


def built(jar: Path, command: str) -> Path:
    """Return a jar, or fail with the command that makes it."""
    if not jar.is_file():
        pytest.fail(f"{jar} does not exist: run `{command}`", pytrace=False)
    return jar


def class_path_with_testkit() -> dict[str, str]:
    """
    Environment of a Spark process that has the testkit, and files that start no processes.

    They stand behind Spark's jars, so that an archive of these jars' classes fits.
    """
    testkit = built(TESTKIT_JAR, "bin/sbt testkit/assembly")
    return {"SPARK_DIST_CLASSPATH": f"{testkit}:{ROOT / 'jvm/testkit/unforked'}"}


def with_testkit(builder: SparkSession.Builder) -> SparkSession:
    """Start the session of this process, with the testkit on its class path."""
    # Spark reads our jar through the local file system, which this replaces.
    with pytest.MonkeyPatch.context() as environment:
        for name, value in class_path_with_testkit().items():
            environment.setenv(name, value)
        return builder.getOrCreate()


def settings(provider: str, local: Path) -> dict[str, str]:
    """Settings that a user would write by hand, and those that make tests fast and observable."""
    conf = {
        **PATIENT,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(local / "warehouse"),
        "spark.hadoop.fs.counting.impl": "statemark.testkit.CountingFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.counting.impl": (
            "statemark.testkit.CountingAbstractFileSystem"
        ),
        f"{STATE_STORE}.providerClass": provider,
        # Spark's provider at its best, when the tests run on it; ours writes changelogs anyway.
        f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    }
    if provider == STATEMARK_PROVIDER:
        conf["spark.jars"] = str(statemark_jar())
        # Not in the user's cache directory.
        conf[f"{STATE_STORE}.statemark.localDir"] = str(local / "state")
    return conf


def start(provider: str, local: Path) -> SparkSession:
    """Start the session: two task slots, and four attempts for each task."""
    builder = SparkSession.builder.master("local[2,4]").appName("statemark-e2e")
    for key, value in settings(provider, local).items():
        builder = builder.config(key, value)
    spark = with_testkit(builder)
    # Injected failures print stack traces by design.
    spark.sparkContext.setLogLevel("OFF")
    faults.register(spark)
    return spark
