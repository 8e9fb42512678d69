"""The report: a table on the console, JSON and Markdown for the record."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conformance.outcome import Run, Verdict

_HEAD = ("suite", "tests", "passed", "failed", "excluded", "on Spark's", "opened", "Spark's", "")


def short(suite: str) -> str:
    """Name of a suite without its package."""
    return suite.rsplit(".", 1)[-1]


def rows(verdicts: Sequence[Verdict]) -> list[tuple[str, ...]]:
    """One row for each suite, then the totals."""
    found = []
    for verdict in verdicts:
        ours, spark = verdict.ours, verdict.spark
        if ours is None:
            found.append((short(verdict.suite), *[""] * 7, "not in this line"))
            continue
        beside = "" if spark is None else f"{spark.passed}/{len(spark.tests)}"
        counts = (len(ours.tests), ours.passed, ours.failed, len(verdict.excluded))
        opened = (ours.opened_by_target, ours.opened_by_spark)
        found.append(
            (
                short(verdict.suite),
                *map(str, counts),
                beside,
                *map(str, opened),
                "FAILED" if verdict.faults else "ok",
            )
        )
    runs = [v.ours for v in verdicts if v.ours is not None]
    total = (
        sum(len(run.tests) for run in runs),
        sum(run.passed for run in runs),
        sum(run.failed for run in runs),
        sum(len(v.excluded) for v in verdicts if v.ours is not None),
    )
    failed = sum(bool(v.faults) for v in verdicts)
    beside = sum(v.spark.passed for v in verdicts if v.spark is not None)
    compared = sum(len(v.spark.tests) for v in verdicts if v.spark is not None)
    opened = (sum(r.opened_by_target for r in runs), sum(r.opened_by_spark for r in runs))
    last = f"{failed} FAILED" if failed else "ok"
    found.append(
        (
            f"{len(runs)} suites",
            *map(str, total),
            f"{beside}/{compared}",
            *map(str, opened),
            last,
        )
    )
    return found


def table(verdicts: Sequence[Verdict]) -> str:
    """For the console."""
    lines = [_HEAD, *rows(verdicts)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_HEAD))]
    text = "\n".join(
        "  ".join(
            cell.ljust(width) if i in (0, len(_HEAD) - 1) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
    return "\n".join([text, *_details(verdicts)])


def markdown(verdicts: Sequence[Verdict], *, provider: str, spark: str) -> str:
    """For the record."""
    cells = [_HEAD, ("---", *["---:"] * 7, "---"), *rows(verdicts)]
    lines = [f"# Spark {spark}'s suites on `{provider}`", ""]
    lines += ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join([*lines, *_details(verdicts), ""])


def to_json(verdicts: Sequence[Verdict], *, provider: str, spark: str) -> str:
    """Everything that was found."""

    def run(found: Run | None) -> dict[str, Any] | None:
        return None if found is None else found.to_json()

    return json.dumps(
        {
            "provider": provider,
            "spark": spark,
            "tests_run": sum(len(v.ours.tests) for v in verdicts if v.ours is not None),
            "suites": [
                {
                    "suite": v.suite,
                    "faults": v.faults,
                    "regressions": v.regressions,
                    "excluded": dict(v.excluded),
                    "ours": run(v.ours),
                    "spark": run(v.spark),
                }
                for v in verdicts
            ],
        },
        indent=1,
    )


def junit(verdicts: Sequence[Verdict]) -> str:
    """For `tests/runner`: what passes on neither provider is left out, a fault is a failure."""
    root = ET.Element("testsuites")
    for verdict in verdicts:
        suite = ET.SubElement(root, "testsuite", name=verdict.suite)
        if verdict.ours is None:
            continue
        suite.set("time", str(verdict.ours.seconds))
        for name, test in verdict.ours.tests.items():
            seconds = str(test.milliseconds / 1000)
            case = ET.SubElement(
                suite, "testcase", classname=verdict.suite, name=name, time=seconds
            )
            if name in verdict.regressions:
                ET.SubElement(case, "failure", message=test.message)
            elif test.state != "passed":
                why = verdict.excluded.get(name, "does not pass on Spark's provider either")
                ET.SubElement(case, "skipped", message=why)
        for fault in verdict.faults:
            if fault.removeprefix("regression: ") not in verdict.ours.tests:
                case = ET.SubElement(suite, "testcase", classname=verdict.suite, name=fault)
                ET.SubElement(case, "failure", message=fault)
    return ET.tostring(root, encoding="unicode")


def _details(verdicts: Sequence[Verdict]) -> list[str]:
    lines = []
    for verdict in verdicts:
        ours = verdict.ours
        if ours is None:
            continue
        for fault in verdict.faults:
            name = fault.removeprefix("regression: ")
            why = ours.tests[name].message if name in ours.tests else ""
            lines += [f"- {short(verdict.suite)}: {fault}"]
            lines += [f"    {' '.join(why.split())[:300]}"] if why.strip() else []
        both = [
            name
            for name, test in ours.tests.items()
            if test.state != "passed" and name not in verdict.regressions
        ]
        for name in both:
            why = verdict.excluded.get(name, "does not pass on Spark's provider either")
            lines += [f"- {short(verdict.suite)}: {ours.tests[name].state}: {name}", f"    {why}"]
    return ["", *lines] if lines else []
