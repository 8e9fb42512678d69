"""Processes that tests start: each with its log, and gone at the latest when the tests are."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

#: Seconds after which what has not come will not come.
LIMIT_S = 180
#: Java options of processes that end with their test: what a driver's virtual machine has.
SMALL_JVM = os.environ.get("SPARK_SUBMIT_OPTS", "")
_POLL_S = 0.02
# Where pytest itself is killed, the kernel ends what it started; executors go with their worker.
_DIE_WITH_PARENT = (
    "import ctypes, os, signal, sys;"
    "PR_SET_PDEATHSIG = 1; ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL);"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


def wait_for(what: str, fact: Callable[[], Any]) -> Any:
    """Return the first true value of `fact`; fail after some minutes."""
    end = time.monotonic() + LIMIT_S
    while not (value := fact()):
        assert time.monotonic() < end, f"waited {LIMIT_S} s in vain for {what}"
        time.sleep(_POLL_S)
    return value


class Daemon:
    """
    A process with all that it starts, and its log.

    Parameters
    ----------
    command
        What to run.
    log
        Takes what it says; continued if it is there.
    environment
        Besides that of this process.
    stays
        Whether it goes on after this process has ended. Others end with the thread that started
        them: the kernel knows no better parent.
    """

    def __init__(
        self,
        command: list[str],
        log: Path,
        environment: Mapping[str, str],
        *,
        stays: bool = False,
        **pipes: Any,
    ) -> None:
        self.log = log
        self._is_gone = False
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command if stays else [sys.executable, "-c", _DIE_WITH_PARENT, *command],
                env={**os.environ, **environment},
                stderr=output,
                start_new_session=True,  # so that `kill` finds what it starts
                **{"stdout": output, "stdin": subprocess.DEVNULL, "cwd": log.parent, **pipes},
            )

    def kill(self) -> None:
        """End it and all that it started, without a chance to clean up."""
        if self._is_gone:
            return

        def kill_group() -> bool:
            rest = group(self.process.pid)
            for pid in rest:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not rest

        self.process.kill()
        self.process.wait()
        for pipe in filter(None, (self.process.stdin, self.process.stdout)):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        wait_for(f"the end of what {self.log.stem} started", kill_group)
        self._is_gone = True

    def said(self, pattern: str) -> str:
        """Wait until the log matches; return what the group in the pattern is."""

        def match() -> str:
            found = re.search(pattern, self.log.read_text(errors="replace"))
            assert found or self.process.poll() is None, f"it ended; see {self.log}"
            return found[1] if found else ""

        return str(wait_for(f"{pattern!r} in {self.log}", match))


def group(leader: int) -> list[int]:
    """
    Ids of the processes that a leader and its children started, the living ones.

    A process lives until its last thread has ended: until then its sockets are open, although its
    first thread may be over and its command gone.
    """
    return [pid for pid, lives, leads in _processes() if leads == leader and lives]


def _processes() -> Iterator[tuple[int, bool, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The name of the command may hold anything, brackets too.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                state, session, threads = fields[0], int(fields[3]), int(fields[17])
                yield int(entry.name), state != "Z" or threads > 1, session


def command_of(pid: int) -> str:
    """Arguments of a process, nothing where it has ended or is about to."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
