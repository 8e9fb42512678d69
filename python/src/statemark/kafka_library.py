"""Kafka's client library, which Statemark leaves to its users, for commands that ask brokers.

A job has it with Spark's own connector. A command takes it, in this order, from

1. what the user names: ``--jars``, ``--packages``, or the settings of Spark that say the same;
2. Spark's own jars, where a distribution has added it;
3. the folder in which Spark keeps what ``--packages`` has brought before;
4. a repository, by ``--packages``, without what Spark has among its own jars.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from statemark import layers
from statemark.errors import MissingDependencyError
from statemark.jars import spark_release

_PACKAGES = "spark.jars.packages"
_EXCLUDED = "spark.jars.excludes"
_CLASS_PATH = "spark.driver.extraClassPath"
#: Where Spark 4 and older lines keep packages, below the user's home.
_KEPT = (".ivy2.5.2/jars", ".ivy2/jars")
_KEPT_NAME = "org.apache.kafka_kafka-clients-*.jar"
# The library of the connector of each line of Spark; of others the newest.
_RELEASES = {"4.0": "3.9.1", "4.1": "3.9.1"}
_NEWEST = "3.9.2"
# What the library and the connector ask for and every Spark has: with it they are seven times as
# large, by Hadoop's client above all.
_SPARKS_OWN = (
    "at.yawk.lz4:lz4-java",
    "org.lz4:lz4-java",
    "com.github.luben:zstd-jni",
    "org.xerial.snappy:snappy-java",
    "org.slf4j:slf4j-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.scala-lang.modules:scala-parallel-collections_2.13",
    "com.google.code.findbugs:jsr305",
)


def options(
    given: layers.SubmitArgs, *, home: Path, env: Mapping[str, str], connector: bool = False
) -> tuple[tuple[str, str], ...]:
    """Return what spark-submit needs besides the user's options, or instead of one of them.

    Parameters
    ----------
    given : SubmitArgs
        The user's options for spark-submit.
    home : pathlib.Path
        The home of Spark.
    env : Mapping
        Environment variables.
    connector : bool
        Whether Spark's own connector is needed, too: a query reads a topic.

    Returns
    -------
    tuple of (str, str)
        Options with their values; what they name includes what the user's option named.
    """
    settings = {**layers.defaults(env=env, args=given), **given.conf}
    jars = given.jars or settings.get(layers.JARS, "")
    packages = given.value("--packages") or settings.get(_PACKAGES, "")
    name = "spark-sql-kafka" if connector else "kafka"
    if name in f"{jars} {packages} {settings.get(_CLASS_PATH, '')}":
        return ()
    if any((home / "jars").glob(f"{name}-*.jar")):
        return ()
    home_of_user = _home()
    kept = None if connector or home_of_user is None else _kept(home_of_user)
    if kept is not None:
        return (("--jars", layers.merge(jars, str(kept))),)
    release = spark_release(home)
    line = release.version.rpartition(".")[0]
    brings_it = f"org.apache.kafka:kafka-clients:{_RELEASES.get(line, _NEWEST)}"
    if connector:
        brings_it = f"org.apache.spark:spark-sql-kafka-0-10_{release.scala}:{release.version}"
    return (
        ("--packages", layers.merge(packages, brings_it)),
        ("--exclude-packages", layers.merge(settings.get(_EXCLUDED, ""), *_SPARKS_OWN)),
    )


def fetching(packages: str) -> str | None:
    """Return the line that says, before Spark starts, what has to be fetched.

    Parameters
    ----------
    packages : str
        What spark-submit is told to fetch; the last of it is the library, or brings it.

    Returns
    -------
    str or None
        The line; None where Spark has kept it.
    """
    wanted = packages.rpartition(",")[2]
    kept = f"{wanted.replace(':', '_', 1).replace(':', '-')}.jar"
    home = _home()
    if home is not None and any((home / folder / kept).is_file() for folder in _KEPT):
        return None
    what = "Kafka's client library is not on this machine"
    return f"statemark: {what}: spark-submit fetches {wanted}, about 10 MB, and keeps it"


def not_fetched(packages: str) -> MissingDependencyError:
    """Return the error of a spark-submit that failed where it had to fetch the library.

    Parameters
    ----------
    packages : str
        What it was told to fetch.

    Returns
    -------
    MissingDependencyError
        The error.
    """
    problem = "the command was not started"
    return MissingDependencyError(
        problem,
        reason=f"spark-submit failed, perhaps as it could not fetch {packages}, which brings"
        " Kafka's client library; its own lines are above",
        remedy="name the library with --jars kafka-clients-….jar, or say with --repositories"
        " where it is",
    )


def _home() -> Path | None:
    """Return the user's home; None where the machine does not know the user, as in a container."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def _kept(user: Path) -> Path | None:
    """Return the newest library that Spark has fetched before."""
    for folder in _KEPT:
        found = sorted((user / folder).glob(_KEPT_NAME), key=_version)
        if found:
            return found[-1]
    return None


def _version(jar: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", jar.name.rpartition("-")[2])]
