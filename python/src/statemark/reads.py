"""Reads of a query while it runs, as tables: state, and the source offsets that it includes.

They go through Spark's format ``statemark``, so that they work on a classic session and on Spark
Connect, where any session of the same server can read the query.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING

from statemark import _jvm, arguments, failures, frames, queries, settings, stateful
from statemark.errors import PositionBoundError, SettingsError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from statemark.isolation import IsolationLevel
    from statemark.queries import Query


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
    sources : tuple of str
        The name of each source, in the same order: that which the query's code gives it, or what
        Spark calls it in the query's progress, such as ``KafkaV2[Subscribe[orders]]``. They are the
        same after a restart.

    Examples
    --------
    >>> from statemark import Position
    >>> there = Position(4, ('{"orders":{"0":7}}',), ("KafkaV2[Subscribe[orders]]",))
    >>> dict(zip(there.sources, there.offsets))
    {'KafkaV2[Subscribe[orders]]': '{"orders":{"0":7}}'}
    """

    batch_id: int
    offsets: tuple[str | None, ...]
    sources: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        """Refuse offsets that are no offsets, which no batch would ever include."""
        remedy = "pass offsets as statemark.position(query) returns them"
        arguments.refuse_type("batch_id", self.batch_id, Integral, remedy=remedy)
        arguments.refuse_type("offsets", self.offsets, (tuple, list), remedy=remedy)
        for offset in self.offsets:
            if offset is not None:
                arguments.refuse_type("offset", offset, str, remedy=remedy)
        object.__setattr__(self, "offsets", tuple(self.offsets))


def live(
    query: Query,
    *,
    operator: int | str | None = None,
    operator_id: int = 0,
    store_name: str = "default",
    state_var_name: str | None = None,
    join_side: str | None = None,
    read_registered_timers: bool = False,
    flatten_collection_types: bool = True,
    isolation_level: IsolationLevel | str | None = None,
    position_bound: Position | None = None,
    timeout: float | str | None = None,
) -> DataFrame:
    """Return the state of a running query as a table.

    Parameters
    ----------
    query : StreamingQuery, UUID or str
        The query, its id, or its name. It runs in the application of the active session.
    operator : int or str, optional
        The stateful operator: its number, counted from the sink on, or Spark's name of it if no
        other has that name. `operators` shows them. Unset: `operator_id`.
    operator_id : int, optional
        The number of the stateful operator. The last of a query is 0.
    store_name : str, optional
        A store of the operator's; joins have several.
    state_var_name : str, optional
        The state variable of a transformWithState operator.
    join_side : str, optional
        ``"left"`` or ``"right"``: the rows that a stream-stream join keeps of that side.
    read_registered_timers : bool, optional
        The timers of a transformWithState operator, in place of a state variable.
    flatten_collection_types : bool, optional
        Whether a list or map of transformWithState has a row for each of its items, or one for each
        key.
    isolation_level : IsolationLevel or str, optional
        READ_COMMITTED shows the last committed batch, the same in all partitions. READ_UNCOMMITTED
        also what the running batch has staged, which may yet be rolled back. Unset: the setting
        ``isolationLevel``.
    position_bound : Position, optional
        Waits until the state includes these source offsets.
    timeout : float or str, optional
        Seconds to wait for `position_bound`, or for the first batch, or a duration such as
        ``"10s"``; 10 seconds if unset. A lookup also waits no longer than that, all in all, for a
        task that reads a store that is open nowhere.

    Returns
    -------
    DataFrame
        It waits when it is used, and not in this call. Columns ``key`` and ``value`` (structs) and
        ``partition_id``, or those that Spark's format ``statestore`` has for the operator. An
        action reads the batch that is the last when it begins. Only ``collect``, ``toPandas``,
        ``toLocalIterator`` and ``rdd`` of a classic session's table read the batch of the first of
        them again: call `live` again, or query a temporary view over it, for the batch after.

    Raises
    ------
    LiveReadError
        If no such query runs, or it has no such state; also from an action on the table, which can
        come too late or has to wait for too long. Its class says the kind, such as
        `VersionGoneError`, and `is_retryable` whether to call `live` again. A Spark Connect client
        gets it from the action only.
    SettingsError
        If an argument is bad.
    MissingDependencyError
        If pyspark is not installed.

    Notes
    -----
    Source: Kafka 4.4, ``readOnly(IsolationLevel)``. Errors that have nothing to do with the read,
    as of a column that is not there, are Spark's. So are those of a SQL query over a view of the
    table: `error_of` tells their kind.

    Examples
    --------
    >>> import statemark
    >>> statemark.live(query).where("value.sum > 1000").count()  # doctest: +SKIP
    1
    """
    asked = options(
        query,
        operator=operator,
        operator_id=operator_id,
        store_name=store_name,
        state_var_name=state_var_name,
        join_side=join_side,
        isolation_level=isolation_level,
        position_bound=position_bound,
        timeout=timeout,
    )
    arguments.refuse_no_flag("read_registered_timers", read_registered_timers)
    arguments.refuse_no_flag("flatten_collection_types", flatten_collection_types)
    # Spark's format takes neither beside an option that it has no use for.
    if read_registered_timers:
        asked["readRegisteredTimers"] = "true"
    if not flatten_collection_types:
        asked["flattenCollectionTypes"] = "false"
    named = queries.shown(asked)
    if not _jvm.is_classic():
        return frames.guarded(queries.reader(asked).load(), query=named)
    # A classic session finds the columns in the call, and needs a batch for them.
    at_once = {name: value for name, value in asked.items() if name != "positionBound"}
    try:
        with failures.of_read(named, is_all_of_it=True):
            table = queries.reader({**at_once, "timeout": "0ms"}).load()
            if position_bound is not None:
                table = queries.reader(asked).load()
    except PositionBoundError:
        return frames.unread(queries.reader(asked).load, query=named)
    return frames.guarded(table, query=named)


