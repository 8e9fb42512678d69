"""What docs/kafka.md prints runs as printed: its quick start under kills, and its writers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import statemark
from support import topics
from support.brokers import with_sparks_source
from support.processes import LIMIT_S, Daemon, wait_for
from support.session import ROOT, statemark_jar
from support.topics import Isolation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from support.brokers import Brokers
    from support.line_files import Lines, Sink

GUIDE = (ROOT / "docs/kafka.md").read_text()
_BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
PYTHON = [code for language, code in _BLOCKS if language == "python"]
SHELL = [code for language, code in _BLOCKS if not language]
TOPIC = "numbers"


def test_quick_start(broker: Brokers, tmp_path: Path) -> None:
    """As printed, but for the wait: a kill comes when rows were sent since the one before."""
    job, count = PYTHON[:2]
    (tmp_path / "send_numbers.py").write_text(job)
    (tmp_path / "count_numbers.py").write_text(count)
    jars = re.search(r"^JARS=.*$", SHELL[0], re.MULTILINE)
    submit = re.search(r"^ *(spark-submit (?:.*\\\n)?.*) &$", SHELL[0], re.MULTILINE)
    assert jars
    assert submit
    assert statemark_jar()
    # A checkout is where `paste` finds its list, and the job what it has left.
    (tmp_path / "jvm").symlink_to(ROOT / "jvm")
    lines = ["set -e", f"ADDRESS={broker.bootstrap}", jars[0], f"exec {submit[1]}"]
    topics.create(broker.bootstrap, TOPIC, partitions=3)

    def sent() -> int:
        ends = topics.ends(broker.bootstrap, TOPIC, Isolation.READ_COMMITTED)
        return sum(ends.values())

    for run in range(2):
        before = sent()
        driver = Daemon(["bash", "-c", "\n".join(lines)], tmp_path / f"{run}.log", _ACTIVE)
        try:

            def has_sent(before: int = before, driver: Daemon = driver) -> bool:
                assert driver.process.poll() is None, driver.log.read_text()
                return sent() > before + 1000

            wait_for("rows of the job", has_sent)
        finally:
            driver.kill()
    said = subprocess.run(
        [sys.executable, "count_numbers.py", broker.bootstrap],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_S,
    ).stdout
    found = re.fullmatch(r"(\d+) rows, (\d+) twice, (\d+) missing\n", said)
    assert found, said
    assert int(found[1]) > 1000
    assert (found[2], found[3]) == ("0", "0"), said


#: An environment in which `activate` was called.
_ACTIVE = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def test_writers_of_a_query_that_moves(lines: Lines, sink: Sink) -> None:
    writers: dict[str, Any] = {"statemark": statemark}
    for block in PYTHON[2:]:
        exec(block, writers)

    def run(name: str, df: DataFrame) -> None:
        writer = writers[name](df, sink.bootstrap, sink.topic, str(sink.checkpoint), "append")
        writer.trigger(availableNow=True).start().awaitTermination()

    for number, name in enumerate(["to_sparks", "to_statemark", "to_sparks"]):
        lines.add(f"line {number}")
        run(name, lines.stream())
    assert sink.values() == ["line 0", "line 1", "line 2"]


@with_sparks_source
def test_job_of_the_example(lines: Lines, sink: Sink) -> None:
    """The job that the guide says to start from, as far as it is one without a loop."""
    scope: dict[str, Any] = {"__name__": "job"}
    file = ROOT / "examples/exactly_once/job.py"
    exec(compile(file.read_text(), file, "exec"), scope)
    flight = '{"carrier": "UA", "flight": 1, "origin": "EWR", "dest": "IAH", "delay_min": '
    producer = topics.producer(sink.bootstrap, "flights of the example")
    producer.begin_transaction()
    for delay in (2, "null", 5):
        producer.produce(str(sink.topic), f"{flight}{delay}}}")
    producer.commit_transaction()
    topics.settle(sink.bootstrap, str(sink.topic))
    flights = scope["flights"](lines.spark, sink.bootstrap, str(sink.topic))
    query = (
        scope["totals"](flights)
        .writeStream.format("memory")
        .queryName("example")
        .outputMode("update")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = [(row.key, row.value) for row in lines.spark.table("example").collect()]
    assert rows == [("UA 1 EWR IAH", '{"flights":3,"delay_min":7}')]
