"""One Spark session for all end-to-end tests; starting one takes longer than most tests."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
from support import faults, session
from support.streams import Run, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(provider: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # Python workers need this environment's packages.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = session.start(provider, tmp_path_factory.mktemp("spark"))
    yield spark
    spark.stop()


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Source:
    """An empty directory in which events arrive."""
    return Source(spark, tmp_path / "events")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A query in append mode that has not run yet."""
    return Run(tmp_path / "run")


@pytest.fixture
def conf(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Set a setting until the end of the test."""
    before: dict[str, str | None] = {}

    def put(key: str, value: str) -> None:
        before.setdefault(key, spark.conf.get(key, None))
        spark.conf.set(key, value)

    yield put
    for key, value in before.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


@pytest.fixture(params=["1", "2"], ids=["format-v1", "format-v2"])
def checkpoint_format(request: pytest.FixtureRequest, conf: Callable[[str, str], None]) -> str:
    """Both formats of state in a checkpoint: with v2 each version of a store has an id."""
    conf(f"{session.STATE_STORE}.checkpointFormatVersion", request.param)
    return str(request.param)


@pytest.fixture(autouse=True)
def _no_query_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    # A test that starts processes of its own needs no session here.
    if "spark" in request.fixturenames:
        spark: SparkSession = request.getfixturevalue("spark")
        faults.disarm(spark)
        for query in spark.streams.active:
            query.stop()
