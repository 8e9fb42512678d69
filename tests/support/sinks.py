"""Queries that write with format `statemark-kafka`, and what readers must find then."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from support import sink_driver, topics
from support.brokers import jars
from support.cluster import Gates
from support.processes import LIMIT_S, SMALL_JVM, Daemon, wait_for
from support.session import ROOT, class_path_with_testkit, statemark_jar
from support.topics import Isolation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from support.topics import Row

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
    }


def probed(folder: Path) -> str:
    """Return the Java options of a process that tells the probe in `folder` of each phase."""
    return (
        "-Dstatemark.kafka.probe=statemark.testkit.KafkaProbe "
        f"-Dstatemark.testkit.kafkaProbe={folder}"
    )


def on_executors(probe: Path, *, memory: str = "700m") -> dict[str, str]:
    """Return the settings of a job on two executors, each a process, that tell a probe as well."""
    return {
        "spark.master": f"local-cluster[2,1,{memory.removesuffix('m')}]",
        "spark.executor.memory": memory,
        "spark.executor.extraJavaOptions": f"{SMALL_JVM} {probed(probe)}",
        # A kill counts as a failure of the tasks that ran there.
        "spark.task.maxFailures": "20",
    }


class Job:
    """
    A query whose every run writes other rows, in processes that die where they are told to.

    Attributes
    ----------
    probe
        Folder of the probe: see `statemark.testkit.KafkaProbe`.
    options
        Of the sink, besides broker and topic and instead of them.
    query
        What else the query is asked for: see `sink_driver.rows`.
    rows
        Of a batch.
    """

    def __init__(self, directory: Path, bootstrap: str, topic: str, **conf: str) -> None:
        self.directory, self.bootstrap, self.topic, self.conf = directory, bootstrap, topic, conf
        self.options: dict[str, str] = {}
        self.query: dict[str, Any] = {}
        self.rows = ROWS
        self.probe = directory / "probe"
        self.events = directory / "events"
        self.runs = self.batches = 0
        for folder in (self.probe, self.events):
            folder.mkdir(parents=True)

    def add(self) -> None:
        """Add a file, which will be a batch."""
        lines = "".join(f"{self.batches},{i}\n" for i in range(self.rows))
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
        paths = {"PYTHONPATH": str(ROOT / "tests"), **class_path_with_testkit()}
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
                # Plans of a few rows are done before Java code of them is compiled.
                "spark.sql.codegen.wholeStage": "false",
                "spark.sql.codegen.factoryMode": "NO_CODEGEN",
                "spark.driver.extraJavaOptions": probed(self.probe),
                **self.conf,
            },
            "events": str(self.events),
            "checkpoint": str(self.directory / "checkpoint"),
            "run": self.runs,
            "fails": fails,
            "query": self.query,
            "format": FORMAT,
            "options": {
                "kafka.bootstrap.servers": self.bootstrap,
                "topic": self.topic,
                **self.options,
            },
            "progress": str(self.directory / "progress.jsonl"),
        }

    def with_gates(self) -> Gates:
        """Let tasks pass gates, and rows say who wrote them."""
        gates = Gates(self.directory / "gates")
        self.query["gates"] = str(gates.directory)
        return gates

    def hold(self, phase: str) -> None:
        """
        Let every process wait that reaches a phase, until `release`.

        Only the one of an id where `<phase>-<id>` is named.
        """
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
        found = topics.read(self.bootstrap, self.topic)

        def of(begin: str) -> list[Row]:
            longer = tuple(other for other in begins if len(other) > len(begin))
            values = ((row, (row.value or b"").decode()) for row in found)
            return [
                replace(row, value=value.removeprefix(begin).encode())
                for row, value in values
                if value.startswith(begin) and not value.startswith(longer)
            ]

        return [Verdict(of(begin), self.batches, self.rows) for begin in begins]

    def tries(self, isolation: Isolation = Isolation.READ_COMMITTED) -> Mapping[Part, set[Try]]:
        """Return who wrote the rows that such a reader sees, where the query has gates."""
        return tries(topics.read(self.bootstrap, self.topic, isolation))


class Part(NamedTuple):
    """Rows of a batch that one task writes."""

    batch: int
    partition: int


class Try(NamedTuple):
    """An attempt at a task, within an attempt at its stage."""

    stage: int
    attempt: int


def tries(rows: Sequence[Row]) -> Mapping[Part, set[Try]]:
    """Return who wrote the rows that say it."""
    found: Mapping[Part, set[Try]] = defaultdict(set)
    for row in rows:
        if said := dict(row.headers).get("task"):
            partition, stage, attempt = map(int, said.split())
            assert row.value
            batch = int(row.value.split(b",")[0])
            found[Part(batch, partition)].add(Try(stage, attempt))
    return found


class Verdict:
    """
    What is wrong with the rows `batch,row,copy,run` of a topic.

    Attributes
    ----------
    duplicated, lost, mixed
        Rows that are there twice; rows that are missing; batches with rows of several runs, or
        with rows of one task by several attempts.
    """

    def __init__(self, found: Sequence[Row], batches: int, rows: int) -> None:
        counts = Counter(row.value.decode() for row in found if row.value)
        self.rows = len(found)
        self.duplicated = sum(n - 1 for n in counts.values())
        runs: Mapping[int, set[int]] = defaultdict(set)
        for value in counts:
            batch, _, _, run = value.split(",")
            runs[int(batch)].add(int(run))
        several = {batch for batch, of in runs.items() if len(of) > 1}
        several |= {part.batch for part, of in tries(found).items() if len(of) > 1}
        self.mixed = sorted(several)
        wanted = {
            f"{batch},{row},{copy},{run}"
            for batch, of in runs.items()
            for run in of
            for row in range(rows)
            for copy in range(1 + run % 3)
        }
        self.lost = len(wanted - set(counts)) + rows * len(set(range(batches)) - set(runs))

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
