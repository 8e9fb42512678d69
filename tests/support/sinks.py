"""Queries that write with format `statemark-kafka`, and what readers must find then."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support import sink_driver, topics
from support.brokers import jars
from support.processes import LIMIT_S, Daemon, wait_for
from support.session import ROOT, TESTKIT_JAR, built, statemark_jar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    Metrics = dict[str, str]

FORMAT = "statemark-kafka"
_DRIVER = Path(__file__).with_name("sink_driver.py")
#: Rows of one file, which is a batch, before a run repeats them as often as it likes.
ROWS = 120


def settings(local: Path) -> dict[str, str]:
    """Return a session's settings: our jar, and Spark's connector with Kafka's client."""
    return {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(local / "warehouse"),
        "spark.jars": ",".join([str(statemark_jar()), *jars("spark-connector")]),
        "spark.driver.extraClassPath": str(built(TESTKIT_JAR, "bin/sbt testkit/assembly")),
    }


def probed(folder: Path) -> str:
    """Return the Java options of a process that tells the probe in `folder` of each phase."""
    return (
        "-Dstatemark.kafka.probe=statemark.testkit.KafkaProbe "
        f"-Dstatemark.testkit.kafkaProbe={folder}"
    )


class Job:
    """
    A query whose every run writes other rows, in processes that die where they are told to.

    Attributes
    ----------
    probe
        Folder of the probe: see `statemark.testkit.KafkaProbe`.
    options
        Of the sink, besides broker and topic and instead of them.
    in_batches
        Whether the query writes with `foreachBatch`, to two sinks of the topic.
    """

    def __init__(self, directory: Path, bootstrap: str, topic: str, **conf: str) -> None:
        self.directory, self.bootstrap, self.topic, self.conf = directory, bootstrap, topic, conf
        self.options: dict[str, str] = {}
        self.in_batches = False
        self.probe = directory / "probe"
        self.events = directory / "events"
        self.runs = self.batches = 0
        for folder in (self.probe, self.events):
            folder.mkdir(parents=True)

    def add(self) -> None:
        """Add a file, which will be a batch."""
        lines = "".join(f"{self.batches},{i}\n" for i in range(ROWS))
        # A name that begins with a dot is not there yet.
        hidden = self.events / ".next"
        hidden.write_text(lines)
        # Spark takes them in the order of their times.
        os.utime(hidden, (self.batches, self.batches))
        hidden.rename(self.events / f"{self.batches:05}.txt")
        self.batches += 1

    def run(self, die_at: str = "", *, fails: bool = True) -> int:
        """
        Process what is there in a process, and return its exit code.

        Parameters
        ----------
        die_at
            Phase at whose first time the process ends.
        fails
            Whether a task of each batch fails once, after it has sent rows.
        """
        if die_at:
            (self.probe / f"die-{die_at}").write_text("1")
            (self.probe / f"died-{die_at}").unlink(missing_ok=True)
        driver = self.start(fails=fails)
        try:
            return int(driver.process.wait(3 * LIMIT_S))
        finally:
            driver.kill()
            (self.probe / f"die-{die_at}").unlink(missing_ok=True)

    def start(self, *, fails: bool = True) -> Daemon:
        """Begin a run in a process."""
        asked = json.dumps(self._asked(fails=fails))
        log = self.directory / f"run-{self.runs}.log"
        paths = {"PYTHONPATH": str(ROOT / "tests")}
        return Daemon([sys.executable, str(_DRIVER), asked], log, paths)

    def run_in(self, spark: SparkSession, *, fails: bool = True, sink: str = FORMAT) -> Metrics:
        """Process what is there in a session of this process; return what the sink has counted."""
        query = sink_driver.start(spark, {**self._asked(fails=fails), "format": sink})
        query.awaitTermination()
        return dict(query.lastProgress.sink.metrics or {})

    def _asked(self, *, fails: bool) -> dict[str, Any]:
        self.runs += 1
        return {
            "conf": {
                **settings(self.directory),
                "spark.driver.extraJavaOptions": probed(self.probe),
                **self.conf,
            },
            "events": str(self.events),
            "checkpoint": str(self.directory / "checkpoint"),
            "run": self.runs,
            "fails": fails,
            "format": FORMAT,
            "batches": self.in_batches,
            "options": {
                "kafka.bootstrap.servers": self.bootstrap,
                "topic": self.topic,
                **self.options,
            },
            "progress": str(self.directory / "progress.jsonl"),
        }

    def hold(self, phase: str) -> None:
        """Let every process wait that reaches a phase, until `release`."""
        (self.probe / f"hold-{phase}").touch()

    def release(self, phase: str) -> None:
        """Let those go."""
        (self.probe / f"hold-{phase}").unlink()

    def held(self, phase: str) -> list[int]:
        """Return the processes that wait at a phase, or have waited there before."""
        prefix = f"held-{phase}-"
        names = [file.name for file in self.probe.glob(f"{prefix}*")]
        return [int(name.removeprefix(prefix)) for name in names]

    def died(self, phase: str) -> bool:
        """Whether a process died at a phase."""
        return (self.probe / f"died-{phase}").exists()

    def log(self, run: int = 0) -> str:
        """Return what a run said, by default the last."""
        return (self.directory / f"run-{run or self.runs}.log").read_text()

    def progress(self) -> list[dict[str, Any]]:
        """Return progress of all runs that ended well."""
        file = self.directory / "progress.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def judge(self) -> Verdict:
        """Read the topic as a careful reader does, and count what is wrong."""
        (verdict,) = self.judge_all("")
        return verdict

    def judge_all(self, *begins: str) -> list[Verdict]:
        """Judge each sink of the topic by itself: its values begin with this, and no other's do."""
        topics.settle(self.bootstrap, self.topic)
        values = [row.value.decode() for row in topics.read(self.bootstrap, self.topic)]

        def of(begin: str) -> list[str]:
            longer = tuple(other for other in begins if len(other) > len(begin))
            own = (v for v in values if v.startswith(begin) and not v.startswith(longer))
            return [value.removeprefix(begin) for value in own]

        return [Verdict(of(begin), range(self.batches)) for begin in begins]


