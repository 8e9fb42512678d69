"""`statemark demo`: one query on Spark's RocksDB provider and on Statemark, in about a minute."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from statemark import comparison
from statemark.children import ending_with_us
from statemark.comparison import duration
from statemark.demo_side import NOBODY_READS, SPARK, STATEMARK
from statemark.errors import EngineError, SettingsError
from statemark.jars import jar_path

#: Keys of the state, unless another number is asked for.
KEYS = 600_000
_LEAST_KEYS = 1200
# A batch has a sixth of them, and the driver 2 GB.
_MOST_KEYS = 10_000_000
_STDERR_LINES = 20
_END_WAIT_S = 5


def run(*, keys: int = KEYS) -> int:
    """Run the demo, print its progress and its verdict.

    Parameters
    ----------
    keys : int, optional
        How many keys the state gets; from 1,200 to 10,000,000.

    Returns
    -------
    int
        0; 1 where a side's rows are not those that they have to be.

    Raises
    ------
    SettingsError
        If there are too few keys, or too many, or the temporary folder's name has a blank.
    MissingDependencyError
        If pyspark is not there.
    JarNotFoundError, SparkVersionError
        If the package has no jar for that Spark.
    EngineError
        If a side ended with an error, or the temporary folder cannot be written to.
    BrokenPipeError
        If nobody reads what it prints any more.
    """
    if not _LEAST_KEYS <= keys <= _MOST_KEYS:
        problem = f"--keys is {keys}"
        raise SettingsError(
            problem,
            reason="each batch needs some rows"
            if keys < _LEAST_KEYS
            else "a batch of that many rows does not fit into the demo's memory",
            remedy=f"use a number from {_LEAST_KEYS:,} to {_MOST_KEYS:,}; without --keys it is"
            f" {KEYS:,}",
        )
    jar_path()  # what is lacking is said before anything starts
    started = time.monotonic()
    print(
        f"A query that keeps the first of each of {keys:,} keys, on both providers. A task fails on"
        " purpose; later\nthe driver is started again.",
        flush=True,
    )
    with _folder() as folder:
        found = {side: _side(side, folder / f"{n}", keys) for n, side in enumerate(_SIDES)}
    print(f"\n{_verdict(found)}\n\n{time.monotonic() - started:.0f} s in all.{_LINE}", flush=True)
    is_right = all(side["equal"] for side in found.values()) and found[STATEMARK]["live_right"]
    return 0 if is_right else 1


# Where Spark is, and by which address this machine reaches itself.
_KEPT = ("SPARK_HOME", "SPARK_DIST_CLASSPATH", "SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME")
_SIDES = (SPARK, STATEMARK)
_LINE = (
    " Larger states, slow stores and medians of several runs: docs/benchmarks of the project.\n"
    "Your own job: spark-submit $(statemark conf) job.py"
)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Yield a folder that is deleted, also where a signal ends the demo."""
    is_main = threading.current_thread() is threading.main_thread()
    ends = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {one: signal.getsignal(one) for one in ends} if is_main else {}
    before = {one: found for one, found in before.items() if found == signal.SIG_DFL}
    for one in before:
        signal.signal(one, _exit)
    try:
        with tempfile.TemporaryDirectory(prefix="statemark-demo-") as folder:
            _check(folder)
            try:
                yield Path(folder)
            finally:
                if is_main:  # whoever presses Ctrl-C again does not want files left either
                    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except BrokenPipeError:
        raise
    except OSError as error:
        problem = "the demo cannot write its files"
        raise EngineError(
            problem,
            reason=str(error),
            remedy="make room in the temporary folder, or name another one in TMPDIR",
        ) from error
    finally:
        for one, found in before.items():
            signal.signal(one, found)


def _check(folder: str) -> None:
    if quote(folder) != folder:
        problem = f"the temporary folder is {folder}"
        raise SettingsError(
            problem,
            reason="Spark's reader of state, which live reads use, looks for the name with %20 and"
            " the like in it",
            remedy="name a folder without blanks and special characters in TMPDIR",
        )


def _exit(number: int, _: object) -> None:
    sys.exit(128 + number)


def _side(name: str, work: Path, keys: int) -> dict[str, Any]:
    """Run both steps of a side, each in a process."""
    work.mkdir()
    measures: dict[str, Any] = {}
    for step in ("run", "restart"):
        errors = work / "stderr"
        arguments = ["--name", name, "--work", str(work), "--keys", str(keys)]
        words = [sys.executable, "-m", "statemark.demo_side", step, *arguments]
        with errors.open("w") as stream:
            code = _run(words, stream, work)
        if code == NOBODY_READS:
            raise BrokenPipeError
        if code != 0:
            tail = "\n".join(errors.read_text().splitlines()[-_STDERR_LINES:])
            problem = f"the demo's {name} side ended with exit code {code} ({step})"
            raise EngineError(
                problem,
                reason=f"its last lines are\n{tail}",
                remedy="the demo needs Java 17, 3 GB of memory, and a temporary folder that can be"
                " written to",
            )
        measures |= json.loads((work / f"{step}.json").read_text())
    return measures


def _run(words: list[str], errors: IO[str], work: Path) -> int:
    """Run a step in a group of processes of its own, of which none is left; return its exit code.

    Spark's JVM ignores what a terminal sends at Ctrl-C, and outlives the Python that started it.
    """
    process = subprocess.Popen(
        words,
        stderr=errors,
        env=_environment(os.environ, work),
        # In a folder of the user Python could find a pyspark.py.
        cwd=work,
        start_new_session=True,
        preexec_fn=ending_with_us(),
    )
    try:
        return process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        _await_end(process.pid)


def _await_end(group: int) -> None:
    """Wait until no process of a group writes files any more."""
    deadline = time.monotonic() + _END_WAIT_S
    with contextlib.suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(0.02)


def _environment(env: Mapping[str, str], work: Path) -> dict[str, str]:
    """Return an environment without what would configure the demo's sessions."""
    kept = {
        key: value
        for key, value in env.items()
        if key in _KEPT or not key.startswith(("SPARK_", "PYSPARK_", "HADOOP_CONF", "YARN_CONF"))
    }
    # An empty one in place of that of SPARK_HOME.
    (work / "conf").mkdir(exist_ok=True)
    own = [str(Path(__file__).parents[1]), *map(os.path.abspath, filter(None, _python_path(env)))]
    own_path = os.pathsep.join(own)
    return {
        **kept,
        "SPARK_CONF_DIR": str(work / "conf"),
        "PYTHONPATH": own_path,
        "TMPDIR": str(work),
    }


def _python_path(env: Mapping[str, str]) -> list[str]:
    return env.get("PYTHONPATH", "").split(os.pathsep)


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
            f"a key in {duration(ours['get_ms'])}, all counted in {duration(ours['count_ms'])}",
        ),
        *(
            comparison.timed(title, theirs[key], ours[key])
            for title, key in (
                ("from the failure to the commit of its batch", "to_commit_ms"),
                ("restart, to the first commit", "restart_ms"),
            )
        ),
    ]
    return comparison.layout(lines)
