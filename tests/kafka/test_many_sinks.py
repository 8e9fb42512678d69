"""A query that writes to many sinks keeps the clients of some; the others begin a new run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support import many_sinks
from support.line_files import failure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from support.brokers import Brokers
    from support.line_files import Lines, Sink

    Topic = Callable[..., str]

#: Sinks that may rest.
OPEN = 2


def test_clients_are_bounded(
    spark: SparkSession, broker: Brokers, topic: Topic, sink: Sink, tmp_path: Path
) -> None:
    """Each name comes twice, and is closed in between; each row is there once."""
    names = [topic() for _ in range(5)]
    before = many_sinks.held(spark, -1)
    batches = 2 * len(names)
    found = many_sinks.run(
        spark, broker.bootstrap, tmp_path / "rates", names, batches, openSinks=OPEN
    )
    assert [held.batch for held in found] == list(range(batches))
    full = found[OPEN:]
    assert {held.clients - before.clients for held in full} == {2 * OPEN}
    assert {held.lines - before.lines for held in full} == {OPEN}
    assert full[-1].descriptors - full[0].descriptors < len(names), full
    rows = [value for name in names for value in sink.values(name)]
    assert sorted(map(int, rows)) == list(range(3 * batches))
    after = many_sinks.held(spark, batches)
    assert (after.clients, after.lines) == (before.clients, before.lines)


def test_what_was_written_is_known_behind_the_close(lines: Lines, sink: Sink, topic: Topic) -> None:
    """A second write of a number is an error, and no other one is taken for it (K2)."""
    names = [topic() for _ in range(3)]
    lines.add("a")
    lines.add("b")

    def write(df: DataFrame, batch: int, *, again: bool = False) -> None:
        for name in [*names, *names[:1]] if again else names:
            writer = df.write.format("statemark-kafka").option("topic", name)
            options: dict[str, Any] = {"txnVersion": batch, "openSinks": 0}
            writer.options(**options).option("kafka.bootstrap.servers", sink.bootstrap).save()

    def run(body: Callable[[DataFrame, int], None]) -> None:
        writer = lines.stream().writeStream.foreachBatch(body).trigger(availableNow=True)
        writer.option("checkpointLocation", str(sink.checkpoint)).start().awaitTermination()

    run(write)
    lines.add("c")
    message = failure(lambda: run(lambda df, batch: write(df, batch, again=True)))
    assert "Batch 2 is written a second time" in message, message
    assert [sink.values(name) for name in names] == 3 * [["a", "b", "c"]]