class Verdict:
    """
    What is wrong with the rows `batch,row,copy,run` of a topic.

    Attributes
    ----------
    duplicated, lost, mixed
        Rows that are there twice; rows that are missing; batches with rows of several runs.
    """

    def __init__(self, values: Sequence[str], batches: range) -> None:
        counts = Counter(values)
        self.rows = len(values)
        self.duplicated = sum(n - 1 for n in counts.values())
        runs: Mapping[int, set[int]] = defaultdict(set)
        for value in counts:
            batch, _, _, run = value.split(",")
            runs[int(batch)].add(int(run))
        self.mixed = [batch for batch, of in runs.items() if len(of) > 1]
        wanted = {
            f"{batch},{row},{copy},{run}"
            for batch, of in runs.items()
            for run in of
            for row in range(ROWS)
            for copy in range(1 + run % 3)
        }
        self.lost = len(wanted - set(counts)) + ROWS * len(set(batches) - set(runs))

    def __repr__(self) -> str:
        return f"{self.duplicated} duplicated, {self.lost} lost, mixed {self.mixed}"

    @property
    def is_right(self) -> bool:
        """Whether each batch is there once, whole, of one run."""
        return not (self.duplicated or self.lost or self.mixed)


class Log:
    """What the sink says while a test runs, one line for each message."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def lines(self, part: str) -> list[str]:
        """Return the lines that have a part."""
        return [line for line in self.file.read_text().splitlines() if part in line]

    def await_line(self, part: str) -> str:
        """Wait until a line has a part, and return it."""
        return str(wait_for(f"{part!r} in the log", lambda: self.lines(part))[0])
