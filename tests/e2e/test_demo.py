"""`statemark demo` on few keys: both sides, the failure on purpose, the restart, the verdict."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from statemark import cli

if TYPE_CHECKING:
    import pytest


def test_the_demo_ends_in_a_verdict(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "statemark", "demo", "--keys", "1200"],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = done.stdout[done.stdout.index("VERDICT") :]
    rows = re.findall(r"each key once", verdict)
    assert len(rows) == 2, verdict
    assert re.search(r"read while it ran +right", verdict), verdict
    assert len(re.findall(r"times as fast", verdict)) == 2, verdict
    assert done.stdout.count("a task failed on purpose") == 2, done.stdout
    # Spark and Java have folders of their own there.
    assert not list(tmp_path.glob("statemark*")), "what it wrote is deleted"


def test_what_cannot_run_is_said_before_anything_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["demo", "--keys", "5"]) == 2
    assert "statemark: --keys is 5\n" in capsys.readouterr().err
