"""What the harness calls a failure, on made-up runs."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import pytest

from conformance import outcome, report
from conformance.outcome import NOT_PASSED, PASSED, Result, Run, Verdict

if TYPE_CHECKING:
    from pathlib import Path

SUITE = "org.apache.spark.sql.streaming.SomeSuite"
GOOD = Run(tests={"a": Result(state=PASSED), "b": Result(state=PASSED)}, opened_by_target=2)


def _run(b: str = PASSED, **changes: object) -> Run:
    tests = {"a": Result(state=PASSED), "b": Result(state=b, message="why\nwhere")}
    return Run(**{"tests": tests, "opened_by_target": 1, **changes})  # type: ignore[arg-type]


def test_suite_that_passes_has_no_fault() -> None:
    assert Verdict(suite=SUITE, ours=_run(), spark=GOOD).faults == []
    assert Verdict(suite=SUITE, ours=_run()).faults == []


@pytest.mark.parametrize("state", NOT_PASSED)
def test_test_that_did_not_pass_is_a_regression(state: str) -> None:
    verdict = Verdict(suite=SUITE, ours=_run(state), spark=GOOD)
    assert verdict.regressions == ["b"]
    assert verdict.faults == ["regression: b"]
    assert verdict.ours is not None
    assert (verdict.ours.passed, verdict.ours.failed) == (1, 1)
    text = report.table([verdict])
    assert "SomeSuite: regression: b" in text
    assert "why" in text
    assert "1 FAILED" in text


def test_test_that_never_started_is_a_regression() -> None:
    ours = Run(tests={"a": Result(state=PASSED)}, opened_by_target=1)
    assert Verdict(suite=SUITE, ours=ours, spark=GOOD).regressions == ["b"]


def test_test_that_fails_on_sparks_provider_too_is_no_regression() -> None:
    verdict = Verdict(suite=SUITE, ours=_run("failed"), spark=_run("failed"))
    assert verdict.faults == []
    assert "does not pass on Spark's provider either" in report.table([verdict])


def test_without_a_comparison_every_failed_test_counts() -> None:
    assert Verdict(suite=SUITE, ours=_run("failed")).faults == ["regression: b"]


def test_excluded_test_is_reported_with_its_reason() -> None:
    excluded = {"b": "a cast (Some.scala:1)"}
    verdict = Verdict(suite=SUITE, ours=_run("failed"), spark=GOOD, excluded=excluded)
    assert verdict.faults == []
    assert "a cast (Some.scala:1)" in report.table([verdict])


@pytest.mark.parametrize("name", ["a", "gone"])
def test_exclusion_that_is_not_needed_is_a_fault(name: str) -> None:
    verdict = Verdict(suite=SUITE, ours=_run(), spark=GOOD, excluded={name: "a cast"})
    assert verdict.faults == [f"excluded, but it passes or is gone: {name}"]


@pytest.mark.parametrize("state", ["passed", "failed"])
def test_exclusion_that_chance_decides_is_no_fault(state: str) -> None:
    verdict = Verdict(
        suite=SUITE, ours=_run(state), spark=GOOD, excluded={"b": "a cast"}, by_chance={"b"}
    )
    assert verdict.faults == []


def test_exclusion_that_chance_decides_must_be_there() -> None:
    verdict = Verdict(
        suite=SUITE, ours=_run(), spark=GOOD, excluded={"gone": "a cast"}, by_chance={"gone"}
    )
    assert verdict.faults == ["excluded, but it passes or is gone: gone"]


@pytest.mark.parametrize(
    ("ours", "fault"),
    [
        (_run(opened_by_target=0), "no store was opened"),
        (_run(opened_by_spark=3), "3 stores were opened by Spark's"),
        (_run(broke_off="it did not end within 5 s"), "did not end"),
        (Run(tests={}, opened_by_target=1), "no test ran"),
    ],
    ids=["nothing opened", "opened by Spark's", "broke off", "empty"],
)
def test_suite_that_proves_nothing_is_a_fault(ours: Run, fault: str) -> None:
    assert any(fault in found for found in Verdict(suite=SUITE, ours=ours).faults)


def test_comparison_with_a_broken_run_is_a_fault() -> None:
    spark = Run(tests=GOOD.tests, broke_off="it did not end within 5 s")
    (fault,) = Verdict(suite=SUITE, ours=_run(), spark=spark).faults
    assert "nothing is compared" in fault


def test_runs_that_both_fail_to_clean_up_after_their_last_test_are_compared() -> None:
    aborted = "the suite was aborted: a store is still checked out"
    spark = Run(tests=GOOD.tests, broke_off=aborted)
    assert Verdict(suite=SUITE, ours=_run(broke_off=aborted), spark=spark).faults == []
    unlike = Run(tests={**GOOD.tests, "another": Result(state=PASSED)}, broke_off=aborted)
    assert Verdict(suite=SUITE, ours=_run(broke_off=aborted), spark=unlike).faults
    assert Verdict(suite=SUITE, ours=_run(broke_off=aborted)).faults


def test_suite_of_another_line_is_named_and_no_fault() -> None:
    verdict = Verdict(suite=SUITE, ours=None)
    assert verdict.faults == []
    assert "not in this line" in report.table([verdict])


def test_totals_and_files() -> None:
    verdicts = [
        Verdict(suite=SUITE, ours=_run("failed"), spark=GOOD),
        Verdict(suite=SUITE + "2", ours=_run(), spark=GOOD),
    ]
    assert report.rows(verdicts)[-1][:6] == ("2 suites", "4", "3", "1", "0", "4/4")
    found = json.loads(report.to_json(verdicts, provider="p", spark="4"))
    assert found["tests_run"] == 4
    assert found["suites"][0]["regressions"] == ["b"]
    assert Run.from_json(found["suites"][0]["ours"]) == verdicts[0].ours
    assert "| SomeSuite2 | 2 | 2 |" in report.markdown(verdicts, provider="p", spark="4")


def _events(folder: Path, *events: tuple[str, str]) -> Path:
    lines = [
        json.dumps({"event": event, "test": test, "milliseconds": 5, "message": "why"})
        for event, test in events
    ]
    (folder / "events").write_text("".join(line + "\n" for line in lines))
    return folder / "events"


def test_events_and_counts_are_read(tmp_path: Path) -> None:
    events = _events(
        tmp_path, ("started", "a"), ("passed", "a"), ("ignored", "b"), ("completed", "")
    )
    for pid, counts in ((1, (2, 0)), (2, (3, 4))):
        (tmp_path / f"opened-{pid}").write_bytes(struct.pack(">qq", *counts))
    tests, by_target, by_spark, aborted = outcome.read(events, tmp_path)
    assert {name: test.state for name, test in tests.items()} == {"a": PASSED, "b": "ignored"}
    assert (by_target, by_spark, aborted) == (5, 4, "")


def test_process_that_dies_leaves_its_test_unfinished(tmp_path: Path) -> None:
    events = _events(tmp_path, ("started", "a"), ("passed", "a"), ("started", "b"))
    tests, _, _, aborted = outcome.read(events, tmp_path)
    assert tests["b"].state == "unfinished"
    assert "ended before" in aborted


def test_suite_that_aborts_is_not_complete(tmp_path: Path) -> None:
    events = _events(tmp_path, ("aborted", "SomeSuite"), ("completed", ""))
    assert "why" in outcome.read(events, tmp_path)[3]


def test_process_that_writes_nothing_has_no_tests(tmp_path: Path) -> None:
    tests, by_target, by_spark, aborted = outcome.read(tmp_path / "events", tmp_path)
    assert (tests, by_target, by_spark) == ({}, 0, 0)
    assert aborted
