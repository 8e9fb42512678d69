"""The suites stay within their budget, and a long test says why it is long."""

from __future__ import annotations

import re

from runner.durations import BUDGET_MIN, LONG_S, LONGER, Durations
from runner.jobs import PROJECTS
from support.session import ROOT

RECORD = Durations.read()
AGAIN = "run `make test` on a quiet machine, then `make durations`"
#: Suites of the default line of Spark; others stand in folders of other lines.
_SUITE = re.compile(r"^class (\w+Suite)\b", re.MULTILINE)


def written() -> set[str]:
    """Names of all suites with tests: of files their paths, of classes the last part."""
    folders = (ROOT / "tests", ROOT / "python/tests")
    files = {str(f.relative_to(ROOT)) for folder in folders for f in folder.rglob("test_*.py")}
    for project in PROJECTS.values():
        for file in (ROOT / project / "src/test").rglob("*.scala"):
            line = re.search(r"scala-shims/spark-([^/]+)/", str(file))
            if line is None or line[1].startswith("4.2"):
                files |= set(_SUITE.findall(file.read_text()))
    return files


def test_every_suite_has_been_timed() -> None:
    recorded = {name if "/" in name else name.rsplit(".", 1)[-1] for name in RECORD.suites}
    assert sorted(written() - recorded) == [], AGAIN


def test_no_suite_is_recorded_that_is_gone() -> None:
    ours = {name for name in RECORD.suites if not name.startswith("org.apache.spark.")}
    recorded = {name if "/" in name else name.rsplit(".", 1)[-1] for name in ours}
    assert sorted(recorded - written()) == [], AGAIN


def test_all_tests_together_are_within_the_budget() -> None:
    assert 0 < RECORD.minutes <= BUDGET_MIN, "make suites shorter, or say in BUDGET_MIN why not"


def test_long_tests_have_a_reason() -> None:
    too_long = {
        (suite, test): seconds
        for suite, tests in RECORD.tests.items()
        for test, seconds in tests.items()
        if seconds > LONGER.get(suite, (LONG_S, ""))[0]
    }
    assert too_long == {}, "make them shorter, or say why not in tests/runner/durations.py"


def test_reasons_are_of_suites_that_are_there() -> None:
    assert [suite for suite in LONGER if suite not in RECORD.suites] == []
