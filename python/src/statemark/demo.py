"""`statemark demo`: one query on Spark's RocksDB provider and on Statemark, in about a minute."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from statemark.demo_side import SPARK, STATEMARK
from statemark.errors import EngineError, SettingsError
from statemark.jars import jar_path

#: Keys of the state, unless another number is asked for.
KEYS = 600_000
_LEAST_KEYS = 1200
_STDERR_LINES = 20
_SECOND_MS = 1000


def run(*, keys: int = KEYS) -> int:
    """Run the demo, print its progress and its verdict.

    Parameters
    ----------
    keys : int, optional
        How many keys the state gets; from 1,200 on.

    Returns
    -------
    int
        0; 1 where a side's rows are not those that they have to be.

    Raises
    ------
    SettingsError
        If there are too few keys.
    MissingDependencyError
        If pyspark is not there.
    JarNotFoundError, SparkVersionError
        If the package has no jar for that Spark.
    EngineError
        If a side ended with an error.
    """
    if keys < _LEAST_KEYS:
        problem = f"--keys is {keys}"
        raise SettingsError(
            problem,
            reason="each batch needs some rows",
            remedy=f"use a number from {_LEAST_KEYS:,} on; without --keys it is {KEYS:,}",
        )
    jar_path()  # what is lacking is said before anything starts
    started = time.monotonic()
    print(
        f"A query that keeps the first of each of {keys:,} keys, on both providers. A task fails on"
        " purpose; later\nthe driver is started again.",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="statemark-demo-") as folder:
        found = {side: _side(side, Path(folder) / f"{n}", keys) for n, side in enumerate(_SIDES)}
    print(f"\n{_verdict(found)}\n\n{time.monotonic() - started:.0f} s in all.{_LINE}", flush=True)
    is_right = all(side["equal"] for side in found.values()) and found[STATEMARK]["live_right"]
    return 0 if is_right else 1


_SIDES = (SPARK, STATEMARK)
_LINE = (
    " Larger states, slow stores and medians of several runs: docs/benchmarks of the project.\n"
    "Your own job: spark-submit $(statemark conf) job.py"
)


def _side(name: str, work: Path, keys: int) -> dict[str, Any]:
    """Run both steps of a side, each in a process."""
    work.mkdir()
    measures: dict[str, Any] = {}
    for step in ("run", "restart"):
        errors = work / "stderr"
        arguments = ["--name", name, "--work", str(work), "--keys", str(keys)]
        with errors.open("w") as stream:
            done = subprocess.run(
                [sys.executable, "-m", "statemark.demo_side", step, *arguments],
                check=False,
                stderr=stream,
                env=_environment(),
            )
        if done.returncode != 0:
            tail = "\n".join(errors.read_text().splitlines()[-_STDERR_LINES:])
            problem = f"the demo's {name} side ended with exit code {done.returncode} ({step})"
            raise EngineError(
                problem,
                reason=f"its last lines are\n{tail}",
                remedy="the demo needs Java 17, 3 GB of memory, and a temporary folder that can be"
                " written to",
            )
        measures |= json.loads((work / f"{step}.json").read_text())
    return measures


def _environment() -> dict[str, str]:
    """Return this process's environment without what would configure the demo's sessions."""
    layers = ("PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
    return {key: value for key, value in os.environ.items() if key not in layers}


def _verdict(found: dict[str, dict[str, Any]]) -> str:
    theirs, ours = (found[side] for side in _SIDES)
    equal = ["each key once" if side["equal"] else "DIFFER" for side in (theirs, ours)]
    live = "right" if ours["live_right"] else "WRONG"
    lines = [
        ("VERDICT", *_SIDES, ""),
        ("rows that the query wrote", *equal, ""),
        (
            "its state, read while it ran",
            "",
            live,
            f"a key in {_duration(ours['get_ms'])}, all counted in {_duration(ours['count_ms'])}",
        ),
        _timed("from the failure to the commit of its batch", theirs, ours, "to_commit_ms"),
        _timed("restart, to the first commit", theirs, ours, "restart_ms"),
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(3)]
    return "\n".join(
        f"{a:<{widths[0]}}   {b:>{widths[1]}}   {c:>{widths[2]}}   {d}".rstrip()
        for a, b, c, d in lines
    )


def _timed(
    title: str, theirs: dict[str, Any], ours: dict[str, Any], key: str
) -> tuple[str, str, str, str]:
    ratio = f"{theirs[key] / ours[key]:.1f} times as fast" if ours[key] > 0 else ""
    return title, _duration(theirs[key]), _duration(ours[key]), ratio


def _duration(ms: float) -> str:
    return f"{ms:,.1f} ms" if ms < _SECOND_MS else f"{ms / _SECOND_MS:,.1f} s"
