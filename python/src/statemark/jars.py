"""The plugin's jars that travel inside the package, one for each line of Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from statemark import _jvm, arguments
from statemark._version import __version__
from statemark.errors import JarNotFoundError, MissingDependencyError, SparkVersionError

JARS_DIR = Path(__file__).parent / "jars"

_NAME = re.compile(r"statemark-spark_(?P<line>\d+\.\d+)_\d+\.\d+-(?P<version>.+)\.jar")
_CORE_NAME = re.compile(r"spark-core_(?P<scala>\d+\.\d+)-(?P<version>.+)\.jar")
_RELEASE = re.compile(r"\d+\.\d+\.\d+")
# Vendors append to the version (4.2.0-amzn-0, 4.2.0.7.2); the line is what decides.
_LINE = re.compile(r"(\d+)\.(\d+)")
#: Two letters or more: one is a drive.
URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def jar_path(*, spark_version: str | None = None) -> Path:
    """Return the bundled jar for a line of Spark.

    Parameters
    ----------
    spark_version : str, optional
        A version of Spark, such as ``"4.2"``, ``"4.2.0"`` or ``"4.2.0-amzn-0"``; only major and
        minor count. By default that of the running session, else of ``SPARK_HOME``, else of the
        installed pyspark.

    Returns
    -------
    pathlib.Path
        Absolute path of the jar.

    Raises
    ------
    JarNotFoundError
        If the package has no jar at all, or several for this line and none of its own version.
    SparkVersionError
        If no bundled jar is for this line.
    MissingDependencyError
        If the version is not given, and there is no Spark to ask for it.
    """
    found = _bundled()
    if not found:
        problem = f"no Statemark jar in {JARS_DIR}"
        raise JarNotFoundError(
            problem,
            reason="the package was installed from sources before the plugin was built",
            remedy="run `make build` in the repository, install a wheel, or pass jar=",
        )
    version = found_version() if spark_version is None else _text(spark_version)
    parsed = _LINE.match(version)
    candidates = found.get(f"{parsed[1]}.{parsed[2]}", []) if parsed else []
    if not candidates:
        problem = f"Statemark {__version__} has no jar for Spark {version}"
        raise SparkVersionError(
            problem,
            reason=f"the bundled jars are for Spark {', '.join(sorted(found))}, in {JARS_DIR}",
            remedy="run one of these lines of Spark, as after "
            f"{pip_install()}, or a Statemark that supports yours",
        )
    if len(candidates) == 1:
        return candidates[0]
    own = [jar for jar in candidates if jar.name.endswith(f"-{__version__}.jar")]
    if len(own) == 1:
        return own[0]
    problem = f"several Statemark jars for Spark {version}"
    raise JarNotFoundError(
        problem,
        reason=f"none is of version {__version__}: {', '.join(jar.name for jar in candidates)}",
        remedy=f"remove the stale ones from {JARS_DIR}, or pass jar=",
    )


def spark_line(
    *, jar: str | os.PathLike[str] | None = None, spark_version: str | None = None
) -> tuple[int, int] | None:
    """Return the line of Spark that a session will have.

    Parameters
    ----------
    jar : str or os.PathLike, optional
        The plugin's jar, whose name says its line.
    spark_version : str, optional
        A version of Spark, which counts more than the jar's name. By default as for `jar_path`.

    Returns
    -------
    tuple of int or None
        Major and minor version; None where nothing says it.
    """
    named = None if jar is None else _NAME.search(arguments.location("jar", jar))
    if spark_version is None and named:
        spark_version = named["line"]
    if spark_version is None:
        try:
            spark_version = found_version()
        except MissingDependencyError:
            return None
    parsed = _LINE.match(_text(spark_version))
    return (int(parsed[1]), int(parsed[2])) if parsed else None


def _text(spark_version: object) -> str:
    remedy = "pass a text, as '4.2'"
    arguments.refuse_type("spark_version", spark_version, str, remedy=remedy)
    return str(spark_version)


def checked_jar(jar: str | os.PathLike[str]) -> str:
    """Return the jar that a caller named, if Spark can be given it.

    Parameters
    ----------
    jar : str or os.PathLike
        A path, or a URI that Spark can read.

    Returns
    -------
    str
        An absolute path, or the URI as it is.

    Raises
    ------
    JarNotFoundError
        If it is a path where no file is, or holds a comma, which separates jars in Spark.
    """
    text = arguments.location("jar", jar)
    is_uri = URI.match(text) is not None
    if not is_uri:
        text = str(Path(text).absolute())
    if "," in text:
        problem = f"the jar {text} cannot be given to Spark"
        raise JarNotFoundError(
            problem,
            reason="a comma separates jars in spark.jars",
            remedy="move it, or the Python environment, to a path without a comma",
        )
    if not is_uri:
        refuse_unreadable(text, remedy="correct jar=, or leave it out to use the bundled jar")
    return text


def refuse_unreadable(jar: str, *, remedy: str) -> None:
    """Refuse a path where no jar can be read."""
    if why := arguments.why_unreadable(jar):
        problem = f"the jar {jar} cannot be read"
        raise JarNotFoundError(problem, reason=why, remedy=remedy)


def pip_install() -> str:
    """Return the command that installs a pyspark for which there is a bundled jar.

    The newest pyspark can be one without.

    Returns
    -------
    str
        A command for the shell.
    """
    lines = sorted(_bundled(), key=lambda line: [int(part) for part in line.split(".")])
    return f"pip install 'pyspark=={lines[-1]}.*'" if lines else "pip install pyspark"


def spark_home(*, env: Mapping[str, str]) -> Path:
    """Return the home of the Spark that pyspark would start.

    Parameters
    ----------
    env : Mapping
        Environment variables.

    Returns
    -------
    pathlib.Path
        ``SPARK_HOME``, else the directory of the installed pyspark.

    Raises
    ------
    MissingDependencyError
        If neither is there.
    """
    if env.get("SPARK_HOME"):
        return Path(env["SPARK_HOME"])
    spec = _pyspark()
    if spec is None or spec.origin is None:
        problem = "Spark was not found"
        raise MissingDependencyError(
            problem,
            reason="pyspark is not installed in this environment, and SPARK_HOME is not set",
            remedy=f"{pip_install()}, or set SPARK_HOME",
        )
    package = Path(spec.origin).parent
    downloaded = package / "spark-distribution"  # where pyspark puts another Hadoop build
    return downloaded if (downloaded / "bin" / "spark-submit").is_file() else package


class SparkRelease(NamedTuple):
    """What Maven calls a Spark.

    Parameters
    ----------
    scala : str
        Line of Scala.
    version : str
        Release, without what a vendor appends.
    """

    scala: str
    version: str


def spark_release(home: Path) -> SparkRelease:
    """Return the release of the Spark in a directory.

    Parameters
    ----------
    home : pathlib.Path
        Its home.

    Returns
    -------
    SparkRelease
        Its release.

    Raises
    ------
    MissingDependencyError
        If nothing there says it.
    """
    for path in (home / "jars").glob("spark-core_*.jar"):
        named = _CORE_NAME.fullmatch(path.name)
        release = named and _RELEASE.match(named["version"])
        if named and release:
            return SparkRelease(named["scala"], release[0])
    problem = f"the version of Spark in {home} is unknown"
    raise MissingDependencyError(
        problem,
        reason="it has no jars/spark-core_*.jar",
        remedy="correct SPARK_HOME, or name Kafka's client library with --jars",
    )


def _pyspark() -> ModuleSpec | None:
    """Return where the installed pyspark is; None where there is none."""
    try:
        return find_spec("pyspark")
    except ValueError:  # a module that stands in for it has no spec
        return None


def _bundled() -> dict[str, list[Path]]:
    """Return the bundled jars by line of Spark."""
    found: dict[str, list[Path]] = {}
    for path in sorted(JARS_DIR.glob("*.jar")):
        named = _NAME.fullmatch(path.name)
        if named:
            found.setdefault(named["line"], []).append(path.absolute())
    return found


def found_version() -> str:
    """Return the version of the Spark that runs, else of the one that pyspark would start."""
    running = _jvm.spark_version()
    if running is not None:
        return running
    home = spark_home(env=os.environ)
    # The jar names the Spark that will run; an installed pyspark may differ from SPARK_HOME.
    for path in (home / "jars").glob("spark-core_*.jar"):
        named = _CORE_NAME.fullmatch(path.name)
        if named:
            return named["version"]
    if _pyspark() is None:
        problem = f"the version of Spark in {home} is unknown"
        raise MissingDependencyError(
            problem,
            reason="it has no jars/spark-core_*.jar, and pyspark is not installed",
            remedy="correct SPARK_HOME, or name the version of Spark",
        )
    import pyspark

    return str(pyspark.__version__)
