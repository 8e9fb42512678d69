"""The tests beside this one say something about our provider only if our provider ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.session import STATEMARK_PROVIDER
from support.streams import Run, Source, events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _ours(provider: str) -> None:
    if provider != STATEMARK_PROVIDER:
        pytest.skip(f"the stores are those of {provider}")


def test_stores_were_opened_by_our_class(spark: SparkSession, source: Source, run: Run) -> None:
    source.add(events(0, 300))
    query = run.to_end(source.stream().dropDuplicates(["id"]))
    metrics = query.lastProgress.stateOperators[0].customMetrics
    assert [name for name in metrics if name.startswith("statemark")]


def test_spark_pins_our_class_in_the_checkpoint(
    spark: SparkSession, source: Source, run: Run
) -> None:
    source.add(events(0, 300))
    run.to_end(source.stream().dropDuplicates(["id"]))
    offsets = (run.checkpoint / "offsets/0").read_text()
    assert f'"spark.sql.streaming.stateStore.providerClass":"{STATEMARK_PROVIDER}"' in offsets
