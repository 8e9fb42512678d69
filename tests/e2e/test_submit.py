"""The ways to run a job with `spark-submit`: flags from the command line tool, and by hand."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
import yaml
from support.processes import SMALL_JVM
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


def submitted(words: list[str], env: dict[str, str]) -> str:
    """Run a job, and return what it has printed."""
    submit = Path(pyspark.__file__).parent / "bin/spark-submit"
    done = subprocess.run(
        [str(submit), *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        cwd=ROOT,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable} | env,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("flags", [flags_of_the_tool, flags_by_hand])
def test_spark_submit(flags: Callable[[Path], list[str]], tmp_path: Path) -> None:
    words = ["--master", "local[2]", *flags(tmp_path / "local")]
    words += ["--conf", "spark.ui.enabled=false", str(_JOB), str(tmp_path / "job")]
    submitted(words, {})
    found = json.loads((tmp_path / "job/found.json").read_text())
    assert found["equal"]
    assert found.get("transformed", LINE == "4.0")
    assert [name for name in found["metrics"] if name.startswith("statemark")]


@pytest.mark.skipif(LINE != "4.2", reason="the cluster's image has Spark 4.2")
def test_the_job_of_the_sample_cluster(tmp_path: Path) -> None:
    """A container's files are laid out below a directory, as docker-compose.yml mounts them."""
    text = (ROOT / "docker-compose.yml").read_text()
    service = yaml.safe_load(text)["services"]["spark-master"]
    for outside, inside, *_ in (volume.split(":") for volume in service["volumes"]):
        place = tmp_path / inside.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / outside).is_dir():
            shutil.copytree(ROOT / outside, place, symlinks=True)
        elif outside.startswith("./"):
            shutil.copy(ROOT / outside, place)

    def moved(words: str) -> str:
        return re.sub(r"(?<![\w.])/(opt|checkpoints|tmp)/", rf"{tmp_path}/\1/", words)

    defaults = tmp_path / "opt/spark/conf/spark-defaults.conf"
    # Spark's 200 partitions would be 200 stores.
    small = f"\nspark.sql.shuffle.partitions 4\nspark.executor.extraJavaOptions {SMALL_JVM}\n"
    defaults.write_text(moved(defaults.read_text()) + small)
    comment = [line.removeprefix("#").removeprefix(" ") for line in text.splitlines()]
    begin, end = comment.index("  import statemark"), comment.index("  spark.stop()")
    job = tmp_path / "tmp/job.py"
    job.parent.mkdir()
    job.write_text(moved("".join(f"{line[2:]}\n" for line in comment[begin : end + 1])))
    (line,) = re.findall(r"exec spark-master /opt/spark/bin/spark-submit ([^#]*\n#[^\n]*)", text)
    words = moved(re.sub(r"\\\n#", "", line)).split()
    assert words == ["--master", "spark://spark-master:7077", str(job)]
    env = {name: moved(value) for name, value in service["environment"].items()}
    env["SPARK_CONF_DIR"] = str(defaults.parent)
    shown = submitted(["--master", "local-cluster[2,1,1024]", str(job)], env)
    rows = re.findall(r"^\| +(\d) *\| *(\d+) *\|$", shown, re.MULTILINE)
    assert [int(digit) for digit, _ in rows] == list(range(10))
    (count,) = {int(count) for _, count in rows}
    assert count % 100 == 0
    assert count > 0
