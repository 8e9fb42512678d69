"""Java, Spark and the jar, as a start of Spark on this machine would find them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from statemark import doctor_kinds as kinds
from statemark import jars, java
from statemark.errors import (
    JarNotFoundError,
    MissingDependencyError,
    SparkVersionError,
    StatemarkError,
)

if TYPE_CHECKING:
    from statemark.doctor_findings import Finding, Kind


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
    program = java.program(env)
    version = java.version_of(program) if program else None
    found += _of_java(env, program, version)
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
        None if program is None else str(program),
        spark,
        None if home is None else str(home),
        None if jar is None else str(jar),
    )


def _of(kind: Kind, error: StatemarkError, **values: object) -> Finding:
    return kind.found(error.problem, reason=error.reason, remedy=error.remedy, **values)


def _of_java(
    env: Mapping[str, str], program: Path | None, version: str | None
) -> Iterator[Finding]:
    home = env.get("JAVA_HOME")
    if program is None or version is None:
        yield _of(kinds.JAVA_MISSING, java.missing(env), javaHome=home)
        return
    if java.release_of(version) < java.NEEDED:
        error = java.too_old(program, version)
        yield _of(kinds.JAVA_OLD, error, java=version, path=str(program))
    on_path = java.on_path(env)
    other = on_path and java.version_of(on_path)
    if home and other and java.release_of(other) != java.release_of(version):
        yield kinds.JAVA_TWO.found(
            f"JAVA_HOME has Java {version}, and PATH Java {other}",
            reason=f"Spark starts the one of JAVA_HOME ({program}); a shell starts {on_path}",
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
