"""Reads of a query while it runs, as tables: state, and the source offsets that it includes.

They go through Spark's format ``statemark``, so that they work on a classic session and on Spark
Connect, where any session of the same server can read the query.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from statemark import settings
from statemark.errors import MissingDependencyError, SettingsError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from statemark.isolation import IsolationLevel

_FORMAT = "statemark"
_ids: WeakKeyDictionary[StreamingQuery, str] = WeakKeyDictionary()


@dataclass(frozen=True)
class Position:
    """How far a query has read its sources, as of its last committed batch.

    Attributes
    ----------
    batch_id : int
        The batch.
    offsets : tuple of str or None
        The end offset of each source as JSON, in the order of the query's sources; None for a
        source that has given nothing yet.
    """

    batch_id: int
    offsets: tuple[str | None, ...]


def live(
    query: StreamingQuery | str,
    *,
    operator_id: int = 0,
    store_name: str = "default",
    state_var_name: str | None = None,
    join_side: str | None = None,
    isolation_level: IsolationLevel | str | None = None,
    position_bound: Position | None = None,
    timeout: float | None = None,
) -> DataFrame:
    """Return the state of a running query as a table.

    Parameters
    ----------
    query : StreamingQuery or str
        The query, or its id. It runs in the application of the active session.
    operator_id : int, optional
        The stateful operator, numbered from the source on.
    store_name : str, optional
        A store of the operator's; joins have several.
    state_var_name : str, optional
        The state variable of a transformWithState operator.
    join_side : str, optional
        ``"left"`` or ``"right"``: the rows that a stream-stream join keeps of that side.
    isolation_level : IsolationLevel or str, optional
        READ_COMMITTED shows the last committed batch, the same in all partitions. READ_UNCOMMITTED
        also what the running batch has staged, which may yet be rolled back. Unset: the setting
        ``isolationLevel``.
    position_bound : Position, optional
        Waits until the state includes these source offsets.
    timeout : float, optional
        Seconds to wait for `position_bound`, or for the first batch; 10 if unset. A lookup also
        waits no longer than that, all in all, for a task that reads a store that is open nowhere.

    Returns
    -------
    DataFrame
        Columns ``key`` and ``value`` (structs) and ``partition_id``, or those that Spark's format
        ``statestore`` has for the operator. It reads the batch that is the last when it is first
        planned; call `live` again, or query a temporary view over it, for the batch after.

    Raises
    ------
    SettingsError
        If an argument is bad.
    MissingDependencyError
        If pyspark is not installed.

    Notes
    -----
    Source: KIP-892, ``readOnly(IsolationLevel)``. Errors of Spark's come from the action: no such
    query runs, or its position does not reach the bound. `error_of` tells their kind.

    Examples
    --------
    >>> import statemark
    >>> statemark.live(query).where("value.sum > 1000").count()  # doctest: +SKIP
    1
    """
    return reader(
        options(
            query,
            operator_id=operator_id,
            store_name=store_name,
            state_var_name=state_var_name,
            join_side=join_side,
            isolation_level=isolation_level,
            position_bound=position_bound,
            timeout=timeout,
        )
    ).load()


def position(query: StreamingQuery | str) -> Position:
    """Return how far a running query has read its sources, as of its last committed batch.

    Parameters
    ----------
    query : StreamingQuery or str
        The query, or its id.

    Returns
    -------
    Position
        What `live` takes as `position_bound`.

    Raises
    ------
    MissingDependencyError
        If pyspark is not installed.

    Examples
    --------
    >>> import statemark
    >>> statemark.position(query).batch_id  # doctest: +SKIP
    0
    """
    asked = {"queryId": query_id(query), "what": "position"}
    rows: list[Any] = reader(asked).load().orderBy("source").collect()
    return Position(batch_id=rows[0].batch_id, offsets=tuple(row.offset for row in rows))


def options(
    query: StreamingQuery | str,
    *,
    operator_id: int,
    store_name: str,
    state_var_name: str | None,
    join_side: str | None,
    isolation_level: IsolationLevel | str | None,
    position_bound: Position | None,
    timeout: float | None,
) -> dict[str, str]:
    """Return the options of a read for format ``statemark``; arguments are those of `live`."""
    named: dict[str, str | None] = {
        "queryId": query_id(query),
        "operatorId": str(operator_id),
        "storeName": store_name,
        "stateVarName": state_var_name,
        "joinSide": join_side,
    }
    if isolation_level is not None:
        named["isolationLevel"] = settings.ISOLATION_LEVEL.written(isolation_level)
    if position_bound is not None:
        named["positionBound"] = json.dumps(list(position_bound.offsets))
    if timeout is not None:
        if timeout < 0:
            problem = f"bad timeout {timeout!r}"
            raise SettingsError(problem, reason="it is negative", remedy="pass seconds, 0 at least")
        named["timeout"] = f"{round(timeout * 1000)}ms"
    return {name: value for name, value in named.items() if value is not None}


def query_id(query: StreamingQuery | str) -> str:
    """Return the id of a query that is given as an object, or as its id.

    Parameters
    ----------
    query : StreamingQuery or str
        The query.

    Returns
    -------
    str
        Its id.
    """
    if isinstance(query, str):
        return query
    if query not in _ids:
        _ids[query] = str(query.id)  # calls the virtual machine, twice
    return _ids[query]


def session() -> SparkSession:
    """Return the active session, classic or Connect.

    Returns
    -------
    SparkSession
        The session.

    Raises
    ------
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
            remedy="pip install 'statemark[pyspark]'",
        ) from e
    return SparkSession.active()


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
    return session().read.format(_FORMAT).options(**options)
