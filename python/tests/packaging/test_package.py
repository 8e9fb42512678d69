"""What is packed: version, extras, jars, imports without extras; the wheel itself: test_wheel."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import statemark
from statemark import jars

PROJECT = Path(__file__).parents[2]
PACKAGE = PROJECT / "src" / "statemark"


def test_the_version_is_in_one_place() -> None:
    """Wheels and jars have it from one file, which the package's is a link to."""
    version = (PROJECT.parent / "VERSION").read_text().strip()
    assert statemark.__version__ == version
    assert (PACKAGE / "VERSION").resolve() == PROJECT.parent / "VERSION"
    for file in (PROJECT / "pyproject.toml", PACKAGE / "_version.py", PROJECT.parent / "build.sbt"):
        assert not re.search(rf"[\"']{re.escape(version)}[\"']", file.read_text()), file


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


def _setup() -> ModuleType:
    """The build's own code, as a module."""
    spec = spec_from_file_location("statemark_setup", PROJECT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_extra_brings_a_spark_that_the_wheel_has_a_jar_for() -> None:
    (extra,) = _pyproject()["optional-dependencies"]["pyspark"]
    versions = (PROJECT.parent / "project/SparkVersions.scala").read_text()
    lines = sorted(re.findall(r'^\s+Line\("([^"]+)"', versions, flags=re.MULTILINE))
    (major,) = {line.split(".")[0] for line in lines}
    minors = sorted(int(line.split(".")[1]) for line in lines)
    assert minors == list(range(minors[0], minors[-1] + 1)), "a line between others is missing"
    assert extra == f"pyspark>={major}.{minors[0]},<{major}.{minors[-1] + 1}"


def test_users_find_no_tools_of_developers_among_the_extras() -> None:
    assert set(_pyproject()["optional-dependencies"]) == {"pyspark", "pandas", "plots"}
    assert _pyproject()["dependencies"] == []


def test_the_pages_of_the_project_are_those_of_the_pom() -> None:
    build = (PROJECT.parent / "build.sbt").read_text()
    (repository,) = re.findall(r'^val repository = "([^"]+)"', build, flags=re.MULTILINE)
    urls = _pyproject()["urls"]
    assert urls["Repository"] == repository
    assert all(url.startswith(repository) for url in urls.values())


def test_a_wheel_without_its_jars_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_jar: Callable[..., Path]
) -> None:
    build = _setup()
    monkeypatch.setattr(build, "_JARS", tmp_path)
    for name in ("4.0_2.13-1.2.3", "4.1_2.13-1.2.2"):
        make_jar(tmp_path / f"statemark-spark_{name}.jar")
    with pytest.raises(Exception, match="cannot be packed without its jars") as refused:
        build.refuse_without_jars(version="1.2.3", extra="pyspark<4.2,>=4.0")
    problem, reason, remedy = str(refused.value).splitlines()
    assert problem == "Statemark 1.2.3 cannot be packed without its jars"
    assert "missing: statemark-spark_4.1_2.13-1.2.3.jar" in reason
    assert "of another version or line: statemark-spark_4.1_2.13-1.2.2.jar" in reason
    assert "make wheel" in remedy
    (tmp_path / "statemark-spark_4.1_2.13-1.2.2.jar").unlink()
    make_jar(tmp_path / "statemark-spark_4.1_2.13-1.2.3.jar")
    build.refuse_without_jars(version="1.2.3", extra="pyspark>=4.0,<4.2")


def _pyproject() -> dict[str, Any]:
    toml = sys.version_info >= (3, 11) and import_module("tomllib")
    if not toml:
        pytest.skip("Python 3.10 has no reader of TOML")
    return dict(toml.loads((PROJECT / "pyproject.toml").read_text())["project"])
