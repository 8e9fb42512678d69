"""Kafka's client library, which Statemark leaves to its users, for commands that ask brokers.

A job has it with Spark's own connector. A command takes it, in this order, from

1. what the user names: ``--jars``, ``--packages``, or the settings of Spark that say the same;
2. Spark's own jars, where a distribution has added it;
3. the folder in which Spark keeps what ``--packages`` has brought before;
4. a repository, by ``--packages`` of the connector.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from statemark import layers
from statemark.errors import MissingDependencyError
from statemark.jars import spark_release

_PACKAGES = "spark.jars.packages"
_CLASS_PATH = "spark.driver.extraClassPath"
#: Where Spark 4 and older lines keep packages, below the user's home.
_KEPT = (".ivy2.5.2/jars", ".ivy2/jars")
_KEPT_NAME = "org.apache.kafka_kafka-clients-*.jar"


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
    kept = None if connector else _kept(Path.home())
    if kept is not None:
        return (("--jars", layers.merge(jars, str(kept))),)
    release = spark_release(home)
    brings_it = f"org.apache.spark:spark-sql-kafka-0-10_{release.scala}:{release.version}"
    return (("--packages", layers.merge(packages, brings_it)),)


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


def _kept(user: Path) -> Path | None:
    """Return the newest library that Spark has fetched before."""
    for folder in _KEPT:
        found = sorted((user / folder).glob(_KEPT_NAME), key=_version)
        if found:
            return found[-1]
    return None


def _version(jar: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", jar.name.rpartition("-")[2])]
