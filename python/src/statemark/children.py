"""Processes that this one starts, and that do not outlive it."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def ending_with_us() -> Callable[[], None] | None:
    """
    Return what tells the kernel to end the command in its own way where this process is killed.

    Else a command that nobody sees would go on writing. Only Linux has it.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def awaited(process: subprocess.Popen[bytes]) -> int:
    """Wait for a command, which ends in its own way when it is told to; return its exit code."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    if is_main:
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        return process.wait()
    except KeyboardInterrupt:
        # A terminal has told the command too. Whoever insists does not want to wait.
        with contextlib.suppress(KeyboardInterrupt):
            return process.wait()
        raise
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if is_main:
            signal.signal(signal.SIGTERM, before)
