"""Getting the plugin's jar to the driver and the executors, past the layers that would hide it.

Spark reads ``spark.jars`` twice, with different precedence. The launcher (spark-submit) builds
the driver's class path, and there ``PYSPARK_SUBMIT_ARGS`` hide the builder. Then the context
tells the executors, and there the builder hides everything, even the jars to which the launcher
resolved ``spark.jars.packages``. No single value set beforehand is right for both, so the last
step waits until the builder starts its session:

1. `prepare` merges all layers into the builder's ``spark.jars``;
2. at its start, the launcher gets the merged list as ``--jars``, which nothing hides;
3. what the launcher made of it, packages included, becomes the builder's ``spark.jars``.

Setting ``PYSPARK_SUBMIT_ARGS`` for good was tried and dropped: it hides jars from the driver
that are set on the builder later, and reaches into other sessions and child processes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from statemark import _jvm, arguments, layers, settings
from statemark.errors import ConnectError, SessionRunningError, SettingsError
from statemark.failures import text_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_START_METHODS = ("getOrCreate", "create")
# How the plugin writes what it refuses, in the text of the exception: the virtual machine has no
# context yet that could be asked.
_REFUSED = re.compile(r"statemark\.[\w.]+Exception: (.*)\n  reason: (.*)\n  remedy: (.*)")


def prepare(builder: SparkSession.Builder, *, jar: str, wanted: Mapping[str, str]) -> None:
    """Set options on a builder, and have the jar looked after when it starts its session.

    Parameters
    ----------
    builder : SparkSession.Builder
        The builder.
    jar : str
        Absolute path or URI of the plugin's jar.
    wanted : Mapping
        Settings besides the jar.

    Raises
    ------
    SettingsError
        If a layer sets an unknown or bad setting of the provider.
    SessionRunningError
        If Spark already runs without the jar.
    """
    # Nothing is set before everything has been checked: an error leaves the builder as it was.
    merged = _merged_jars({**builder._options, **wanted}, jar=jar)
    wanted = {**wanted, settings.PLUGINS_KEY: _merged_plugins(builder._options)}
    # The caller has not asked for this one by name: what a layer says of it counts.
    if _named(settings.ALLOW_REAL_TIME.key, builder._options) is not None:
        wanted.pop(settings.ALLOW_REAL_TIME.key, None)
    for key, value in wanted.items():
        builder.config(key, value)
    if merged:
        builder.config(layers.JARS, merged)
    for name in _START_METHODS:
        original = getattr(builder, name)
        if isinstance(original, _Start):
            original = original.original  # configured before: the later jar counts
        setattr(builder, name, _Start(builder, original, jar))


def refuse_connect(builder: SparkSession.Builder, *, wanted: Mapping[str, str]) -> None:
    """Refuse a builder of Spark Connect.

    Parameters
    ----------
    builder : SparkSession.Builder
        The builder.
    wanted : Mapping
        Settings that the error shows, for the server.

    Raises
    ------
    ConnectError
        If the session would be a Connect client.
    """
    reason = _connect_reason(builder)
    if reason is None:
        return
    lines = "".join(f"\n    {key} {value}" for key, value in wanted.items())
    problem = "a Spark Connect client cannot choose the state store of its server"
    raise ConnectError(
        problem,
        reason=f"{reason}; jars and the provider's class are set when the server starts",
        remedy="start the server with the flags that `statemark conf` prints there, or put into"
        f" its spark-defaults.conf, beside spark.jars with the plugin's jar:{lines}",
    )


@contextmanager
def _submit_args(value: str) -> Iterator[None]:
    """Set what pyspark starts spark-submit with, which it takes from nowhere else."""
    former = os.environ.get("PYSPARK_SUBMIT_ARGS")
    os.environ["PYSPARK_SUBMIT_ARGS"] = value
    try:
        yield
    finally:
        if former is None:
            del os.environ["PYSPARK_SUBMIT_ARGS"]
        else:
            os.environ["PYSPARK_SUBMIT_ARGS"] = former


@dataclass(frozen=True)
class _Start:
    """A builder's method that starts a session, with the jar seen to first."""

    builder: SparkSession.Builder
    original: Callable[[], SparkSession]
    jar: str

    def __call__(self) -> SparkSession:
        refuse_connect(self.builder, wanted=_provider_settings(self.builder._options))
        merged = _merged_jars(self.builder._options, jar=self.jar)
        if merged:
            self.builder.config(layers.JARS, merged)
        if not _jvm.started():
            args = layers.submit_args(env=os.environ).with_jars(merged)
            with _submit_args(args):
                _jvm.launch(self.builder._options)
            resolved = _jvm.launched_jars()
            # It has all that was merged, with patterns expanded. Some cluster managers keep the
            # list elsewhere, and then the builder's is right.
            if layers.contains(resolved, self.jar):
                self.builder.config(layers.JARS, resolved)
        try:
            return self.original()
        except Exception as error:  # whose class only `_jvm` may name
            said = _REFUSED.search(text_of(error))
            if said is None:
                raise
            problem, reason, remedy = said.groups()
            raise SettingsError(problem, reason=reason, remedy=remedy) from error


