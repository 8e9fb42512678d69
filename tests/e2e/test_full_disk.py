"""A query whose checkpoint or local directory is on a full disk says so, and goes on with room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import statemark
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf
from statemark import settings
from support.disks import mounted
from support.session import STATEMARK_PROVIDER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from support.streams import Source

KEYS = 60_000
MOMENT = "2024-01-01 00:00:00"


def test_sparks_own_files_on_a_full_disk(
    spark: SparkSession, source: Source, tmp_path: Path, provider: str
) -> None:
    """Spark plans a batch in the checkpoint before any task, and says so in its own words."""
    if provider != STATEMARK_PROVIDER:
        pytest.skip("Spark's provider has none of these errors")
    with mounted(tmp_path / "checkpoint", "2m") as small:
        if small is None:
            pytest.skip("this user may not mount a disk")
        source.add([(1, "key", 1, MOMENT)])
        writer = source.stream().groupBy("key").count().writeStream.outputMode("update")
        writer = writer.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.start()
        query.processAllAvailable()
        small.fill()
        source.add([(2, "key", 2, MOMENT)])
        with pytest.raises(StreamingQueryException, match="No space left on device") as failed:
            query.processAllAvailable()
        assert statemark.error_of(failed.value) is None


@pytest.mark.parametrize(
    ("disk", "size", "what"),
    [("checkpoint", "700k", "checkpoint location"), ("local", "2m", "local directory")],
)
def test_a_full_disk(
    spark: SparkSession,
    source: Source,
    tmp_path: Path,
    provider: str,
    conf: Callable[[str, str], None],
    disk: str,
    size: str,
    what: str,
) -> None:
    if provider != STATEMARK_PROVIDER:
        pytest.skip("Spark's provider has none of these errors")
    checkpoint = tmp_path / "checkpoint"
    conf("spark.sql.shuffle.partitions", "1")
    conf(f"{settings.PREFIX}localDir", str(tmp_path / "local"))
    counts = source.stream().groupBy("key").agg(sf.count("*").alias("n"))

    def start() -> StreamingQuery:
        writer = counts.writeStream.outputMode("update").format("noop")
        return writer.option("checkpointLocation", str(checkpoint)).start()

    def add() -> None:
        source.add([(i, f"key {i * 7919}", i, MOMENT) for i in range(KEYS)])

    def run_on(query: StreamingQuery) -> None:
        for _ in range(4):  # some batches may fit
            query.processAllAvailable()
            add()

    with mounted(tmp_path / disk, size) as small:
        if small is None:
            pytest.skip("this user may not mount a disk: FullCheckpointSuite plays one")
        add()
        if disk == "local":  # what is small fits into the memory of RocksDB
            small.fill()
        query = start()
        with pytest.raises(StreamingQueryException):
            run_on(query)
        failed = query.exception()
        assert failed is not None
        error = statemark.error_of(failed)
        assert type(error) is statemark.DiskUnwritableError, failed
        assert not error.is_retryable
        for said in (
            f"The {what} is full: ",
            str(tmp_path / disk),
            "No space left on device",
            "bytes are free",
            "Make room there",
            "Nothing is lost",
        ):
            assert said in str(error)
        # What a user reads first.
        assert f"The {what} is full: " in "\n".join(str(failed).splitlines()[:5])
        assert "damaged" not in error.reason
        assert "cannot be loaded" not in error.reason

        small.grow("200m")
        again = start()
        again.processAllAvailable()
        again.stop()
        rows = spark.read.format("statestore").load(str(checkpoint))
        files = source.count
        assert rows.count() == KEYS
        assert rows.where(f"value.count != {files}").count() == 0
