"""How a user names a running query, and how long a read of it waits."""

from __future__ import annotations

import math
import uuid
from typing import TYPE_CHECKING, TypeAlias, Union
from weakref import WeakKeyDictionary

from statemark import _jvm, arguments, failures, jars, units
from statemark.errors import LiveReadError, MissingDependencyError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrameReader, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: A query, its id, or its name.
Query: TypeAlias = Union["StreamingQuery", uuid.UUID, str]

_FORMAT = "statemark"
_ids: WeakKeyDictionary[StreamingQuery, str] = WeakKeyDictionary()


def option_of(query: Query) -> dict[str, str]:
    """Return the option of format ``statemark`` that names a query.

    Parameters
    ----------
    query : StreamingQuery, UUID or str
        The query, its id, or its name.

    Returns
    -------
    dict
        ``queryId`` or ``queryName``.

    Raises
    ------
    SettingsError
        If it is something else.

    Examples
    --------
    >>> option_of("counts")
    {'queryName': 'counts'}
    """
    if isinstance(query, str):
        try:
            return {"queryId": str(uuid.UUID(query))}
        except ValueError:
            return {"queryName": query}
    if isinstance(query, uuid.UUID):
        return {"queryId": str(query)}
    if not arguments.is_a(query, "StreamingQuery"):
        problem = f"{type(query).__name__} given in place of a running query"
        raise SettingsError(
            problem,
            reason="it is no StreamingQuery",
            remedy="pass what `start()` has returned, the query's id, or its name",
        )
    if query not in _ids:
        _ids[query] = str(query.id)  # calls the virtual machine, twice
    return {"queryId": _ids[query]}


def shown(asked: dict[str, str]) -> str:
    """Return a query as errors call it.

    Parameters
    ----------
    asked : dict
        Options with that of `option_of`.

    Returns
    -------
    str
        Its id, or its name.
    """
    return asked["queryId"] if "queryId" in asked else repr(asked["queryName"])


def called(query: Query) -> str:
    """Return a query as people call it.

    Parameters
    ----------
    query : StreamingQuery, UUID or str
        The query, its id, or its name.

    Returns
    -------
    str
        Its name in quotes, if it is known here, or its id.

    Raises
    ------
    SettingsError
        If it is something else.
    """
    asked = option_of(query)
    name = None if isinstance(query, str | uuid.UUID) else query.name
    return repr(name) if name else shown(asked)


def duration(timeout: object) -> str:
    """Return a time to wait as a duration of Spark's.

    Parameters
    ----------
    timeout : float or str
        Seconds, or a duration with its unit.

    Returns
    -------
    str
        The duration.

    Raises
    ------
    SettingsError
        If it is neither, or negative.

    Examples
    --------
    >>> duration(0.5), duration("10s")
    ('500ms', '10s')
    """
    if isinstance(timeout, str):
        try:
            text = units.duration(timeout)
        except units.RefusedError as e:
            raise _no_timeout(timeout, reason=e.reason) from None
        if text.isdigit():  # milliseconds to Spark, and seconds to who knows this argument
            raise _no_timeout(timeout, reason="a duration in a text has a unit")
        return text
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise _no_timeout(timeout, reason=f"a {type(timeout).__name__} is no time")
    if not math.isfinite(timeout) or timeout < 0:
        raise _no_timeout(timeout, reason="it is negative, or no number")
    return f"{round(timeout * 1000)}ms"


def session() -> SparkSession:
    """Return the active session, classic or Connect.

    Returns
    -------
    SparkSession
        The session.

    Raises
    ------
    LiveReadError
        If there is none.
    MissingDependencyError
        If pyspark is not installed.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as e:
        problem = "pyspark is not installed"
        raise MissingDependencyError(
            problem,
            reason="a live read is a query of Spark's",
            remedy=jars.pip_install(),
        ) from e
    from pyspark.errors import PySparkRuntimeError

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        problem = "no query was read"
        raise LiveReadError(
            problem,
            reason="no session of Spark's is active in this process",
            remedy="start one, of the application in which the query runs",
        ) from None


def reader(options: dict[str, str]) -> DataFrameReader:
    """Return a reader of running queries.

    Parameters
    ----------
    options : dict
        Options of format ``statemark``.

    Returns
    -------
    DataFrameReader
        Of the active session.

    Raises
    ------
    MissingDependencyError
        If pyspark is not installed.
    """
    active = session()
    _jvm.show_jar_to_thread()
    return active.read.format(_FORMAT).options(**options)


def rows(
    query: Query,
    *,
    what: str,
    timeout: float | str | None,
    more: Mapping[str, str] | None = None,
) -> list[Row]:
    """Return what a running query tells of itself.

    Parameters
    ----------
    query : StreamingQuery, UUID or str
        The query, its id, or its name.
    what : str
        The option of that name of format ``statemark``.
    timeout : float or str or None
        How long to wait for its first batch, as `duration` takes it.
    more : Mapping, optional
        Further options.

    Returns
    -------
    list of Row
        In no particular order.

    Raises
    ------
    LiveReadError
        If no such query runs, or it has committed no batch.
    SettingsError
        If an argument is bad.
    MissingDependencyError
        If pyspark is not installed.
    """
    asked = {**option_of(query), "what": what, **(more or {})}
    if timeout is not None:
        asked["timeout"] = duration(timeout)
    told = reader(asked)
    with failures.of_read(shown(asked), is_all_of_it=True):
        return told.load().collect()


def _no_timeout(timeout: object, *, reason: str) -> SettingsError:
    return SettingsError(
        f"bad timeout {timeout!r}",
        reason=reason,
        remedy="pass seconds, 0 at least, or a duration such as '10s'",
    )
