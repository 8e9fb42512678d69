"""A session with the sink, shared by the tests of this folder."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession
from support import sinks
from support.line_files import Lines, Sink
from support.session import with_testkit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.brokers import Brokers

    Topic = Callable[..., str]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two task slots, and four attempts for each task."""
    # Python's workers need what this process has.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2,4]").appName("statemark-kafka")
    for name, value in sinks.settings(tmp_path_factory.mktemp("spark")).items():
        builder = builder.config(name, value)
    builder = builder.config("spark.plugins", "statemark.spark.StatemarkPlugin")  # for gauges
    session = with_testkit(builder)
    session.sparkContext.setLogLevel("OFF")  # injected failures print stack traces by design
    jvm: Any = session._jvm
    jvm.statemark.testkit.TaskGate.register(session._jsparkSession, "/nowhere")  # for `attempt()`
    yield session
    session.stop()


@pytest.fixture
def log(spark: SparkSession, tmp_path: Path) -> Iterator[sinks.Log]:
    """Lines of the sink's loggers."""
    jvm: Any = spark._jvm
    log4j, file = jvm.org.apache.logging.log4j, tmp_path / "sink.log"
    layout = log4j.core.layout.PatternLayout.newBuilder().withPattern("%p %m%n").build()
    builder = log4j.core.appender.FileAppender.newBuilder().withFileName(str(file))
    appender = builder.setName(str(file)).setLayout(layout).build()
    appender.start()
    logger = log4j.LogManager.getLogger("statemark.kafka")
    logger.addAppender(appender)
    log4j.core.config.Configurator.setLevel("statemark.kafka", log4j.Level.INFO)
    yield sinks.Log(file)
    logger.removeAppender(appender)
    appender.stop()
    log4j.core.config.Configurator.setLevel("statemark.kafka", log4j.Level.OFF)


@pytest.fixture
def lines(spark: SparkSession, tmp_path: Path) -> Lines:
    return Lines(spark, tmp_path / "lines")


@pytest.fixture
def sink(broker: Brokers, topic: Topic, tmp_path: Path) -> Sink:
    return Sink(broker.bootstrap, topic(partitions=3), tmp_path / "checkpoint")
