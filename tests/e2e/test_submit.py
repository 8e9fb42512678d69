"""The ways to run a job with `spark-submit`: flags from the command line tool, and by hand."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from support.session import LINE, ROOT, STATE_STORE, STATEMARK_PROVIDER, statemark_jar

if TYPE_CHECKING:
    from collections.abc import Callable

_TIMEOUT_S = 300
_JOB = Path(__file__).with_name("job.py")


@pytest.fixture(autouse=True)
def _ours(provider: str) -> None:
    if provider != STATEMARK_PROVIDER:
        pytest.skip(f"submits with our jar, not {provider}")


def flags_of_the_tool(local: Path) -> list[str]:
    """What the shell makes of `$(statemark conf --local-dir …)`."""
    tool = shutil.which("statemark", path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.fail("no `statemark` beside this python: run `make build`", pytrace=False)
    command = [tool, "conf", "--local-dir", str(local)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def flags_by_hand(local: Path) -> list[str]:
    return [
        *("--jars", str(statemark_jar())),
        *("--conf", f"{STATE_STORE}.providerClass={STATEMARK_PROVIDER}"),
        *("--conf", f"{STATE_STORE}.statemark.localDir={local}"),
    ]


@pytest.mark.parametrize("flags", [flags_of_the_tool, flags_by_hand])
def test_spark_submit(flags: Callable[[Path], list[str]], tmp_path: Path) -> None:
    submit = Path(pyspark.__file__).parent / "bin/spark-submit"
    command = [str(submit), "--master", "local[2]", *flags(tmp_path / "local")]
    command += ["--conf", "spark.ui.enabled=false", str(_JOB), str(tmp_path / "job")]
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        cwd=ROOT,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads((tmp_path / "job/found.json").read_text())
    assert found["equal"]
    assert found.get("transformed", LINE == "4.0")
    assert [name for name in found["metrics"] if name.startswith("statemark")]
