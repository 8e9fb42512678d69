"""What tests share does what they take for granted."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from support.modes import pairs
from support.processes import Daemon, group, wait_for

#: A process whose first thread ends alone: the other sleeps, and open files stay open.
FIRST_THREAD_ENDS = (
    "import ctypes, threading, time;"
    "threading.Thread(target=time.sleep, args=[600]).start();"
    "SYS_exit = 93 if __import__('os').uname().machine == 'aarch64' else 60;"
    "ctypes.CDLL(None).syscall(SYS_exit, 0)"
)


def test_pairs_have_each_value_and_no_product() -> None:
    rows = pairs(("a", "b", "c"), ("1", "2"), is_whole=False)
    assert rows == [("a", "1"), ("b", "2"), ("c", "1")]
    assert pairs(("a",), ("1", "2"), is_whole=False) == [("a", "1"), ("a", "2")]


def test_the_whole_is_a_product() -> None:
    rows = pairs(("a", "b", "c"), ("1", "2"), is_whole=True)
    assert len(set(rows)) == 6


def test_a_process_lives_until_its_last_thread_has_ended(tmp_path: Path) -> None:
    daemon = Daemon([sys.executable, "-c", FIRST_THREAD_ENDS], tmp_path / "log", os.environ)
    pid = daemon.process.pid
    stat = Path(f"/proc/{pid}/stat")
    try:
        wait_for("the end of the first thread", lambda: ") Z " in stat.read_text())
        assert group(pid) == [pid]
    finally:
        daemon.kill()
    assert group(pid) == []
