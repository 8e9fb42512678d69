"""Statemark in a session that runs already, as a notebook or a managed cluster has one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from statemark import _jvm, arguments, session, settings
from statemark._version import __version__
from statemark.errors import JarNotFoundError, SettingsError
from statemark.jars import checked_jar, jar_path

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from statemark.isolation import IsolationLevel

EXTENSION_LACK = (
    "the extension, which a session has from its start: transformWithState does not run on"
    " Statemark, statemark.latest is not there, a bad setting fails in a task instead of on the"
    " driver, and the stores of a query without a checkpoint location stay on the local disk until"
    " they are old",
    "start the session with the jar: `statemark.configure`, or spark.jars and"
    " spark.sql.extensions=statemark.spark.StatemarkExtensions",
)
PLUGIN_LACK = (
    "the plugin, which an application has from its start: on a cluster stores do not go back to"
    " the executor that has them on disk, and a live read of a store on another executor waits"
    " for a task",
    f"start the application with the jar and {settings.PLUGINS_KEY}={settings.PLUGIN}, as"
    " `statemark.configure` and `statemark conf` do",
)
_CLASS_PATH = (
    "the driver's class path, which another program than spark-submit has made: where a task fails"
    " by an error of Statemark's, Spark may say UnknownReason, and the reason is in the executor's"
    " log alone; another thread of Python starts queries only once it has called statemark.use"
    " itself",
    "start the application with the jar: `statemark.configure`, --jars or spark.jars",
)


@dataclass(frozen=True)
class Lack:
    """What a running session cannot get any more.

    Attributes
    ----------
    what : str
        What is missing, and what does not work without it.
    remedy : str
        What brings it.
    """

    what: str
    remedy: str


class Usage:
    """Says what `use` found; as a context manager, it takes the settings back at the end.

    Attributes
    ----------
    versions : dict of str to str
        The version of the jar by process: ``driver``, and the executors that answered by id.
    lacks : tuple of Lack
        What the session cannot get any more.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        versions: dict[str, str],
        lacks: tuple[Lack, ...],
        former: Mapping[str, str | None],
    ) -> None:
        self.versions, self.lacks = versions, lacks
        self._spark, self._former = spark, former

    def __str__(self) -> str:
        """Return a line for the jar and two for each thing that lacks."""
        lines = [f"Statemark {__version__} on {', '.join(self.versions)}"]
        for lack in self.lacks:
            lines += [f"  lacks {lack.what}", f"    remedy: {lack.remedy}"]
        return "\n".join(lines)

    __repr__ = __str__  # notebooks show it

    def __enter__(self) -> Usage:
        """Return itself: the settings are made already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the settings back. Queries that were started keep theirs; the jar stays."""
        for key, value in self._former.items():
            if value is None:
                self._spark.conf.unset(key)
            else:
                self._spark.conf.set(key, value)


def use(
    spark: SparkSession,
    *,
    isolation_level: IsolationLevel | str | None = None,
    max_uncommitted_bytes: int | str | None = None,
    local_dir: str | os.PathLike[str] | None = None,
    jar: str | os.PathLike[str] | None = None,
) -> Usage:
    """Make a running session keep the state of the queries that it starts from now on.

    The jar is added with ``ADD JAR`` where the application does not have it, and the settings are
    made in the session. A Spark Connect server has to have the jar. What a running session cannot
    get any more is in `Usage.lacks`. Where it is still to be built, `configure` brings all of it.

    Parameters
    ----------
    spark : SparkSession
        The session, classic or Connect.
    isolation_level, max_uncommitted_bytes, local_dir : optional
        As for `configure`.
    jar : str or os.PathLike, optional
        As for `configure`.

    Returns
    -------
    Usage
        What was found. ``print`` shows it; ``with`` takes the settings back at the end.

    Raises
    ------
    SettingsError
        If a value is bad, here or in the session, a key of the session's is unknown, or a process
        has the jar of another version than this package's.
    JarNotFoundError
        If there is no jar, or a Spark Connect server does not have it.
    SparkVersionError
        If no bundled jar is for this version of Spark.
    MissingDependencyError
        If pyspark is not installed.

    Notes
    -----
    The jar goes to the driver's class path as well, where spark-submit, or pyspark, has started the
    driver: then every Python thread may start queries, and what a task fails with arrives. Where
    another program has, `Usage.lacks` says so: call this again in a thread that starts queries.

    Source: Spark 4.2 ``ADD JAR``, ``SparkSession.conf``, ``MutableURLClassLoader``.

    Examples
    --------
    >>> import statemark
    >>> print(statemark.use(spark, local_dir="/var/lib/statemark"))  # doctest: +SKIP
    Statemark 0.1.0 on driver, 0, 1
      lacks the extension, …
    >>> with statemark.use(spark):  # doctest: +SKIP
    ...     query = counts.writeStream.toTable("counts")
    """
    wanted = session.runtime_settings(
        isolation_level=isolation_level,
        max_uncommitted_bytes=max_uncommitted_bytes,
        local_dir=local_dir,
    )
    arguments.refuse_stopped(spark)
    if isinstance(spark, type) or not hasattr(spark, "read") or not hasattr(spark, "conf"):
        problem = f"cannot use a {type(spark).__name__}"
        raise SettingsError(
            problem,
            reason="it is no session that runs",
            remedy="pass a SparkSession; a builder is for statemark.configure",
        )
    _refuse_file(spark, wanted.get(settings.LOCAL_DIR.key, ""))
    found = installation(spark)
    on_class_path = found is not None
    if found is None and not _jvm.is_classic():
        raise _no_jar_on_server()
    if found is None:
        path = checked_jar(jar_path(spark_version=spark.version) if jar is None else jar)
        on_class_path = _add(spark, path)
        found = installation(spark)
        if found is None:
            raise _unreadable(path, reason="Spark does not find its classes after ADD JAR")
    versions = {row.process: row.version or __version__ for row in found}
    _refuse_others(versions)
    (driver,) = (row for row in found if row.process == "driver")
    lacks = (
        (driver.extension, EXTENSION_LACK),
        (driver.plugin, PLUGIN_LACK),
        (on_class_path, _CLASS_PATH),
    )
    former = {key: spark.conf.get(key, None) for key in wanted}
    for key, value in wanted.items():
        spark.conf.set(key, value)
    return Usage(
        spark,
        versions=versions,
        lacks=tuple(Lack(*texts) for is_there, texts in lacks if not is_there),
        former=former,
    )


