"""Every kind of operator can be read while it runs: as a table, by key, and by position."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import live_cells
from support.operators import OPERATORS
from support.session import STATEMARK_PROVIDER, skip_where_source_lacks_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession
    from support.live_cells import Running

BOTH_FORMATS = ("aggregation", "join-left", "map")


@pytest.fixture(autouse=True)
def _no_query_left() -> None:
    """Keep queries over several tests, other than in the rest of this directory."""


@pytest.fixture(
    scope="module",
    params=[(o, "1") for o in OPERATORS] + [(o, "2") for o in OPERATORS if o.name in BOTH_FORMATS],
    ids=lambda param: f"{param[0].name}-v{param[1]}",
)
def running(
    spark: SparkSession,
    provider: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Running]:
    operator, checkpoint_format = request.param
    if provider != STATEMARK_PROVIDER:
        pytest.skip("Spark's provider shows nothing of a running query")
    skip_where_source_lacks_ids(checkpoint_format)
    running = live_cells.start(spark, operator, tmp_path_factory.mktemp("live"), checkpoint_format)
    yield running
    running.query.stop()


@pytest.mark.parametrize("cell", live_cells.CELLS, ids=lambda cell: cell.__name__)
def test_reads(
    spark: SparkSession, running: Running, cell: Callable[[SparkSession, Running], None]
) -> None:
    cell(spark, running)
