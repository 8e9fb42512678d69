"""The table at the end of a run, and what is left of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from runner.results import FAILED, PASSED, SKIPPED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.results import Case
    from runner.slots import Outcome

#: Lines of a failure that are shown; the rest is in its log.
_SHOWN = 30
_LONGEST = 10
#: By the beginning of a suite's name; the first that fits.
_KINDS = (
    ("org.apache.spark.", "Spark's own suites"),
    ("statemark.spark.", "provider, Scala"),
    ("statemark.testkit.", "testkit, Scala"),
    ("statemark.", "core, Scala"),
    ("python/", "package, Python"),
    ("tests/cluster/", "cluster, Python"),
    ("tests/e2e/", "end to end, Python"),
    ("tests/", "tree and tools, Python"),
    ("", "without a suite"),
)


def table(outcomes: Sequence[Outcome], *, seconds: float, busy: float) -> str:
    """Make the whole text: failures, kinds of suites, longest suites and tests, the counts."""
    cases = [case for outcome in outcomes for case in outcome.cases]
    tests = [case for case in cases if case.name]
    lines = [*_failures(outcomes), *_kinds(cases)]
    suites: dict[str, float] = defaultdict(float)
    for case in cases:
        suites[case.suite] += case.seconds
    slowest = sorted(suites.items(), key=lambda pair: -pair[1])[:_LONGEST]
    lines += ["", f"The longest {_LONGEST} suites"]
    lines += [f"{took:7.0f} s  {name}" for name, took in slowest]
    lines += ["", f"The longest {_LONGEST} tests"]
    longest = sorted(tests, key=lambda case: -case.seconds)[:_LONGEST]
    lines += [f"{case.seconds:7.0f} s  {_short(case.suite)}: {case.name}" for case in longest]
    skipped = Counter(case.message.split("\n")[0] for case in tests if case.state == SKIPPED)
    lines += ["", "Skipped"] if skipped else []
    lines += [f"{count:7}    {why}" for why, count in sorted(skipped.items())]
    counts = Counter(case.state for case in tests)
    lines += [
        "",
        f"{len(suites)} suites in {len(outcomes)} processes, {seconds / 60:.1f} minutes, "
        f"cores busy for {busy:.0%} of them",
        f"{counts[PASSED]} passed, {counts[FAILED]} failed, {counts[SKIPPED]} skipped",
    ]
    return "\n".join(lines)


def _failures(outcomes: Sequence[Outcome]) -> list[str]:
    lines = []
    for outcome in outcomes:
        for case in outcome.failed:
            lines += ["", f"FAILED {case.suite}: {case.name}"]
            lines += [f"    {line}" for line in case.message.splitlines()[:_SHOWN]]
            lines += [f"    see {outcome.log}"]
    return lines


def _kinds(cases: Sequence[Case]) -> list[str]:
    suites: dict[str, set[str]] = {}
    tests: Counter[str] = Counter()
    seconds: dict[str, float] = defaultdict(float)
    for case in cases:
        kind = next(name for prefix, name in _KINDS if case.suite.startswith(prefix))
        suites.setdefault(kind, set()).add(case.suite)
        tests[kind] += bool(case.name)
        seconds[kind] += case.seconds
    rows = [
        f"{kind:24}{len(names):8}{tests[kind]:8}{seconds[kind]:9.0f}"
        for kind, names in sorted(suites.items())
    ]
    return ["", f"{'':24}{'suites':>8}{'tests':>8}{'seconds':>9}", *rows]


def _short(suite: str) -> str:
    return suite.rsplit("/", 1)[-1] if "/" in suite else suite.rsplit(".", 1)[-1]
