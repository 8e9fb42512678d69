"""What one run of one suite gave, and what the difference between two runs means."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Set
    from pathlib import Path

PASSED = "passed"
ABORTED = "the suite was aborted"
#: Events of a test that did not pass; a test that was left out proves as little as one that failed.
NOT_PASSED = ("failed", "cancelled", "ignored", "pending", "unfinished")


@dataclass(frozen=True, kw_only=True)
class Result:
    """One test: `state` is `passed` or one of `NOT_PASSED`."""

    state: str
    milliseconds: int = 0
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One process that ran one suite on one provider."""

    tests: dict[str, Result]
    opened_by_target: int = 0
    opened_by_spark: int = 0
    seconds: float = 0.0
    #: Why the process did not come to its end, empty if it did.
    broke_off: str = ""

    @property
    def passed(self) -> int:
        return sum(test.state == PASSED for test in self.tests.values())

    @property
    def failed(self) -> int:
        return len(self.tests) - self.passed

    def to_json(self) -> dict[str, Any]:
        return {
            "tests": {name: vars(test) for name, test in self.tests.items()},
            "opened_by_target": self.opened_by_target,
            "opened_by_spark": self.opened_by_spark,
            "seconds": self.seconds,
            "broke_off": self.broke_off,
        }

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Run:
        tests = {name: Result(**test) for name, test in found["tests"].items()}
        return Run(**{**found, "tests": tests})


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A suite on our provider beside the same suite on Spark's."""

    suite: str
    #: None where the Spark line does not have the suite.
    ours: Run | None
    #: None where no comparison was needed: everything passed.
    spark: Run | None = None
    #: Reason by name of test, for tests that can only pass on Spark's class.
    excluded: Mapping[str, str] = field(default_factory=dict)
    #: Those of `excluded` that pass now and then.
    by_chance: Set[str] = frozenset()

    @property
    def regressions(self) -> list[str]:
        """Tests that pass on Spark's provider, or have not been tried there, and not on ours."""
        if self.ours is None:
            return []
        wanted = self.ours.tests if self.spark is None else self.spark.tests
        found = self.ours.tests
        return [
            name
            for name, test in wanted.items()
            if (self.spark is None or test.state == PASSED)
            and (name not in found or found[name].state != PASSED)
            and name not in self.excluded
        ]

    @property
    def unneeded_exclusions(self) -> list[str]:
        """Excluded tests that pass, or are gone."""
        if self.ours is None:
            return []
        found = self.ours.tests
        return [
            name
            for name in self.excluded
            if name not in found or (found[name].state == PASSED and name not in self.by_chance)
        ]

    @property
    def _aborted_alike(self) -> bool:
        """Whether both runs ran the same tests to their end, and then could not clean up."""
        runs = [run for run in (self.ours, self.spark) if run is not None]
        return (
            len(runs) == 2
            and all(run.broke_off.startswith(ABORTED) for run in runs)
            and runs[0].tests.keys() == runs[1].tests.keys()
            and all(t.state != "unfinished" for run in runs for t in run.tests.values())
        )

    @property
    def faults(self) -> list[str]:
        """Why the suite counts as failed; empty if it does not."""
        if self.ours is None:
            return []
        faults = []
        if self.ours.broke_off and not self._aborted_alike:
            faults.append(self.ours.broke_off)
        if self.spark is not None and self.spark.broke_off and not self._aborted_alike:
            faults.append(f"on Spark's provider, so nothing is compared: {self.spark.broke_off}")
        if not self.ours.tests:
            faults.append("no test ran")
        if self.ours.opened_by_target == 0:
            faults.append("no store was opened by the provider under test")
        if self.ours.opened_by_spark > 0:
            faults.append(f"{self.ours.opened_by_spark} stores were opened by Spark's providers")
        faults += [f"regression: {name}" for name in self.regressions]
        faults += [f"excluded, but it passes or is gone: {n}" for n in self.unneeded_exclusions]
        return faults


def read(events: Path, opened: Path) -> tuple[dict[str, Result], int, int, str]:
    """Tests, stores opened by the target and by Spark's providers, and why the suite aborted."""
    tests: dict[str, Result] = {}
    aborted = "the process ended before the suite did"
    for line in events.read_text().splitlines() if events.exists() else []:
        event = json.loads(line)
        state, name = event["event"], event["test"]
        if state == "started":
            tests[name] = Result(state="unfinished", message="the process ended during this test")
        elif state == "completed":
            aborted = "" if aborted.startswith("the process") else aborted
        elif state == "aborted":
            aborted = f"{ABORTED}: {event['message']}"
        else:
            tests[name] = Result(
                state=state, milliseconds=event["milliseconds"], message=event["message"]
            )
    counts = [struct.unpack(">qq", file.read_bytes()) for file in opened.glob("opened-*")]
    by_target, by_spark = (sum(count[i] for count in counts) for i in range(2))
    return tests, by_target, by_spark, aborted
