"""`make conformance`: plan, run, compare, report."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from conformance import report
from conformance.exclusions import BY_CHANCE, EXCLUDED
from conformance.outcome import PASSED, Run, Verdict
from conformance.processes import SPARKS_PROVIDER, Suites
from conformance.suites import ALL, QUICK

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]
PROVIDER = "statemark.spark.StatemarkStateStoreProvider"


@dataclass(frozen=True, kw_only=True)
class Conformance:
    """Suites on a provider beside the same suites on Spark's."""

    suites: Suites
    provider: str = PROVIDER
    #: `always`, `needed` (only the tests that did not pass) or `never`.
    compare: str = "always"
    started: float = field(default_factory=time.monotonic)
    printing: threading.Lock = field(default_factory=threading.Lock)

    def run(self, names: Sequence[str], jobs: int) -> list[Verdict]:
        """The verdict on each suite, in the order of `names`."""
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(self.judge, names))

    def judge(self, suite: str) -> Verdict:
        """Run one suite on our provider, and on Spark's where no earlier run did."""
        if not self.suites.has(suite):
            self._say(f"{report.short(suite)}: not in Spark {self.suites.spark}")
            return Verdict(suite=suite, ours=None)
        excluded = EXCLUDED.get(suite, {})
        ours = self._run(suite, self.provider, "")
        spark = None
        if self.compare == "always" or (self.compare == "needed" and ours.broke_off):
            spark = self._baseline(suite)
        elif self.compare == "needed" and ours.failed:
            failed = [name for name, test in ours.tests.items() if test.state != PASSED]
            spark = self._run(suite, SPARKS_PROVIDER, " on Spark's provider", failed)
        verdict = Verdict(
            suite=suite, ours=ours, spark=spark, excluded=excluded, by_chance=BY_CHANCE
        )
        if verdict.faults:
            self._say(f"{report.short(suite)}: FAILED: " + "; ".join(verdict.faults)[:500])
        return verdict

    def _baseline(self, suite: str) -> Run:
        kept = self.suites.results / "baseline" / self.suites.spark / f"{suite}.json"
        if kept.exists():
            return Run.from_json(json.loads(kept.read_text()))
        found = self._run(suite, SPARKS_PROVIDER, " on Spark's provider")
        if not found.broke_off:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(found.to_json()))
        return found

    def _run(self, suite: str, provider: str, where: str, only: Sequence[str] = ()) -> Run:
        self._say(f"{report.short(suite)}{where} …")
        found = self.suites.run(suite, provider, only)
        self._say(
            f"{report.short(suite)}{where}: {found.passed} of {len(found.tests)} passed "
            f"in {found.seconds:.0f} s"
        )
        return found

    def _say(self, text: str) -> None:
        with self.printing:
            print(f"[{time.monotonic() - self.started:6.0f} s] {text}", flush=True)


def picked(words: Sequence[str], *, quick: bool, without: Sequence[str] = ()) -> list[str]:
    """Names of the suites that are called one of the words, or have it in their names.

    Those that have one of `without` in their names are left out.
    """
    unwanted = [word.lower() for word in without]
    names = [
        name
        for name in (QUICK if quick else ALL)
        if not any(word in report.short(name).lower() for word in unwanted)
    ]
    if not words:
        return list(names)
    shorts = {report.short(name).lower() for name in ALL}
    wanted = [word.lower() for word in words]
    exact = [word for word in wanted if word in shorts]
    parts = [word for word in wanted if word not in shorts]
    found = [
        name
        for name in ALL
        if (short := report.short(name).lower()) in exact or any(part in short for part in parts)
    ]
    if not found:
        known = ", ".join(map(report.short, ALL))
        sys.exit(f"No suite has {' or '.join(words)} in its name. Use a part of one of: {known}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__)
    parser.add_argument("suites", nargs="*", help="parts of names; default: all")
    parser.add_argument("--without", nargs="+", default=[], help="parts of names to leave out")
    parser.add_argument("--quick", action="store_true", help="the part that `make test` runs")
    parser.add_argument("--provider", default=PROVIDER, help="class under test")
    parser.add_argument("--compare", choices=["always", "needed", "never"])
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds for one suite")
    parser.add_argument("--folder", type=Path, required=True, help="sbt conformance/suiteOptions")
    line = os.environ.get("SPARK", "4.2")
    parser.add_argument("--out", type=Path, default=ROOT / "target" / "conformance" / line)
    parser.add_argument("--junit", type=Path, help="write results as JUnit XML, too")
    options = parser.parse_args(arguments)
    suites = Suites(
        folder=options.folder.resolve(), results=options.out.resolve(), timeout=options.timeout
    )
    conformance = Conformance(
        suites=suites,
        provider=options.provider,
        compare=options.compare or ("needed" if options.quick else "always"),
    )
    names = picked(options.suites, quick=options.quick, without=options.without)
    verdicts = conformance.run(names, options.jobs)
    of = {"provider": options.provider, "spark": suites.spark}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "report.json").write_text(report.to_json(verdicts, **of))
    (options.out / "report.md").write_text(report.markdown(verdicts, **of))
    if options.junit:
        options.junit.write_text(report.junit(verdicts))
    print(f"\n{report.table(verdicts)}\n\n{options.out / 'report.md'}")
    return 1 if any(verdict.faults for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
