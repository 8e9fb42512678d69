"""The one module that talks to the Java virtual machine, over py4j.

Everything else reads files, environment variables and the builder's options. pyspark is
imported inside the functions, for the package has to import without it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from statemark import _class_loaders
from statemark.errors import KINDS, EngineError, no_plugin

if TYPE_CHECKING:
    from py4j.java_gateway import JavaClass, JVMView
    from pyspark.sql import DataFrame, Row

_PROVIDER_RESOURCE = "statemark/spark/StatemarkStateStoreProvider.class"


def started() -> bool:
    """Return whether a Java virtual machine already serves this process.

    It does under spark-submit, in the pyspark shell, and after any session in this process, also a
    stopped one: its class path is then past changing.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return True
    # Without this module nobody can have started one, and importing it is slow.
    if "pyspark" not in sys.modules:
        return False
    try:
        from pyspark.util import is_remote_only
    except ImportError:
        pass  # before Spark 4 there was no client-only distribution
    else:
        if is_remote_only():  # pragma: no cover - that distribution has no py4j
            return False
    from pyspark import SparkContext

    return SparkContext._gateway is not None


def has_context() -> bool:
    """Return whether a classic Spark context is active in this process."""
    if "pyspark" not in sys.modules or not started():
        return False
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def spark_version() -> str | None:
    """Return the version of the active Spark context, None without one."""
    if not has_context():
        return None
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    return None if context is None else str(context.version)


def launched_jars() -> str:
    """Return the jars that the virtual machine was started with, comma-separated; "" for none.

    spark-submit stores the outcome of all layers, with what ``--packages`` was resolved to, as
    a system property; a fresh ``SparkConf`` shows it. It is what the driver's class path got.
    """
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return SparkConf(_jvm=SparkContext._jvm).get("spark.jars", "")


def sees_provider() -> bool:
    """Return whether the driver finds the provider's class, wherever it came from."""
    from pyspark import SparkContext

    SparkContext._ensure_initialized()
    jvm = SparkContext._jvm
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()  # type: ignore[union-attr]
    return loader.getResource(_PROVIDER_RESOURCE) is not None


def launch(options: Mapping[str, object]) -> None:
    """Start the virtual machine as a session with a builder's options would."""
    from pyspark import SparkConf, SparkContext

    conf = SparkConf()
    for key, value in options.items():
        conf.set(key, str(value))
    SparkContext._ensure_initialized(conf=conf)


def is_classic() -> bool:
    """Return whether the active session is in this process, and not a Spark Connect server's."""
    if not has_context():
        return False
    from pyspark.sql.utils import is_remote

    return not is_remote()


def is_stopped(spark: object) -> bool:
    """Tell whether a session is a classic one whose application has ended."""
    context = getattr(spark, "_sc", None)
    return context is not None and context._jsc is None


class Running(NamedTuple):
    """The queries that run in a session's application.

    Attributes
    ----------
    file_system : str
        The URI of the file system of paths without a scheme.
    checkpoints : dict of str to str
        Checkpoint locations, and the names or ids of their queries.
    """

    file_system: str
    checkpoints: dict[str, str]


def running(spark: object) -> Running:
    """Return the queries of a session's application; none of a Connect server's."""
    session: Any = getattr(spark, "_jsparkSession", None)
    if session is None:
        return Running("", {})
    # A query that ends meanwhile is none.
    queries = filter(None, session.sharedState().activeStreamingQueries().values())
    named = {q.resolvedCheckpointRoot(): q.name() or q.id().toString() for q in queries}
    return Running(session.sessionState().newHadoopConf().get("fs.defaultFS", "file:///"), named)


def add_to_class_path(jar: str) -> bool:
    """Add a jar to the driver's class path; return whether that can be (`_class_loaders.add`)."""
    return _class_loaders.add(_view(), jar)


def keep_jar_of_thread() -> None:
    """Keep the class loader of this thread, which has just added the plugin's jar to a session.

    Nothing where the session is a Connect server's.
    """
    if is_classic():
        _class_loaders.keep(_view())


def show_jar_to_thread() -> None:
    """Let this thread see a jar that another has added to a running session."""
    # Lookups ask each time, and are faster than these calls.
    if not _class_loaders.is_shown() and has_context():
        _class_loaders.show(_view())


