"""Setting up a Spark session that keeps its state in Statemark stores."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from statemark import launch, layers, settings
from statemark._version import __version__
from statemark.errors import SettingsError
from statemark.jars import checked_jar, jar_path, spark_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from statemark.isolation import IsolationLevel

#: The first line of Spark that refuses real-time queries in a session with another provider.
_REFUSES_REAL_TIME = (4, 3)


def configure(
    builder: SparkSession.Builder,
    *,
    isolation_level: IsolationLevel | str | None = None,
    max_uncommitted_bytes: int | str | None = None,
    local_dir: str | os.PathLike[str] | None = None,
    jar: str | os.PathLike[str] | None = None,
) -> SparkSession.Builder:
    """Make the sessions of a builder keep streaming state in Statemark stores.

    The plugin's jar is added to the jars that the builder, ``PYSPARK_SUBMIT_ARGS`` and
    ``spark-defaults.conf`` name, and to those of packages (``spark.jars.packages``, as delta's
    helper sets them). No jar is taken away from the driver or the executors. Options may be set
    on the builder before and after this call.

    Parameters
    ----------
    builder : SparkSession.Builder
        The builder; it is changed in place.
    isolation_level : IsolationLevel or str, optional
        What a live query sees unless it says otherwise. Unset: ``READ_COMMITTED``.
    max_uncommitted_bytes : int or str, optional
        Limit on the heap that staged writes of all stores of an executor take, in bytes (> 0)
        or as a byte string of Spark's (``"64m"``); ``-1`` for no limit; ``"auto"``, as if unset,
        for a tenth of the executor's heap, at least 64 MiB. What is over it goes to the local
        disk.
    local_dir : str or os.PathLike, optional
        Absolute path, or ``file:`` URI, of the directory on each executor under which stores
        outlive the application, so that a restart replays only what is missing.
    jar : str or os.PathLike, optional
        Path or URI of the plugin's jar. By default the bundled one for the running Spark.

    Returns
    -------
    SparkSession.Builder
        The builder that was passed.

    Raises
    ------
    SettingsError
        If a value is bad, here or where Spark's own configuration sets it, or a key is unknown.
    ConnectError
        If the builder is for Spark Connect.
    SessionRunningError
        If Spark already runs without the plugin. The session that ``getOrCreate`` returned
        would ignore the jar.
    JarNotFoundError
        If there is no jar.
    SparkVersionError
        If no bundled jar is for this version of Spark.
    MissingDependencyError
        If pyspark is not installed.

    Notes
    -----
    Settings that are left unset are not written, so that those of ``spark-defaults.conf`` count.
    Where layers name jars, Spark takes the highest only; here all of them count, the highest
    first. Checks are repeated when the builder starts its session.

    The plugin gets this package's version as ``packageVersion``: where another jar of Statemark's
    comes before the package's on the driver's class path, ``getOrCreate`` raises `SettingsError`,
    which names both versions.

    From Spark 4.3 on, ``allowRealTime`` is set as well, where no layer sets it. The session then
    loses ``providerClass`` once it has a query, for Spark would refuse every real-time query;
    micro-batch queries get it as they start.

    Where a session runs already, ``getOrCreate`` sets these settings in it, as it does with all of
    Spark's, and queries that start from then on have them.

    Examples
    --------
    >>> import statemark
    >>> from pyspark.sql import SparkSession
    >>> builder = SparkSession.builder.appName("clicks")
    >>> builder = statemark.configure(builder, max_uncommitted_bytes="256m")
    >>> spark = builder.getOrCreate()  # doctest: +SKIP
    """
    is_builder = hasattr(builder, "getOrCreate") and hasattr(builder, "config")
    if isinstance(builder, type) or not is_builder:
        problem = f"cannot configure a {type(builder).__name__}"
        reason = "it is not a SparkSession.Builder"
        remedy = "pass SparkSession.builder, with options if any, before getOrCreate()"
        raise SettingsError(problem, reason=reason, remedy=remedy)
    wanted = _settings(
        line=spark_line(jar=jar),
        isolation_level=isolation_level,
        max_uncommitted_bytes=max_uncommitted_bytes,
        local_dir=local_dir,
    )
    launch.refuse_connect(builder, wanted=wanted)
    added = checked_jar(jar_path() if jar is None else jar)
    launch.prepare(builder, jar=added, wanted=wanted)
    return builder


def conf(
    *,
    isolation_level: IsolationLevel | str | None = None,
    max_uncommitted_bytes: int | str | None = None,
    local_dir: str | os.PathLike[str] | None = None,
    jar: str | os.PathLike[str] | None = None,
    spark_version: str | None = None,
) -> dict[str, str]:
    """Return the settings that `configure` makes, for callers that set them in another way.

    Parameters
    ----------
    isolation_level : IsolationLevel or str, optional
        As for `configure`.
    max_uncommitted_bytes : int or str, optional
        As for `configure`.
    local_dir : str or os.PathLike, optional
        As for `configure`.
    jar : str or os.PathLike, optional
        As for `configure`.
    spark_version : str, optional
        The version of Spark that picks the bundled jar, as for `jar_path`.

    Returns
    -------
    dict of str to str
        Spark's settings by key: ``spark.jars`` with the plugin's jar alone, the provider's
        class, the plugin by which executors and driver talk about stores, this package's
        version, which the plugin compares with the jar's, and what was asked for.

    Raises
    ------
    SettingsError
        If a value is bad.
    JarNotFoundError
        If there is no jar.
    SparkVersionError
        If no bundled jar is for this version of Spark.
    MissingDependencyError
        If the version is not given, and there is no Spark to ask for it.

    Notes
    -----
    Setting ``spark.jars`` or ``spark.plugins`` hides what a lower layer has set. `configure`
    merges; the caller of this function has to.

    Examples
    --------
    >>> import statemark
    >>> statemark.conf()["spark.sql.streaming.stateStore.providerClass"]
    'statemark.spark.StatemarkStateStoreProvider'
    """
    wanted = _settings(
        line=spark_line(jar=jar, spark_version=spark_version),
        isolation_level=isolation_level,
        max_uncommitted_bytes=max_uncommitted_bytes,
        local_dir=local_dir,
    )
    path = jar_path(spark_version=spark_version) if jar is None else jar
    return {layers.JARS: checked_jar(path)} | wanted


def runtime_settings(
    *,
    isolation_level: IsolationLevel | str | None,
    max_uncommitted_bytes: int | str | None,
    local_dir: str | os.PathLike[str] | None,
) -> dict[str, str]:
    """Return those of the settings that a running session takes.

    Parameters
    ----------
    isolation_level, max_uncommitted_bytes, local_dir
        As for `configure`.

    Returns
    -------
    dict of str to str
        Spark's settings by key.

    Raises
    ------
    SettingsError
        If a value is bad.
    """
    wanted = _settings(
        line=None,  # what it decides is the extension's, which a running session may not have
        isolation_level=isolation_level,
        max_uncommitted_bytes=max_uncommitted_bytes,
        local_dir=local_dir,
    )
    of_application = (settings.PLUGINS_KEY, settings.PACKAGE_VERSION.key)
    return {key: value for key, value in wanted.items() if key not in of_application}


def _settings(
    *,
    line: tuple[int, int] | None,
    isolation_level: IsolationLevel | str | None,
    max_uncommitted_bytes: int | str | None,
    local_dir: str | os.PathLike[str] | None,
) -> dict[str, str]:
    """Return the settings besides the jar, without those that the caller did not ask for."""
    wanted = {
        settings.PROVIDER_CLASS_KEY: settings.PROVIDER_CLASS,
        settings.PLUGINS_KEY: settings.PLUGIN,
        settings.PACKAGE_VERSION.key: __version__,
    }
    if line is not None and line >= _REFUSES_REAL_TIME:
        wanted[settings.ALLOW_REAL_TIME.key] = "true"
    asked = (
        (settings.ISOLATION_LEVEL, isolation_level),
        (settings.MAX_UNCOMMITTED_BYTES, max_uncommitted_bytes),
        (settings.LOCAL_DIR, local_dir),
    )
    return wanted | {row.key: row.written(value) for row, value in asked if value is not None}
