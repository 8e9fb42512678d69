"""The harness itself, on real suites and on a provider that opens no store."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from conformance.__main__ import main, picked
from conformance.exclusions import EXCLUDED
from conformance.suites import ALL, QUICK

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ROOT / "jvm/conformance/target" / f"suites-{os.environ.get('SPARK', '4.2')}"


def test_suites_are_picked_by_parts_of_their_names() -> None:
    assert picked([], quick=False) == list(ALL)
    assert picked([], quick=True) == list(QUICK)
    joins = picked(["join", "ValueStateSuite"], quick=False)
    assert len(joins) > 2
    assert [name for name in joins if "Join" not in name] == [
        "org.apache.spark.sql.execution.streaming.state.ValueStateSuite"
    ]


def test_unknown_suite_is_an_error_that_names_the_known() -> None:
    with pytest.raises(SystemExit, match="ValueStateSuite"):
        picked(["NoSuchSuite"], quick=False)


def test_suites_are_listed_once_and_exclusions_name_listed_suites() -> None:
    assert len(set(ALL)) == len(ALL)
    assert set(EXCLUDED) <= set(ALL)


@pytest.mark.spark
def test_provider_that_throws_fails_every_suite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suites = ["ListStateSuite", "TimerSuite", "StreamingDeduplicationWithinWatermarkSuite"]
    arguments = ["--provider", "statemark.conformance.BrokenProvider", "--compare", "never"]
    arguments += ["--folder", str(OPTIONS), "--out", str(tmp_path)]
    assert main([*suites, *arguments]) == 1
    assert "no store was opened by the provider under test" in capsys.readouterr().out
    found = json.loads((tmp_path / "report.json").read_text())["suites"]
    assert len(found) >= len(suites)
    for suite in found:
        assert suite["faults"], f"{suite['suite']} was not reported"
        assert suite["regressions"], f"no test of {suite['suite']} failed"
        assert suite["ours"]["opened_by_spark"] == 0
