"""Rehearse a release: take what `make wheel publish-local` made, and do with it what users do.

Exits with 0 where all has passed, with 1 where something has failed, and with 3 where nothing has
failed but the rehearsal is partial: an interpreter is missing, or fewer were asked for.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rehearsal import artifacts, sbom, users
from rehearsal.environments import (
    OUT,
    PYTHONS,
    RELEASES,
    StepError,
    interpreter,
    pyspark_wheels,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

PASSED, FAILED, PARTIAL = 0, 1, 3


@dataclass
class Report:
    """The rows of the table: step, result, seconds, and in words what was found."""

    rows: list[tuple[str, str, float, str]] = field(default_factory=list)

    def step(self, name: str, action: Callable[[], str]) -> bool:
        """Take a step, say so while it runs, and note what came of it."""
        print(f"== {name} ...", flush=True)
        started = time.monotonic()
        try:
            found, result = action(), "passed"
        except (StepError, OSError, KeyError, ValueError, AssertionError) as e:
            found, result = f"{type(e).__name__}: {e}", "FAILED"
        seconds = time.monotonic() - started
        print(f"   {result} in {seconds:.0f} s: {found}", flush=True)
        self.rows.append((name, result, seconds, found.splitlines()[0]))
        return result == "passed"

    def skip(self, name: str, why: str) -> None:
        """Note what is left out, and say so."""
        print(f"== {name}: NOT DONE, {why}", flush=True)
        self.rows.append((name, "NOT DONE", 0.0, why))

    def table(self) -> str:
        """Make the table."""
        width = max(len(name) for name, *_ in self.rows)
        lines = [
            f"{name:{width}}  {result:8}  {seconds:5.0f} s  {found[:90]}"
            for name, result, seconds, found in self.rows
        ]
        return "\n".join(lines)

    def code(self) -> int:
        """Return what the rehearsal exits with."""
        results = {result for _, result, *_ in self.rows}
        return FAILED if "FAILED" in results else PARTIAL if "NOT DONE" in results else PASSED


def plan(pythons: Sequence[str], lines: Sequence[str]) -> list[tuple[str, str]]:
    """
    Pair releases of Python with lines of Spark: each of both at least once.

    Every Python has the first line, and the Python that the project is tested on has every line.
    """
    home = "3.11" if "3.11" in pythons else pythons[0]
    return [(home, line) for line in lines] + [(p, lines[0]) for p in pythons if p != home]


def main(arguments: Sequence[str] | None = None) -> int:
    """Take all steps, and print what came of them."""
    parser = argparse.ArgumentParser(prog="python -m rehearsal", description=__doc__)
    parser.add_argument("--pythons", nargs="+", choices=PYTHONS, default=PYTHONS)
    parser.add_argument("--lines", nargs="+", choices=list(RELEASES), default=list(RELEASES))
    options = parser.parse_args(arguments)
    shutil.rmtree(OUT / "environments", ignore_errors=True)
    OUT.mkdir(parents=True, exist_ok=True)
    report = Report()
    started = time.monotonic()
    report.step("contents of wheel, sources, jars", artifacts.contents)
    report.step("Maven repository", artifacts.repository)
    report.step("bill of materials", sbom.checked)
    report.step("same bytes: wheel and sources", artifacts.same_archives)
    _users(report, options.pythons, options.lines)
    report.step("same bytes: jar of a clean clone", lambda: artifacts.same_jar(options.lines[0]))
    for what, all_of, asked in (
        ("Python", PYTHONS, options.pythons),
        ("Spark", tuple(RELEASES), options.lines),
    ):
        for left in (name for name in all_of if name not in asked):
            report.skip(f"{what} {left}", "not asked for")
    minutes = (time.monotonic() - started) / 60
    result = {PASSED: "passed", FAILED: "FAILED", PARTIAL: "PARTIAL, nothing failed"}
    print(f"\n{report.table()}\n\nrehearsal {result[report.code()]} in {minutes:.1f} minutes")
    return report.code()


def _users(report: Report, pythons: Sequence[str], lines: Sequence[str]) -> None:
    """Take the steps of users, in an environment for each pair."""
    found = {version: interpreter(version) for version in pythons}
    for version, path in found.items():
        if path is None:
            report.skip(f"Python {version}", "no such interpreter on the path, of pyenv or of uv")
    there = [version for version, path in found.items() if path]
    if not there:
        return
    wheels = OUT / "wheels"
    if not report.step(
        "pyspark of each line", lambda: f"{pyspark_wheels(users.build_python(), lines)}"
    ):
        return
    for number, (version, line) in enumerate(plan(there, lines)):
        python = found[version]
        assert python is not None
        _user(report, python, f"Python {version}, Spark {line}", line, wheels, first=number == 0)


def _user(report: Report, python: Path, name: str, line: str, wheels: Path, *, first: bool) -> None:
    """Take the steps of a user of one pair; the first one upgrades, too."""
    made: list[users.Environment] = []

    def install() -> str:
        folder = f"environments/{name.replace(', ', '-').replace(' ', '')}"
        made.append(users.installed(python, folder, line, wheels))
        return f"{python}"

    if not report.step(f"{name}: install", install):
        return
    (environment,) = made
    report.step(f"{name}: README's example", lambda: users.readme(environment))
    if "3.11" in name or first:
        report.step(f"{name}: spark-submit --packages", lambda: users.packages(environment, line))
    if first:
        report.step(f"{name}: upgrade and back", lambda: users.upgrade(environment, line))
        report.step(f"{name}: two versions", lambda: users.two_versions(environment))
    report.step(f"{name}: uninstall", lambda: users.uninstalled(environment))


if __name__ == "__main__":
    sys.exit(main())