def position(query: Query, *, timeout: float | str | None = None) -> Position:
    """Return how far a running query has read its sources, as of its last committed batch.

    Parameters
    ----------
    query : StreamingQuery, UUID or str
        The query, its id, or its name.
    timeout : float or str, optional
        Seconds to wait for the first batch, or a duration such as ``"10s"``; 10 seconds if unset.

    Returns
    -------
    Position
        What `live` takes as `position_bound`.

    Raises
    ------
    LiveReadError
        If no such query runs, or it has committed no batch.
    SettingsError
        If an argument is bad.
    MissingDependencyError
        If pyspark is not installed.

    Examples
    --------
    >>> import statemark
    >>> statemark.position(query).batch_id  # doctest: +SKIP
    0
    """
    rows = queries.rows(query, what="position", timeout=timeout)
    by_source = sorted(rows, key=lambda row: int(row.source))
    return Position(
        batch_id=rows[0].batch_id,
        offsets=tuple(row.offset for row in by_source),
        sources=tuple(row.name for row in by_source),
    )


def options(
    query: Query,
    *,
    operator: int | str | None,
    operator_id: int,
    store_name: str,
    state_var_name: str | None,
    join_side: str | None,
    isolation_level: IsolationLevel | str | None,
    position_bound: Position | None,
    timeout: float | str | None,
) -> dict[str, str]:
    """Return the options of a read for format ``statemark``; arguments are those of `live`."""
    if operator is not None:
        if operator_id != 0:
            problem = f"operator {operator!r} and operator_id {operator_id!r} were given"
            raise SettingsError(
                problem,
                reason="both name the stateful operator to read",
                remedy="leave operator_id away",
            )
        operator_id = stateful.number_of(query, operator, timeout=timeout)
    stateful.check_store(
        operator_id=operator_id,
        store_name=store_name,
        state_var_name=state_var_name,
        join_side=join_side,
    )
    named: dict[str, str | None] = {
        **queries.option_of(query),
        "operatorId": str(operator_id),
        "storeName": store_name,
        "stateVarName": state_var_name,
        "joinSide": join_side,
    }
    if isolation_level is not None:
        named["isolationLevel"] = settings.ISOLATION_LEVEL.written(isolation_level)
    if position_bound is not None:
        if not isinstance(position_bound, Position):
            problem = f"bad position_bound {position_bound!r}"
            raise SettingsError(
                problem,
                reason=f"it is a {type(position_bound).__name__}, and no Position",
                remedy="pass what statemark.position(query) has returned",
            )
        named["positionBound"] = json.dumps(list(position_bound.offsets))
    if timeout is not None:
        named["timeout"] = queries.duration(timeout)
    return {name: value for name, value in named.items() if value is not None}
