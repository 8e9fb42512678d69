"""Java, Spark and the jar, as a start of Spark on this machine would find them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from statemark import doctor_kinds as kinds
from statemark import jars
from statemark.errors import (
    JarNotFoundError,
    MissingDependencyError,
    SparkVersionError,
    StatemarkError,
)

if TYPE_CHECKING:
    from statemark.doctor_findings import Finding, Kind

#: The oldest release of Java that every line of Spark with a jar takes.
_NEEDED_JAVA = 17
_VERSION = re.compile(r'version "([\d._]+)')
_RELEASE = re.compile(r'^JAVA_VERSION="([\d._]+)', re.MULTILINE)
_ANSWERS_WITHIN_S = 20


@dataclass(frozen=True)
class Software:
    """Java, Spark and the jar.

    Attributes
    ----------
    findings : tuple of Finding
        What is odd.
    java : str or None
        The version of the Java that Spark would start.
    java_path : str or None
        Its program.
    spark : str or None
        The version of Spark.
    spark_home : str or None
        Where it lies.
    jar : str or None
        The jar for it.
    """

    findings: tuple[Finding, ...]
    java: str | None
    java_path: str | None
    spark: str | None
    spark_home: str | None
    jar: str | None


def look(env: Mapping[str, str]) -> Software:
    """Look at what a start of Spark would find.

    Parameters
    ----------
    env : Mapping
        Environment variables.

    Returns
    -------
    Software
        What there is.
    """
    found: list[Finding] = []
    java = _java_of(env)
    version = _java_version(java) if java else None
    found += _of_java(env, java, version)
    home: Path | None = None
    spark: str | None = None
    jar: Path | None = None
    try:
        home = jars.spark_home(env=env)
        found += _of_home(home)
        spark = jars.found_version()
        jar = jars.jar_path(spark_version=spark)
        found += _of_two_sparks(home, spark)
    except MissingDependencyError as error:
        found.append(_of(kinds.SPARK_MISSING, error))
    except SparkVersionError as error:
        found.append(_of(kinds.SPARK_UNSUPPORTED, error))
    except JarNotFoundError as error:
        found.append(_of(kinds.JAR_MISSING, error))
    return Software(
        tuple(found),
        version,
        None if java is None else str(java),
        spark,
        None if home is None else str(home),
        None if jar is None else str(jar),
    )


def _of(kind: Kind, error: StatemarkError) -> Finding:
    return kind.found(error.problem, reason=error.reason, remedy=error.remedy)


def _of_java(env: Mapping[str, str], java: Path | None, version: str | None) -> Iterator[Finding]:
    home = env.get("JAVA_HOME")
    remedy = f"install Java {_NEEDED_JAVA} or later, and set JAVA_HOME to its directory"
    if java is None or version is None:
        yield kinds.JAVA_MISSING.found(
            "there is no Java that Spark could start",
            reason=f"JAVA_HOME is {home}, and {home}/bin/java cannot be run"
            if home
            else "JAVA_HOME is not set, and no java on PATH can be run",
            remedy=remedy,
            javaHome=home,
        )
        return
    if _release(version) < _NEEDED_JAVA:
        yield kinds.JAVA_OLD.found(
            f"Java {version} is too old",
            reason=f"Spark needs Java {_NEEDED_JAVA} or later, and would start {java}",
            remedy=remedy,
            java=version,
            path=str(java),
        )
    on_path = _on_path(env)
    other = on_path and _java_version(on_path)
    if home and other and _release(other) != _release(version):
        yield kinds.JAVA_TWO.found(
            f"JAVA_HOME has Java {version}, and PATH Java {other}",
            reason=f"Spark starts the one of JAVA_HOME ({java}); a shell starts {on_path}",
            remedy="make both the same, so that what you try in a shell is what Spark runs on",
            javaHome=version,
            path=other,
        )


def _of_home(home: Path) -> Iterator[Finding]:
    if not any((home / "jars").glob("spark-core_*.jar")):
        yield kinds.SPARK_MISSING.found(
            f"there is no Spark in {home}",
            reason="it has no jars/spark-core_*.jar",
            remedy="correct SPARK_HOME, or unset it and install pyspark",
            sparkHome=str(home),
        )


def _of_two_sparks(home: Path, spark: str) -> Iterator[Finding]:
    installed = _installed()
    lines = [jars.spark_line(spark_version=one) for one in (spark, installed or spark)]
    if lines[0] != lines[1]:
        yield kinds.SPARK_TWO.found(
            f"SPARK_HOME has Spark {spark}, and Python has pyspark {installed}",
            reason=f"pyspark would start the Spark in {home}, and talk to it as to another line",
            remedy=f"unset SPARK_HOME, or install pyspark {spark}",
            sparkHome=spark,
            pyspark=installed,
        )


def _installed() -> str | None:
    """Return the version of the installed pyspark, whatever SPARK_HOME says."""
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return None


def _java_of(env: Mapping[str, str]) -> Path | None:
    """Return the program that Spark's scripts start."""
    home = env.get("JAVA_HOME")
    if not home:
        return _on_path(env)
    java = Path(home) / "bin" / "java"
    return java if java.is_file() else None


def _on_path(env: Mapping[str, str]) -> Path | None:
    found = shutil.which("java", path=env.get("PATH", ""))
    return Path(found) if found else None


def _java_version(java: Path) -> str | None:
    """Return the version of a Java, by the file beside it, or else by what it says."""
    release = java.resolve().parent.parent / "release"
    if release.is_file():
        named = _RELEASE.search(release.read_text(errors="replace"))
        if named:
            return named[1]
    try:
        said = subprocess.run(
            [str(java), "-version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_ANSWERS_WITHIN_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    named = _VERSION.search(said.stderr + said.stdout)
    return named[1] if named else None


def _release(version: str) -> int:
    """Return the release of a version: Java 8 calls itself 1.8."""
    parts = [int(part) for part in re.findall(r"\d+", version)]
    return parts[1] if parts[0] == 1 and len(parts) > 1 else parts[0]
