"""A session with the sink, shared by the tests of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession
from support import sinks

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two task slots, and four attempts for each task."""
    builder = SparkSession.builder.master("local[2,4]").appName("statemark-kafka")
    for name, value in sinks.settings(tmp_path_factory.mktemp("spark")).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # injected failures print stack traces by design
    yield session
    session.stop()