def _refuse_file(spark: SparkSession, local_dir: str) -> None:
    """Refuse a file for the stores' directory, where this machine is the one that has them."""
    is_local = str(spark.conf.get("spark.master", "") or "").startswith("local")
    is_file = False
    with contextlib.suppress(OSError):  # the stores' directory may be below one of another user
        is_file = bool(local_dir) and Path(local_dir.removeprefix("file:")).is_file()
    if is_local and is_file:
        problem = f"bad value {local_dir!r} for {settings.LOCAL_DIR.key}"
        raise SettingsError(
            problem, reason="a file is at this path", remedy="name a directory, or nothing yet"
        )


def installation(spark: SparkSession) -> list[Row] | None:
    """Return what the processes of the application have of the plugin; None without its jar.

    Raises
    ------
    SettingsError
        If the session has a setting that Statemark refuses: the plugin answers nothing then.
    """
    _jvm.show_jar_to_thread()
    try:
        table = spark.read.format("statemark").option("what", "installation").load()
        return sorted(table.collect(), key=lambda row: (row.process != "driver", row.process))
    except Exception as e:  # of classes that differ between sessions and lines of Spark
        if "DATA_SOURCE_NOT_FOUND" in str(e):
            return None
        settings.check(dict(spark.conf.getAll), source="the settings")  # says it with a remedy
        raise


def _add(spark: SparkSession, jar: str) -> bool:
    """Add a jar to the session, and to the driver's class path; return whether it is there."""
    quoted = jar.replace("\\", "\\\\").replace("'", "\\'")
    # First, so that there is one copy of each class: Spark's loader of the session asks the
    # driver's before itself.
    path = jar.removeprefix("file:")
    on_class_path = Path(path).is_file() and _jvm.add_to_class_path(path)
    try:
        spark.sql(f"ADD JAR '{quoted}'").collect()
    except Exception as e:
        raise _unreadable(jar, reason=str(e).split("\n", 1)[0]) from e
    _jvm.keep_jar_of_thread()
    return on_class_path


def _no_jar_on_server() -> JarNotFoundError:
    problem = "the Spark Connect server does not have the plugin's jar"
    return JarNotFoundError(
        problem,
        reason="what a client adds belongs to its session alone, and Spark's tasks with state fail"
        " with such a jar: they cannot assign a lambda",
        remedy="start the server with the flags of `statemark conf`",
    )


def _unreadable(jar: str, *, reason: str) -> JarNotFoundError:
    problem = f"{jar} was not added to the running session"
    return JarNotFoundError(
        problem,
        reason=reason,
        remedy="pass `jar`, a path or URI that the driver can read, or start the application with"
        " --jars",
    )


def _refuse_others(versions: Mapping[str, str]) -> None:
    other = {process: found for process, found in versions.items() if found != __version__}
    if other:
        problem = f"this package is Statemark {__version__}, and the application has another"
        raise SettingsError(
            problem,
            reason=", ".join(f"{process}: {found}" for process, found in other.items()),
            remedy=f"pip install statemark=={next(iter(other.values()))}, or start the application"
            " with the jar of this package: statemark jar",
        )
