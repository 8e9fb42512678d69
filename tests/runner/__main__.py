"""`make test`: plan, run, report, record."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from runner import archives, jobs, report
from runner.durations import Durations
from runner.slots import Slots

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run suites side by side."""
    parser = argparse.ArgumentParser(prog="python -m runner", description=__doc__)
    parser.add_argument("words", nargs="*", help="parts of names of suites; default: all")
    parser.add_argument("--line", default=os.environ.get("SPARK", "4.2"), help="line of Spark")
    parser.add_argument("--quick", action="store_true", help="each feature once")
    parser.add_argument(
        "--whole",
        action="store_true",
        help="also what is the same on every line, and a part of Spark's own suites",
    )
    parser.add_argument(
        "--slots", type=int, default=(os.cpu_count() or 1) + 1, help="processes side by side"
    )
    parser.add_argument("--out", type=Path, default=jobs.OUT, help="folder for logs and results")
    options = parser.parse_args(arguments)
    scala = jobs.test_process("provider", options.line)
    archives.make(options.line, scala=scala, out=jobs.ARCHIVES)
    known = Durations.read()
    planned = (
        jobs.quick(known, line=options.line)
        if options.quick
        else jobs.plan(known, line=options.line, words=options.words, whole=options.whole)
    )
    if not planned:
        parser.error(f"no suite has {' or '.join(options.words)} in its name")
    # Logs of another run would be taken for this one's.
    shutil.rmtree(options.out, ignore_errors=True)
    started, busy = time.monotonic(), _busy_seconds()
    suites = sum(len(job.suites) for job in planned)
    print(f"{suites} suites in {len(planned)} processes, {options.slots} at a time", flush=True)
    outcomes = Slots(options.slots, options.out.resolve()).run(planned)
    seconds = time.monotonic() - started
    cases = [case for outcome in outcomes for case in outcome.cases]
    if not options.words and not options.quick:
        Durations.of_run(cases, seconds=seconds).write(options.out / "durations.json")
    share = (_busy_seconds() - busy) / seconds / (os.cpu_count() or 1)
    print(report.table(outcomes, seconds=seconds, busy=share), flush=True)
    failed = {case.suite for outcome in outcomes for case in outcome.failed}
    (options.out / jobs.FAILED_SUITES).write_text("".join(f"{suite}\n" for suite in sorted(failed)))
    return 1 if failed else 0


def _busy_seconds() -> float:
    """Processor time of the whole machine; 0 where the system does not tell."""
    with contextlib.suppress(OSError):
        ticks = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:4]]
        return sum(ticks) / os.sysconf("SC_CLK_TCK")
    return 0.0


if __name__ == "__main__":
    sys.exit(main())