def _view() -> Any:  # noqa: ANN401 - of the virtual machine
    from pyspark import SparkContext

    return SparkContext._jvm


class Told(NamedTuple):
    """What is said of a failure.

    Attributes
    ----------
    kind : type or None
        The class of errors for its kind; None where it is none of Statemark's.
    why : str
        What has failed and why, without what Spark has put around it.
    remedy : str or None
        What to do about it.
    """

    kind: type[EngineError] | None
    why: str
    remedy: str | None


def told_of(error: BaseException) -> Told | None:
    """Return what the virtual machine says of the failure behind an exception of pyspark's.

    Parameters
    ----------
    error : BaseException
        What pyspark or py4j has raised.

    Returns
    -------
    Told or None
        What it tells from the classes of its own exception and of the causes; None where the
        failure came over Spark Connect, or the plugin or the virtual machine is not there.
    """
    origin = _java_exception(error) if has_context() else None
    if origin is None:
        return None
    from py4j.protocol import Py4JError

    try:
        kinds = _plugins("spark.errors.FailureKinds")
        if kinds is None:
            return None
        kind = KINDS.get(str(kinds.nameOf(origin)))
        return Told(kind, str(kinds.whyOf(origin)), str(kinds.remedyOf(origin)) or None)
    except (Py4JError, OSError):
        return None


def kinds() -> dict[str, bool]:
    """Return whether failures are retryable, by the names of the kinds that the plugin knows."""
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    known = dict(jvm.statemark.spark.errors.FailureKinds.all())
    return known | dict(jvm.statemark.kafka.conf.SinkKind.all())


def _java_exception(error: BaseException) -> object | None:
    """Return the exception of the virtual machine behind one of pyspark's or py4j's."""
    from py4j.java_gateway import JavaObject
    from py4j.protocol import Py4JJavaError

    if isinstance(error, Py4JJavaError):
        thrown: object = error.java_exception
        return thrown
    origin: object | None = getattr(error, "_origin", None)
    if origin is not None:
        return origin
    # ``StreamingQuery.exception`` hands its cause over as an argument, and keeps a text of it.
    return next((part for part in error.args if isinstance(part, JavaObject)), None)


def lookup(*, options: Mapping[str, str], keys: str) -> tuple[str, list[Row | None], list[str]]:
    """Have the driver read rows of a running query by key: those of the first keys, in one call.

    Parameters
    ----------
    options : Mapping
        Options of format ``statemark``.
    keys : str
        A JSON array with an object for each key.

    Returns
    -------
    tuple of str, list and list
        What option ``asOf`` takes to read the rest, for each of the first keys its Row or None, and
        the names of the columns of a key.

    Raises
    ------
    LiveReadError
        If the plugin is not there.
    pyspark.errors.AnalysisException, py4j.protocol.Py4JJavaError
        If the keys are not the operator's, or the query gives no answer; `told_of` tells why.
    """
    from pyspark import SparkContext
    from pyspark.serializers import CPickleSerializer

    show_jar_to_thread()
    answer = _lookups(SparkContext._jvm)
    pickled = answer(json.dumps(options), keys)
    as_of, rows, columns = CPickleSerializer().loads(pickled)  # type: ignore[no-untyped-call]
    return as_of, list(rows), list(columns)


def rules_of(df: DataFrame) -> str | None:
    """Return `SourceRules` of a table, as JSON; None on Spark Connect, or without the plugin."""
    rules: Any = _plugins("kafka.sink.compaction.SourceRules")
    frame = getattr(df, "_jdf", None)
    return None if rules is None or frame is None else str(rules.of(frame))


@lru_cache(maxsize=1)
def _lookups(_: JVMView) -> Callable[[str, str], bytes]:
    """Find the method that answers lookups, once: a call to the JVM for each part of its name."""
    found = _plugins("spark.live.LiveLookup")
    if found is None:
        raise no_plugin()
    answer: Callable[[str, str], bytes] = found.get
    return answer


def _plugins(name: str) -> JavaClass | None:
    """Return an object of the plugin's packages; None where the plugin is not there."""
    if not has_context():
        return None
    show_jar_to_thread()
    from py4j.java_gateway import JavaClass
    from pyspark import SparkContext

    found: Any = SparkContext._jvm
    for part in ("statemark", *name.split(".")):
        found = getattr(found, part)
    return found if isinstance(found, JavaClass) else None
