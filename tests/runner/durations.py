"""What each suite and each test took, as `tests/durations.json` records it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from runner.results import Case

FILE = Path(__file__).resolve().parents[1] / "durations.json"

#: Minutes that `make test` may take with nothing else running, the build aside: 30 for the store,
#: 5 for the Kafka sink, 5 for its topics' tools, the operator's and those for live reads.
BUDGET_MIN = 40.0
#: Seconds that a test may take where `LONGER` does not say why those of its suite take more.
LONG_S = 30.0

_CLUSTER = "starts the processes of a cluster: master, workers, driver, executors"
_PROCESSES = "starts several processes with a session each"
#: By suite: seconds that a test may take beside others, and why.
LONGER: dict[str, tuple[float, str]] = {
    "statemark.IsolationSuite": (180, "one test of 6,000 schedules, of which some sync to disk"),
    "statemark.SpillSuite": (60, "kills a process at each part of a version until one is on disk"),
    "statemark.spark.CrashV1Suite": (400, "one test of 12 kills, a process each"),
    "statemark.spark.CrashV2Suite": (400, "one test of 12 kills, a process each"),
    "statemark.spark.model.StatemarkModelSuite": (400, "one test of 150 random histories"),
    "statemark.spark.offline.RepartitionBesideSuite": (90, "15 random pairs of commands a test"),
    "statemark.spark.offline.RepartitionProtocolSuite": (
        90,
        "the first test runs all batches once",
    ),
    "statemark.spark.offline.RepartitionSuite": (90, "runs each query six times"),
    "statemark.spark.offline.SwitchBesideSuite": (90, "up to 30 random pairs of commands a test"),
    "tests/cluster/test_coming_home.py": (150, _CLUSTER),
    "tests/cluster/test_jar.py": (90, f"{_CLUSTER}, and two applications on it"),
    "tests/cluster/test_kills.py": (150, f"{_CLUSTER}, and new executors for those it kills"),
    "tests/cluster/test_live.py": (90, f"{_CLUSTER}, and new executors for those it kills"),
    "tests/cluster/test_speculation.py": (90, _CLUSTER),
    "tests/cluster/test_stale.py": (150, _CLUSTER),
    "tests/conformance/test_harness.py": (90, "runs one of Spark's own suites"),
    "tests/e2e/test_checkpoint_commands.py": (90, "starts three commands, a process each"),
    "tests/e2e/test_connect.py": (
        90,
        "starts a Connect server, and reads a query from two of its sessions",
    ),
    "tests/e2e/test_demo.py": (60, _PROCESSES),
    "tests/e2e/test_live_keys.py": (90, "looks up keys of every type, in three ways"),
    "tests/e2e/test_nexmark.py": (60, "q16 has thirteen aggregates, most of which keep a sketch"),
    "tests/e2e/test_recipes.py": (90, f"the first test runs all of the page: {_PROCESSES}"),
    "tests/e2e/test_repartition.py": (90, _PROCESSES),
    "tests/e2e/test_restart.py": (90, _PROCESSES),
    "tests/e2e/test_pipelines.py": (
        90,
        "starts a pipeline, and the Connect server that it runs on",
    ),
    "tests/e2e/test_s3.py": (500, "the first test runs all six queries against an object store"),
    "tests/e2e/test_submit.py": (60, _PROCESSES),
    "tests/e2e/test_switch.py": (150, _PROCESSES),
    "tests/e2e/test_transform_with_state.py": (60, "starts two Python workers for each task"),
    "tests/e2e/test_use.py": (90, _PROCESSES),
    "tests/kafka/test_access.py": (90, f"{_PROCESSES}, and a broker that asks for passwords"),
    "tests/kafka/test_batches.py": (90, _PROCESSES),
    "tests/kafka/test_connect.py": (90, "starts a Connect server and a client of it"),
    "tests/kafka/test_guide.py": (60, _PROCESSES),
    "tests/kafka/test_sink_attempts.py": (150, _CLUSTER),
    "tests/kafka/test_sink_deaths.py": (90, _PROCESSES),
    "tests/kafka/test_sink_executors.py": (90, _CLUSTER),
    "tests/kafka/test_sink_starts.py": (60, "starts and stops a query 16 times"),
    "tests/kafka/test_sink_tasks.py": (90, _CLUSTER),
    "tests/kafka/test_topic_commands.py": (90, _PROCESSES),
    "tests/kafka/test_topic_compact.py": (
        120,
        f"{_PROCESSES}, and waits for the broker's cleaner",
    ),
    "python/tests/spark/test_launch.py": (60, _PROCESSES),
}

#: Shorter tests are not recorded: they decide nothing, and the file stays readable.
SHORT_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Durations:
    """
    A record of one whole run.

    Attributes
    ----------
    minutes
        From the first suite to the last, the build aside.
    suites
        Seconds by name of class or path of file.
    tests
        Seconds by suite and test, for tests that are not short.
    """

    minutes: float = 0.0
    suites: Mapping[str, float] = field(default_factory=dict)
    tests: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @staticmethod
    def read(file: Path = FILE) -> Durations:
        """Read a record; an empty one where there is no file."""
        return Durations(**json.loads(file.read_text())) if file.is_file() else Durations()

    @staticmethod
    def of_run(cases: Iterable[Case], *, seconds: float) -> Durations:
        """Make a record of what ran."""
        suites: dict[str, float] = {}
        tests: dict[str, dict[str, float]] = {}
        for case in cases:
            suites[case.suite] = suites.get(case.suite, 0.0) + case.seconds
            if case.name and case.seconds >= SHORT_S:
                tests.setdefault(case.suite, {})[case.name] = round(case.seconds, 1)
        return Durations(
            minutes=round(seconds / 60, 1),
            suites={name: round(took, 1) for name, took in suites.items()},
            tests=tests,
        )

    def of(self, suite: str, default: float) -> float:
        """Seconds of a suite, a default where it was never timed."""
        return self.suites.get(suite, default)

    def write(self, file: Path = FILE) -> None:
        """Write it so that two records differ in the lines that differ."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(vars(self), indent=1, sort_keys=True) + "\n")
