"""A standalone cluster for each test file; a failed test says where its logs are."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from support import cluster
from support.session import STATEMARK_PROVIDER

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _possible(provider: str) -> None:
    if sys.platform != "linux":
        pytest.skip("a cluster of several hosts on one machine needs Linux")
    if provider != STATEMARK_PROVIDER:
        pytest.skip(f"runs on our jar, not {provider}")


@pytest.fixture
def cluster_of(tmp_path: Path) -> Iterator[Callable[[int], cluster.Cluster]]:
    """Start a cluster with that many workers; it ends with the test."""
    started: list[cluster.Cluster] = []

    def start(workers: int) -> cluster.Cluster:
        directory = tmp_path / "cluster"
        directory.mkdir()
        started.append(cluster.Cluster(directory, workers=workers))
        return started[0]

    yield start
    for one in started:
        one.stop()


@pytest.fixture(params=["1", "2"], ids=["format-v1", "format-v2"])
def checkpoint_format(request: pytest.FixtureRequest) -> str:
    """Both formats of state in a checkpoint: with v2 each version of a store has an id."""
    return str(request.param)


@pytest.fixture
def stream(tmp_path: Path) -> cluster.Stream:
    """A query that has not run yet."""
    return cluster.Stream(tmp_path / "stream")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.Outcome, None]:
    """Name the logs of the cluster in the report of a failure, and show what they warn of."""
    outcome = yield
    report = outcome.get_result()
    directory = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and directory is not None:
        text = []
        for log in cluster.logs(directory / "cluster"):
            lines = log.read_text(errors="replace").splitlines()
            bad = [line for line in lines if " WARN " in line or " ERROR " in line]
            text += [f"{log} ({len(lines)} lines)", *(f"    {line}" for line in bad[-8:])]
        report.sections.append(("logs of the cluster", "\n".join(text)))
