"""The examples of live reads run: those of the docstrings, and those of the documents."""

from __future__ import annotations

import doctest
import re
from typing import TYPE_CHECKING

import pytest
import statemark
from pyspark.sql import functions as sf
from support.session import ROOT, STATEMARK_PROVIDER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@pytest.fixture
def query(spark: SparkSession, provider: str, tmp_path: Path) -> Iterator[StreamingQuery]:
    """A sum of 1250 for key 7, of 50 for key 8."""
    if provider != STATEMARK_PROVIDER:
        pytest.skip("Spark's provider shows nothing of a running query")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.json").write_text(
        "".join(f'{{"key":{key},"value":{n}}}\n' for key, n in ((7, 1000), (7, 250), (8, 50)))
    )
    rows = spark.readStream.schema("key INT, value LONG").json(str(tmp_path / "in"))
    sums = rows.groupBy("key").agg(sf.sum("value"))
    query = (
        sums.writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    query.processAllAvailable()
    yield query
    query.stop()


@pytest.mark.parametrize(
    "name", ["live", "get", "get_many", "operators", "position", "committed_offset"]
)
def test_examples_of_docstrings(query: StreamingQuery, name: str) -> None:
    text = getattr(statemark, name).__doc__.replace("# doctest: +SKIP", "")
    example = doctest.DocTestParser().get_doctest(text, {"query": query}, name, None, 0)
    result = doctest.DocTestRunner().run(example)
    assert result.attempted > 1
    assert result.failed == 0


def test_examples_of_the_documents(query: StreamingQuery) -> None:
    page = (ROOT / "docs/live-reads.md").read_text()
    block = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert block
    lines = [line.split("  #")[0] for line in block.group(1).splitlines()]
    got = [eval(line, {"statemark": statemark, "query": query}) for line in lines]
    live, one, same, many, position, held, operators = got
    assert live.count() == 2
    assert one == same
    assert one.value.sum == 1250
    assert [operator.key_columns for operator in operators] == [("key",)]
    assert [row.value.sum for row in many] == [1250, 50]
    assert position.batch_id == 0
    assert held == dict(zip(position.sources, position.offsets, strict=True))
