"""One configured session has micro-batch queries on Statemark, and real-time queries beside them.

Spark 4.3 refuses every real-time query in a session whose settings name another provider than its
own. What the plugin does about it, and what happens where that fails, is in `StreamStartSuite`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from support.session import IS_FROM_43, STATE_STORE, STATEMARK_PROVIDER, statemark_jar
from support.streams import Arrivals, events

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(not IS_FROM_43, reason="Spark looks at no provider there")

_TIMEOUT_S = 500
_JOB = Path(__file__).with_name("real_time_job.py")
_CONFIGURED = f"""
import sys
from pathlib import Path
from pyspark.sql import SparkSession
import statemark

sys.path.insert(0, {str(_JOB.parent)!r})
import real_time_job

builder = SparkSession.builder.master("local[4]").config("spark.ui.enabled", "false")
directory = Path(sys.argv[1])
builder = statemark.configure(builder, local_dir=directory / "local")
real_time_job.main(builder, directory)
"""


@pytest.fixture(autouse=True)
def _no_query_left(provider: str) -> None:
    """Need no session in this process."""
    if provider != STATEMARK_PROVIDER:
        pytest.skip(f"starts sessions with our jar, not {provider}")
    statemark_jar()


def configured(_: Path) -> list[str]:
    return [sys.executable, "-c", _CONFIGURED]


def submitted(directory: Path) -> list[str]:
    """What the shell makes of `spark-submit $(statemark conf …) job.py`."""
    tool = shutil.which("statemark", path=str(Path(sys.executable).parent))
    assert tool, "no `statemark` beside this python: run `make build`"
    command = [tool, "conf", "--local-dir", str(directory / "local")]
    flags = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    submit = Path(pyspark.__file__).parent / "bin/spark-submit"
    plain = ["--master", "local[4]", "--conf", "spark.ui.enabled=false"]
    return [str(submit), *plain, *flags, str(_JOB)]


def pinned(checkpoint: Path) -> list[str]:
    """Name the providers of the batches in an offset log, in order."""
    offsets = checkpoint / "offsets"
    batches = (
        [file for file in offsets.iterdir() if file.name.isdigit()] if offsets.is_dir() else []
    )
    texts = [file.read_text() for file in sorted(batches, key=lambda file: int(file.name))]
    pattern = re.escape(f"{STATE_STORE}.providerClass") + r'":"([^"]+)"'
    return [name for text in texts for name in re.findall(pattern, text)]


@pytest.mark.parametrize("command", [configured, submitted])
def test_one_session_has_queries_of_both_kinds_over_a_restart(
    command: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    arrivals = Arrivals(tmp_path / "events")
    for run in range(2):
        arrivals.add(events(run * 100, 100))
        done = subprocess.run(
            [*command(tmp_path), str(tmp_path)],
            check=False,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        )
        assert done.returncode == 0, done.stderr[-4000:]
        found: dict[str, Any] = json.loads((tmp_path / f"found-{run}.json").read_text())
        for name in ("first", "second"):
            assert found[name] == {"rows": 2, "error": None}
        # None with state runs, and on another provider least of all.
        assert "real-time mode and has state" in found["stateful"]["error"]
        assert pinned(tmp_path / f"checkpoint-stateful-{run}") == []
        assert pinned(tmp_path / "checkpoint-counts") == [STATEMARK_PROVIDER] * (run + 1)
