from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pyspark
import pytest

import statemark
from statemark import JarNotFoundError, MissingDependencyError, SparkVersionError, _jvm, jars

VERSIONS = Path(__file__).parents[3] / "project" / "SparkVersions.scala"
#: The lines of Spark that Statemark is built for.
LINES = re.findall(r'^\s+Line\("([^"]+)"', VERSIONS.read_text(), flags=re.MULTILINE)
#: The line of Spark that this environment has.
LINE = ".".join(pyspark.__version__.split(".")[:2])


@pytest.fixture
def all_lines(jars_dir: Path, make_jar: Callable[..., Path]) -> Path:
    """A package with the jars of all lines."""
    for line in LINES:
        make_jar(jars_dir / f"statemark-spark_{line}_2.13-{statemark.__version__}.jar")
    return jars_dir


@pytest.mark.parametrize("suffix", ["", ".0", ".7", ".1-amzn-0", ".0.7.2.18", ".0-SNAPSHOT"])
@pytest.mark.parametrize("line", LINES)
def test_only_the_line_of_spark_counts(all_lines: Path, line: str, suffix: str) -> None:
    expected = all_lines / f"statemark-spark_{line}_2.13-{statemark.__version__}.jar"
    assert statemark.jar_path(spark_version=line + suffix) == expected


def test_of_all_lines_that_of_the_installed_spark_is_taken(all_lines: Path) -> None:
    expected = all_lines / f"statemark-spark_{LINE}_2.13-{statemark.__version__}.jar"
    assert statemark.jar_path() == expected


@pytest.mark.parametrize("version", ["4.9.0", "4.20.0", "14.2.0", "4", "", "next", "3.5.1-amzn-0"])
def test_a_line_without_a_jar_is_refused(all_lines: Path, version: str) -> None:
    with pytest.raises(SparkVersionError) as caught:
        statemark.jar_path(spark_version=version)
    assert str(caught.value) == (
        f"Statemark {statemark.__version__} has no jar for Spark {version}\n"
        f"  reason: the bundled jars are for Spark {', '.join(sorted(LINES))}, in {all_lines}\n"
        f"  remedy: run one of these lines of Spark, as after {jars.pip_install()}, or a Statemark"
        " that supports yours"
    )


def test_a_package_without_jars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jars, "JARS_DIR", tmp_path / "none")
    with pytest.raises(JarNotFoundError) as caught:
        statemark.jar_path()
    assert str(caught.value) == (
        f"no Statemark jar in {tmp_path / 'none'}\n"
        "  reason: the package was installed from sources before the plugin was built\n"
        "  remedy: run `make build` in the repository, install a wheel, or pass jar="
    )


def test_of_several_jars_the_own_version_counts(
    jars_dir: Path, bundled: str, make_jar: Callable[..., Path]
) -> None:
    make_jar(jars_dir / f"statemark-spark_{LINE}_2.13-0.0.1.jar")
    make_jar(jars_dir / "unrelated.jar")
    assert statemark.jar_path(spark_version=LINE) == Path(bundled)
    Path(bundled).rename(jars_dir / f"statemark-spark_{LINE}_2.13-0.0.2.jar")
    with pytest.raises(JarNotFoundError) as caught:
        statemark.jar_path(spark_version=LINE)
    assert caught.value.problem == f"several Statemark jars for Spark {LINE}"
    assert caught.value.reason == (
        f"none is of version {statemark.__version__}: statemark-spark_{LINE}_2.13-0.0.1.jar,"
        f" statemark-spark_{LINE}_2.13-0.0.2.jar"
    )


def test_the_running_session_decides_first(
    jars_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(_jvm, "spark_version", lambda: "9.1.0")
    with pytest.raises(SparkVersionError, match="no jar for Spark 9.1.0"):
        statemark.jar_path()


def test_spark_home_decides_before_pyspark(
    bundled: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make_jar: Callable[..., Path]
) -> None:
    assert statemark.jar_path() == Path(bundled)
    make_jar(tmp_path / "home" / "jars" / "spark-core_2.13-4.9.1-vendor.jar")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "home"))
    with pytest.raises(SparkVersionError, match="no jar for Spark 4.9.1-vendor"):
        statemark.jar_path()


def test_pyspark_decides_for_a_home_that_does_not_say(
    bundled: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert statemark.jar_path() == Path(bundled)


def test_a_line_without_a_jar_is_answered_with_one_that_has_one(bundled: str) -> None:
    with pytest.raises(SparkVersionError) as caught:
        statemark.jar_path(spark_version="3.5.6")
    assert f"as after pip install 'pyspark=={LINE}.*'" in caught.value.remedy


def test_the_newest_bundled_line_is_what_to_install(
    jars_dir: Path, make_jar: Callable[..., Path]
) -> None:
    make_jar(jars_dir / "statemark-spark_4.10_2.13-0.1.0.jar")
    assert jars.pip_install() == "pip install 'pyspark==4.10.*'"
    for jar in jars_dir.iterdir():
        jar.unlink()
    assert jars.pip_install() == "pip install pyspark"


def test_without_any_spark(bundled: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jars, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError) as caught:
        statemark.jar_path()
    assert str(caught.value) == (
        "Spark was not found\n"
        "  reason: pyspark is not installed in this environment, and SPARK_HOME is not set\n"
        f"  remedy: pip install 'pyspark=={LINE}.*', or set SPARK_HOME"
    )
    assert statemark.jar_path(spark_version=LINE) == Path(bundled)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(MissingDependencyError, match="the version of Spark in .* is unknown"):
        statemark.jar_path()


def test_a_module_that_stands_in_for_pyspark(
    bundled: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tools that make documents put modules without a spec in the place of what they lack."""
    monkeypatch.setattr(_jvm, "spark_version", lambda: None)
    monkeypatch.setitem(sys.modules, "pyspark", ModuleType("pyspark"))
    with pytest.raises(MissingDependencyError, match="Spark was not found"):
        statemark.jar_path()
    assert statemark.jar_path(spark_version=LINE) == Path(bundled)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(MissingDependencyError, match="the version of Spark in .* is unknown"):
        statemark.jar_path()


def test_a_named_jar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a.jar").touch()
    monkeypatch.chdir(tmp_path)
    assert jars.checked_jar("a.jar") == str(tmp_path / "a.jar")
    assert jars.checked_jar(tmp_path / "a.jar") == str(tmp_path / "a.jar")
    assert jars.checked_jar("hdfs:///lib/none.jar") == "hdfs:///lib/none.jar"
    with pytest.raises(JarNotFoundError, match=r"the jar /none/b\.jar cannot be read"):
        jars.checked_jar("/none/b.jar")
    with pytest.raises(JarNotFoundError, match="a comma separates jars"):
        jars.checked_jar("/none/b,c.jar")


@pytest.mark.parametrize(
    "jar", ["/d/statemark-spark_4.1_2.13-0.1.0.jar", "hdfs://h/statemark-spark_4.1_2.13-1.jar"]
)
def test_the_line_of_a_session(monkeypatch: pytest.MonkeyPatch, jar: str) -> None:
    assert jars.spark_line(jar=jar) == (4, 1)
    assert jars.spark_line(jar=jar, spark_version="4.10.2-amzn-0") == (4, 10)
    assert ".".join(map(str, jars.spark_line(jar="/own.jar") or ())) == LINE
    monkeypatch.setattr(_jvm, "spark_version", lambda: "4.0.2")
    assert jars.spark_line() == (4, 0)
    monkeypatch.setattr(_jvm, "spark_version", lambda: "trunk")
    assert jars.spark_line() is None
