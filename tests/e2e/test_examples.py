"""The examples run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.session import ROOT, STATEMARK_PROVIDER

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _no_query_left() -> None:
    """Need no session in this process."""


def test_live_queries(tmp_path: Path, provider: str) -> None:
    if provider != STATEMARK_PROVIDER:
        pytest.skip("examples set their provider")
    picture = tmp_path / "live.svg"
    done = subprocess.run(
        [sys.executable, "examples/live_queries.py", "--seconds", "8", "--out", str(picture)],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    totals = [
        sum(int(n.replace(",", "")) for n in re.findall(r" ([\d,]+)", line))
        for line in done.stdout.splitlines()
        if line.startswith("start ")
    ]
    assert totals == sorted(totals)
    assert len(set(totals)) > 1, done.stdout
    assert "READ_UNCOMMITTED" in picture.read_text()
