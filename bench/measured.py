"""Which code a benchmark has measured, and when: `python bench/measured.py FILE` notes it there."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pyspark

ROOT = Path(__file__).resolve().parent.parent
#: Results do not change what is measured.
_RESULTS = (":!bench/results", ":!docs", ":!tests/stamps.json")


def measured() -> dict[str, str]:
    """Return the commit, which says `changed` where files differ from it, and the date (UTC)."""
    commit = _git("rev-parse", "--short=9", "HEAD")
    is_changed = _git("status", "--porcelain", "--", ".", *_RESULTS)
    today = datetime.datetime.now(datetime.timezone.utc).date()
    return {"commit": commit + " (changed)" * bool(is_changed), "date": today.isoformat()}


def environment() -> dict[str, object]:
    """Return what a benchmark in Python ran on."""
    return {
        "cores": os.cpu_count(),
        "os": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "spark": pyspark.__version__,
    }


def text(results: dict[str, object]) -> str:
    """Say it in half a sentence."""
    found = results["measured"]
    assert isinstance(found, dict)
    return f"{found['date']}, commit {found['commit']}"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], check=True, capture_output=True, text=True, cwd=ROOT)
    return done.stdout.strip()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        file = Path(name)
        # As text: what wrote it has its own way to break lines.
        rest = file.read_text().lstrip().removeprefix("{")
        file.write_text(f'{{\n "measured": {json.dumps(measured())},{rest}')
