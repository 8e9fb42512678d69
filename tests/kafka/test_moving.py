"""A running query goes over from Spark's sink to ours and back, as docs/kafka.md says."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from support import topics
from support.line_files import Lines, Sink, failure, rewind
from support.topics import Isolation

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame
    from support.sinks import Log

SPARKS = "kafka"


def totals(lines: Lines) -> DataFrame:
    """A stateful query: `<line>=<how often>`."""
    counts = lines.stream().groupBy("value").count()
    return counts.selectExpr("value AS key", "concat(value, '=', count) AS value")


def is_between_batches(checkpoint: Path) -> bool:
    """Whether each batch that was planned has ended, which the documents ask for."""
    offsets, commits = (
        {int(file.name) for file in (checkpoint / log).glob("[0-9]*")}
        for log in ("offsets", "commits")
    )
    return offsets == commits


def fails_late(df: DataFrame) -> DataFrame:
    """The same, but the task fails at the last row, when others are sent: all attempts at it."""
    sent = "CASE WHEN key = 'last' THEN raise_error('injected') ELSE value END"
    return df.coalesce(1).selectExpr("key", f"{sent} AS value")


def test_between_batches_nothing_is_repeated(lines: Lines, sink: Sink, log: Log) -> None:
    wanted = []
    for count, format_ in enumerate([SPARKS, "statemark-kafka", SPARKS, "statemark-kafka"], 1):
        lines.add("a", "b")
        sink.run(totals(lines), "update", sink=format_)
        assert is_between_batches(sink.checkpoint)
        wanted += [f"a={count}", f"b={count}"]
    # State went on, and each update is there once.
    assert sink.values() == sorted(wanted)
    assert log.await_line("run 2: batch 1 was decided last, it is complete")
    assert not log.lines("before this sink's first run")


def test_to_ours_in_the_middle_of_a_batch(lines: Lines, sink: Sink, log: Log) -> None:
    """What Spark's sink had sent of that batch is there twice, and nothing else."""
    lines.add("a")
    sink.run(totals(lines), "update", sink=SPARKS)
    lines.add("b", "c", "last")
    failure(lambda: sink.run(fails_late(totals(lines)), "update", sink=SPARKS))
    assert not is_between_batches(sink.checkpoint)
    sent = sink.values()
    lines.add("a")
    sink.run(totals(lines), "update")
    whole = ["a=1", "b=1", "c=1", "last=1", "a=2"]
    assert sink.values() == sorted([*sent, *whole[1:]])
    assert {value for value, n in Counter(sink.values()).items() if n > 1} <= {"b=1", "c=1"}
    assert log.await_line("Batch 1 was planned before this sink's first run")


def test_to_sparks_in_the_middle_of_a_batch(lines: Lines, sink: Sink) -> None:
    """What was not decided is not there; what was is there once more, whole."""
    lines.add("a")
    sink.run(totals(lines), "update")
    lines.add("b", "last")
    failure(lambda: sink.run(fails_late(totals(lines)), "update"))
    assert sink.values() == ["a=1"]
    sink.run(totals(lines), "update", sink=SPARKS)
    assert sink.values() == ["a=1", "b=1", "last=1"]
    lines.add("c")
    sink.run(totals(lines), "update")
    rewind(sink.checkpoint, 2)  # as if the driver had died when the batch was decided
    assert not is_between_batches(sink.checkpoint)
    sink.run(totals(lines), "update", sink=SPARKS)
    assert sink.values() == ["a=1", "b=1", "c=1", "c=1", "last=1"]


def test_one_more_run_of_ours_completes_a_batch_that_was_decided(lines: Lines, sink: Sink) -> None:
    lines.add("a")
    sink.run(totals(lines), "update")
    rewind(sink.checkpoint, 0)
    sink.run(totals(lines), "update")
    assert is_between_batches(sink.checkpoint)
    lines.add("b")
    sink.run(totals(lines), "update", sink=SPARKS)
    assert sink.values() == ["a=1", "b=1"]
    # No transaction of ours is left open that readers would wait for.
    read, written = (topics.ends(sink.bootstrap, str(sink.topic), level) for level in Isolation)
    assert read == written
