"""Several queries, with several operators, are read at once and joined."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import statemark
from pyspark.sql import functions as sf
from support.session import STATE_STORE, STATEMARK_PROVIDER, skip_where_source_lacks_ids
from support.streams import Source, events

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def counted(df: DataFrame) -> DataFrame:
    return df.groupBy("key").agg(sf.count("*").alias("n"))


def distinct_counted(df: DataFrame) -> DataFrame:
    """Two operators: the aggregation is 0, the deduplication below it 1."""
    return counted(df.withWatermark("ts", "1 hour").dropDuplicates(["id", "ts"]))


def start(name: str, df: DataFrame, directory: Path) -> StreamingQuery:
    writer = df.writeStream.queryName(name).outputMode("update").format("noop")
    return writer.option("checkpointLocation", str(directory / name)).start()


def offline(spark: SparkSession, directory: Path, **options: object) -> list[Row]:
    reader = spark.read.format("statestore").options(**options)
    return sorted(reader.load(str(directory)).collect(), key=repr)


@pytest.mark.usefixtures("checkpoint_format")
def test_several_queries_and_operators_at_once(
    spark: SparkSession, source: Source, tmp_path: Path, provider: str
) -> None:
    if provider != STATEMARK_PROVIDER:
        pytest.skip("Spark's provider shows nothing of a running query")
    skip_where_source_lacks_ids(spark.conf.get(f"{STATE_STORE}.checkpointFormatVersion"))
    source.add(*[events(i * 100, 100, keys=11, repeat_every=3) for i in range(2)])
    queries = {
        "counted": start("counted", counted(source.stream()), tmp_path),
        "distinct": start("distinct", distinct_counted(source.stream()), tmp_path),
    }
    for query in queries.values():
        query.processAllAvailable()
    reads = [("counted", 0), ("distinct", 0), ("distinct", 1)] * 3

    def read(which: tuple[str, int]) -> list[Row]:
        name, operator = which
        return sorted(statemark.live(queries[name], operator_id=operator).collect(), key=repr)

    with ThreadPoolExecutor(len(reads)) as pool:
        found = list(pool.map(read, reads))
    for (name, operator), rows in zip(reads, found, strict=True):
        batch = statemark.position(queries[name]).batch_id
        wanted = offline(spark, tmp_path / name, operatorId=operator, batchId=batch)
        assert rows == wanted
        assert rows, (name, operator)
    for name, query in queries.items():
        statemark.live(query).createOrReplaceTempView(name)
    repeated = spark.sql(
        "SELECT key.key, c.value.count - d.value.count AS more"
        " FROM counted c JOIN distinct d USING (key) ORDER BY key"
    ).collect()
    all_events = [row for i in range(2) for row in events(i * 100, 100, keys=11, repeat_every=3)]
    more: dict[object, int] = {}
    for row in all_events:
        more[row[1]] = more.get(row[1], 0) + 1
    for row in set(all_events):
        more[row[1]] -= 1
    assert [[row.key, row.more] for row in repeated] == sorted([k, n] for k, n in more.items())
    assert any(more.values())
    key = {"key": repeated[0].key}
    counts = {name: statemark.get(query, key) for name, query in queries.items()}
    assert counts["counted"].value[0] - counts["distinct"].value[0] == repeated[0].more
