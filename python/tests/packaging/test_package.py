"""What is installed: version, marker of types, jars, and imports without extras."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import statemark
from statemark import jars

PROJECT = Path(__file__).parents[2]
PACKAGE = PROJECT / "src" / "statemark"
JAR = f"statemark-spark_4.2_2.13-{statemark.__version__}.jar"


def test_the_version_is_that_of_the_repository() -> None:
    assert (PROJECT.parent / "VERSION").read_text().strip() == statemark.__version__


def test_only_one_module_talks_to_the_virtual_machine() -> None:
    for file in PACKAGE.rglob("*.py"):
        if file.name != "_jvm.py":
            assert not re.search(
                r"\b_jsc\b|\b_jconf\b|\._jvm\.|py4j\.|_gateway\b", file.read_text()
            )


def test_a_module_imports_only_what_does_not_import_it() -> None:
    """No cycles, so that each module can be read after those it names."""
    names = {file.stem for file in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    imports = {
        name: {
            found
            for line in re.findall(
                r"^from statemark(?:\.(\w+))? import (.+)$",
                (PACKAGE / f"{name}.py").read_text(),
                flags=re.MULTILINE,
            )
            for found in ([line[0]] if line[0] else re.split(r",\s*", line[1]))
        }
        & names
        for name in names
    }
    while imports:
        free = {name for name, needed in imports.items() if not needed & imports.keys()}
        assert free, f"cycle among {sorted(imports)}"
        imports = {name: needed for name, needed in imports.items() if name not in free}


def _isolated(script: str, *blocked: str) -> str:
    """Run a script with modules made impossible to import."""
    prelude = "".join(f"sys.modules[{name!r}] = None\n" for name in blocked)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import sys\n{prelude}{script}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_package_imports_without_pyspark_and_does_not_import_it() -> None:
    _isolated("import statemark; assert 'pyspark' not in sys.modules")
    script = """
import statemark
assert statemark.IsolationLevel.parse("read_committed")
try:
    statemark.MetricsListener
except statemark.MissingDependencyError as error:
    print(error)
"""
    assert _isolated(script, "pyspark", "pyspark.sql.streaming.listener") == (
        "statemark.MetricsListener cannot be used\n"
        "  reason: its base class is pyspark's, and pyspark is not installed in this environment\n"
        f"  remedy: {jars.pip_install()}\n"
    )


def test_everything_is_imported_that_can_be_without_pyspark() -> None:
    script = """
from statemark import *
print(sorted(name for name in dir() if name in ("MetricsListener", "configure", "live")))
"""
    assert _isolated(script, "pyspark") == "['configure', 'live']\n"
    assert _isolated(script) == "['MetricsListener', 'configure', 'live']\n"


def test_spark_3_is_answered_with_the_lines_that_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_jar: Callable[..., Path]
) -> None:
    make_jar(tmp_path / "jars" / "spark-core_2.12-3.5.6.jar")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    script = """
import pyspark.sql, pyspark.util
del pyspark.util.is_remote_only # which came with Spark 4
import statemark
try:
    statemark.configure(pyspark.sql.SparkSession.builder)
except (statemark.SparkVersionError, statemark.JarNotFoundError) as error:
    print(error.problem)
"""
    assert _isolated(script).startswith(
        (f"Statemark {statemark.__version__} has no jar for Spark 3.5.6", "no Statemark jar in")
    )


@pytest.mark.packaging
def test_the_wheel_has_the_jar_the_types_and_the_command(
    tmp_path: Path, make_jar: Callable[..., Path]
) -> None:
    copy = tmp_path / "project"
    skipped = shutil.ignore_patterns("jars", "__pycache__", "*.egg-info", "build", "dist", ".*")
    shutil.copytree(PROJECT, copy, ignore=skipped)
    make_jar(copy / "src" / "statemark" / "jars" / JAR)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(copy)],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"statemark-{statemark.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = f"statemark-{statemark.__version__}.dist-info"
        metadata = archive.read(f"{info}/METADATA").decode()
        commands = archive.read(f"{info}/entry_points.txt").decode()
    assert f"statemark/jars/{JAR}" in names
    assert "statemark/py.typed" in names
    assert "statemark = statemark.cli:main" in commands
    required = re.findall(r"^Requires-Dist: (.+)$", metadata, flags=re.MULTILINE)
    assert all("extra ==" in line for line in required), "a dependency is mandatory"
    assert re.search(r"^Requires-Python: >=3.10$", metadata, flags=re.MULTILINE)
    # The extra brings a Spark that the wheel has a jar for: `make build` makes the first line's.
    versions = (PROJECT.parent / "project/SparkVersions.scala").read_text()
    major, minor = map(int, re.findall(r'Line\("(\d+)\.(\d+)"', versions)[0])
    (extra,) = (line for line in required if line.startswith("pyspark"))
    assert f"_{major}.{minor}_" in JAR
    assert set(extra.partition(";")[0].removeprefix("pyspark").split(",")) == {
        f">={major}.{minor}",
        f"<{major}.{minor + 1}",
    }

    # Installed without its extras, as on a cluster that brings its own Spark.
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    found = subprocess.run(
        [sys.executable, "-c", "import statemark; print(statemark.jar_path(spark_version='4.2'))"],
        env={"PYTHONPATH": str(site)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert found.stdout.strip() == str(site / "statemark" / "jars" / JAR)
