"""Processes side by side: each job has its own temporary, cache and home folder."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runner import results
from runner.results import FAILED, SKIPPED, Case

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.jobs import Job

#: A process that runs longer hangs: its threads are printed, and it is killed.
LIMIT_S = int(os.environ.get("STATEMARK_SUITE_LIMIT_MIN", "40")) * 60
#: Spark gives a Python worker ten seconds to start, which a machine full of processes may exceed.
_STARVED = "Python worker failed to connect back"
#: Memory that has to be free for the folders of jobs to be in it.
_ROOM_BYTES = 6 << 30
_SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A job that has ended."""

    job: Job
    cases: list[Case]
    seconds: float
    log: Path

    @property
    def failed(self) -> list[Case]:
        """Tests that did not pass."""
        return [case for case in self.cases if case.state == FAILED]

    @property
    def is_starved(self) -> bool:
        """All failures are of the limit that Spark sets a Python worker; no setting moves it."""
        return bool(self.failed) and all(_STARVED in case.message for case in self.failed)


class Slots:
    """
    Runs jobs, so many at a time, and says how far it is.

    Parameters
    ----------
    count
        Processes side by side. Tests wait half of the time, so one more than cores is best
        (docs/adr/0017).
    out
        Takes a folder for each job: its log and its results.
    """

    def __init__(self, count: int, out: Path) -> None:
        self.count, self.out = count, out
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._left = 0

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run jobs in the order given; outcomes come in the order in which they ended."""
        waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
        for job in jobs:
            waiting.put(job)
        self._left = len(jobs)
        outcomes: list[Outcome] = []
        scratch = Path(tempfile.mkdtemp(prefix="statemark-tests-", dir=_fast_folder()))

        def work() -> None:
            with contextlib.suppress(queue.Empty):
                while True:
                    job = waiting.get_nowait()
                    outcome = self._run(job, scratch / job.name)
                    with self._lock:
                        outcomes.append(outcome)
                        self._left -= 1
                        self._tell(outcome)

        threads = [threading.Thread(target=work) for _ in range(self.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        outcomes = [self._once_more(outcome, scratch) for outcome in outcomes]
        shutil.rmtree(scratch, ignore_errors=True)
        return outcomes

    def _once_more(self, outcome: Outcome, scratch: Path) -> Outcome:
        """Run a job again where the machine was too busy for it, now with nothing beside it."""
        if not outcome.is_starved:
            return outcome
        print(f"{outcome.job.name} runs again, alone: {_STARVED} ({outcome.log})", flush=True)
        job = dataclasses.replace(outcome.job, name=f"{outcome.job.name}-again")
        again = self._run(job, scratch / job.name)
        self._tell(again)
        return again

    def _run(self, job: Job, scratch: Path) -> Outcome:
        out = self.out / job.name
        shutil.rmtree(out, ignore_errors=True)
        (out / "results").mkdir(parents=True)
        for name in ("tmp", "cache", "home"):
            (scratch / name).mkdir(parents=True)
        log = out / "log"
        environment = {
            **os.environ,
            "HOME": str(scratch / "home"),
            "TMPDIR": str(scratch / "tmp"),
            "XDG_CACHE_HOME": str(scratch / "cache"),
            **job.environment,
        }
        started = time.monotonic()
        with log.open("w") as output:
            process = subprocess.Popen(
                job.command(out / "results", scratch),
                cwd=job.cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            late = _wait(process)
        seconds = time.monotonic() - started
        cases = results.read(out / "results", job.suites)
        if process.returncode != 0 and not any(case.state == FAILED for case in cases):
            why = late or f"it ended with exit code {process.returncode}"
            cases.append(Case(suite=job.suites[0], name=job.name, state=FAILED, message=why))
        if any(case.state == FAILED for case in cases):
            _keep(scratch, out / "left")
        shutil.rmtree(scratch, ignore_errors=True)
        return Outcome(job=job, cases=cases, seconds=seconds, log=log)

    def _tell(self, outcome: Outcome) -> None:
        tests = [case for case in outcome.cases if case.name]
        bad = len(outcome.failed)
        skipped = sum(case.state == SKIPPED for case in tests)
        counts = f"{len(tests) - bad - skipped} passed"
        counts += f", {skipped} skipped" if skipped else ""
        counts += f", {bad} FAILED, see {outcome.log}" if bad else ""
        print(
            f"[{time.monotonic() - self._started:5.0f} s] {outcome.job.name}: {counts} "
            f"in {outcome.seconds:.0f} s; {self._left} left",
            flush=True,
        )


def _keep(scratch: Path, kept: Path) -> None:
    """Copy what a job left: logs of clusters, checkpoints. A pipe has no bytes to copy."""

    def others(folder: str, names: list[str]) -> list[str]:
        modes = {name: (Path(folder) / name).lstat().st_mode for name in names}
        files = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
        return [name for name, mode in modes.items() if not any(is_one(mode) for is_one in files)]

    shutil.copytree(scratch, kept, symlinks=True, ignore_dangling_symlinks=True, ignore=others)


def _wait(process: subprocess.Popen[bytes]) -> str:
    """Wait for the end of a process and end all that it started; why it was cut off, or nothing."""
    late = ""
    try:
        process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        late = f"it did not end within {LIMIT_S // 60} minutes"
        # A Java virtual machine prints its threads.
        process.send_signal(signal.SIGQUIT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return late


def _fast_folder() -> Path | None:
    """Memory where there is enough of it: tests write much and keep nothing."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(_SHARED_MEMORY).free >= _ROOM_BYTES and _is_available():
            return _SHARED_MEMORY
    return None


def _is_available() -> bool:
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return available * 1024 >= 2 * _ROOM_BYTES