def _merged_jars(options: Mapping[str, Any], *, jar: str) -> str:
    """Return the value for the builder's ``spark.jars``; empty if it is better left unset."""
    own = str(options.get(layers.JARS) or "")
    settings.check(options, source="the builder")
    if _jvm.started():
        launched = _jvm.launched_jars()
        if not layers.contains(launched, jar) and not _jvm.sees_provider():
            raise _running_without(jar, launched)
        # The launcher's list counts as long as the builder does not hide it.
        return layers.merge(own, launched) if own else ""
    args = layers.submit_args(env=os.environ)
    defaults = layers.defaults(env=os.environ, args=args)
    settings.check(args.conf, source="PYSPARK_SUBMIT_ARGS")
    settings.check(defaults, source="spark-defaults.conf or the properties file")
    return layers.merge(own, args.jars, defaults.get(layers.JARS, ""), jar)


def _merged_plugins(options: Mapping[str, Any]) -> str:
    """Return the plugins of the highest layer that names some, and ours."""
    return layers.with_plugin(_named(settings.PLUGINS_KEY, options) or "")


def _named(key: str, options: Mapping[str, Any]) -> str | None:
    """Return the value of a key in the highest layer that has one."""
    args = layers.submit_args(env=os.environ)
    defaults = layers.defaults(env=os.environ, args=args)
    value = options.get(key) or args.conf.get(key) or defaults.get(key)
    return None if value is None else str(value)


def _running_without(jar: str, launched: str) -> SessionRunningError:
    what = "session" if _jvm.has_context() else "Java virtual machine"
    problem = f"a Spark {what} already runs, without the Statemark jar {jar}"
    return SessionRunningError(
        problem,
        reason="jars reach the driver only when Spark starts; it was started with "
        + (f"spark.jars={launched}" if launched else "no jars"),
        remedy="call statemark.use(spark) for the session that runs, which brings most of it; for"
        " all, restart Python (or the notebook's kernel) and call configure before anything starts"
        " Spark; under spark-submit and in the pyspark shell pass the flags that `statemark conf`"
        " prints",
    )


def _provider_settings(options: Mapping[str, Any]) -> dict[str, str]:
    own = (settings.PROVIDER_CLASS_KEY, settings.PREFIX)
    return {key: str(value) for key, value in options.items() if key.startswith(own)}


def _connect_reason(builder: SparkSession.Builder) -> str | None:
    """Return the option that makes this a Connect client, or None for a classic session."""
    options: Mapping[str, Any] = getattr(builder, "_options", {})
    if arguments.is_of_connect(builder):
        return "the builder is pyspark.sql.connect's"
    remote = options.get("spark.remote")
    if remote:
        return f"the builder has remote({remote!r})"
    if os.environ.get("SPARK_REMOTE"):
        return f"SPARK_REMOTE is {os.environ['SPARK_REMOTE']!r}"
    if "SPARK_CONNECT_MODE_ENABLED" in os.environ:
        return "SPARK_CONNECT_MODE_ENABLED is set"
    master = str(options.get("spark.master") or os.environ.get("MASTER", ""))
    if master.startswith("sc://"):
        return f"the master is {master!r}"
    mode = str(options.get("spark.api.mode") or os.environ.get("SPARK_API_MODE", ""))
    if mode.lower() == "connect":
        return "the API mode is connect"
    return None
