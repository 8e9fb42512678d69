"""What a process left: JUnit XML, of ScalaTest, of pytest or of the conformance suites."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(frozen=True, kw_only=True)
class Case:
    """
    One test.

    Attributes
    ----------
    suite
        Name of the class, or path of the file.
    name
        Of the test; empty for what a suite took beside its tests.
    state
        `passed`, `failed` or `skipped`.
    message
        Of a failure, or why it was left out.
    """

    suite: str
    name: str
    state: str = PASSED
    seconds: float = 0.0
    message: str = ""


def read(folder: Path, suites: Sequence[str]) -> list[Case]:
    """
    Read all results of a process that was to run these suites.

    A suite that left nothing counts as one failed test: its process has died, or nobody
    would notice that it does not run any more.
    """
    cases: list[Case] = []
    for file in sorted(folder.glob("*.xml")):
        cases += _read(file, suites)
    seen = {case.suite for case in cases}
    cases += [
        Case(suite=suite, name="the whole suite", state=FAILED, message="it left no result")
        for suite in suites
        if suite not in seen
    ]
    return cases


def _read(file: Path, suites: Sequence[str]) -> Iterator[Case]:
    for suite in ET.parse(file).iter("testsuite"):
        inside = 0.0
        name = suite.get("name", "")
        for test in suite.iter("testcase"):
            seconds = float(test.get("time", "0"))
            inside += seconds
            yield Case(
                suite=_suite_of(test.get("classname") or test.get("name", ""), suites) or name,
                name=test.get("name", ""),
                state=_state(test),
                seconds=seconds,
                message=_message(test),
            )
        if name in suites:  # pytest has one for all files, whose time is of none of them
            yield Case(
                suite=name, name="", seconds=max(0.0, float(suite.get("time", "0")) - inside)
            )


def _suite_of(classname: str, suites: Sequence[str]) -> str:
    """
    Give the file or class of a test.

    pytest writes `tests.e2e.test_live.TestClass`, and of a file that it cannot read the name alone.
    """
    if classname in suites:
        return classname
    for suite in suites:
        module = suite.removesuffix(".py").replace("/", ".")
        if classname == module or classname.startswith(f"{module}."):
            return suite
    return ""


def _state(test: ET.Element) -> str:
    kinds = {child.tag for child in test}
    if kinds & {"failure", "error"}:
        return FAILED
    return SKIPPED if "skipped" in kinds else PASSED


def _message(test: ET.Element) -> str:
    for child in test:
        if child.tag in ("failure", "error", "skipped"):
            return "\n".join(filter(None, (child.get("message"), child.text))).strip()
    return ""
