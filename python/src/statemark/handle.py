"""One object for all reads of one operator's state, in place of the arguments that each repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statemark import lookup, offsets, queries, reads, settings, stateful

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, Row

    from statemark.isolation import IsolationLevel
    from statemark.queries import Query
    from statemark.stateful import Description


class State:
    """The state of one operator of a running query; made by `state`.

    Safe to use from any thread. It holds nothing open: each call reads the batch that is the last
    then, of whatever run of the query is running.
    """

    def __init__(self, query: Query, operator: int | str, named: dict[str, Any]) -> None:
        self._query, self._operator, self._named = query, operator, named
        self._shown = queries.called(query)

    def get(
        self,
        key: object,
        *,
        position_bound: reads.Position | None = None,
        timeout: float | str | None = None,
    ) -> Row | None:
        """Return the row of one key; arguments, result and errors are those of `statemark.get`.

        Parameters
        ----------
        key : Mapping, Row or value
            A value for each column of the operator's key.
        position_bound : Position, optional
            Waits until the state includes these source offsets.
        timeout : float or str, optional
            Seconds to wait, or a duration such as ``"10s"``; 10 seconds if unset.

        Returns
        -------
        Row or None
            ``key``, ``value``, ``partition_id``; None if there is none.

        Raises
        ------
        LiveReadError, SettingsError, MissingDependencyError
            As `statemark.get`.
        """
        return self.get_many([key], position_bound=position_bound, timeout=timeout)[0]

    def get_many(
        self,
        keys: Iterable[object],
        *,
        position_bound: reads.Position | None = None,
        timeout: float | str | None = None,
    ) -> list[Row | None]:
        """Return the rows of several keys, as `statemark.get_many` does.

        Parameters
        ----------
        keys : Iterable of Mapping, Row or value
            The keys.
        position_bound, timeout
            As for `get`.

        Returns
        -------
        list of Row or None
            In the order of `keys`.

        Raises
        ------
        LiveReadError, SettingsError, MissingDependencyError
            As `statemark.get_many`.
        """
        asked = self._asked(position_bound, timeout)
        return lookup.get_many(self._query, keys, **asked)

    def live(
        self,
        *,
        read_registered_timers: bool = False,
        flatten_collection_types: bool = True,
        position_bound: reads.Position | None = None,
        timeout: float | str | None = None,
    ) -> DataFrame:
        """Return the state as a table, as `statemark.live` does.

        Parameters
        ----------
        read_registered_timers, flatten_collection_types
            As for `statemark.live`.
        position_bound, timeout
            As for `get`.

        Returns
        -------
        DataFrame
            As of `statemark.live`.

        Raises
        ------
        LiveReadError, SettingsError, MissingDependencyError
            As `statemark.live`.
        """
        return reads.live(
            self._query,
            read_registered_timers=read_registered_timers,
            flatten_collection_types=flatten_collection_types,
            **self._asked(position_bound, timeout),
        )

    def position(self, *, timeout: float | str | None = None) -> reads.Position:
        """Return how far the query has read its sources, as `statemark.position` does.

        Parameters
        ----------
        timeout : float or str, optional
            As for `get`.

        Returns
        -------
        Position
            As of its last committed batch.

        Raises
        ------
        LiveReadError, SettingsError, MissingDependencyError
            As `statemark.position`.
        """
        return reads.position(self._query, timeout=timeout)

    def committed_offset(
        self, *, partition: int = 0, timeout: float | str | None = None
    ) -> dict[str, str | None]:
        """Return the source offsets that one store holds, as `statemark.committed_offset` does.

        Parameters
        ----------
        partition : int, optional
            The partition of the operator's state.
        timeout : float or str, optional
            As for `get`.

        Returns
        -------
        dict of str to str or None
            For the name of each source the JSON of its end offset.

        Raises
        ------
        LiveReadError, SettingsError, MissingDependencyError
            As `statemark.committed_offset`.
        """
        return offsets.committed_offset(
            self._query,
            partition=partition,
            operator=self._operator,
            store_name=self._named["store_name"],
            isolation_level=self._named.get("isolation_level"),
            timeout=timeout,
        )

    def describe(self, *, timeout: float | str | None = None) -> Description:
        """Return what the query keeps in state: operators, names of keys, stores, the last batch.

        Parameters
        ----------
        timeout : float or str, optional
            As for `get`.

        Returns
        -------
        Description
            With the operator that this object reads marked.

        Raises
        ------
        LiveReadError, SettingsError, MissingDependencyError
            As `statemark.operators`.
        """
        found = stateful.operators(self._query, timeout=timeout)
        chosen = stateful.chosen_of(self._query, self._operator, found)
        return stateful.Description(
            query=self._shown,
            position=self.position(timeout=timeout),
            operators=tuple(found),
            chosen=chosen,
        )

    def __repr__(self) -> str:
        """Return what it reads, without asking the query."""
        named = "".join(f", {name}={value!r}" for name, value in self._named.items())
        return f"State({self._shown}, operator={self._operator!r}{named})"

    def _asked(
        self, position_bound: reads.Position | None, timeout: float | str | None
    ) -> dict[str, Any]:
        # Operators of a query keep their numbers.
        self._operator = stateful.number_of(self._query, self._operator, timeout=timeout)
        return {
            **self._named,
            "operator_id": self._operator,
            "position_bound": position_bound,
            "timeout": timeout,
        }


def state(
    query: Query,
    *,
    operator: int | str = 0,
    store_name: str = "default",
    state_var_name: str | None = None,
    join_side: str | None = None,
    isolation_level: IsolationLevel | str | None = None,
) -> State:
    """Return an object that reads one operator's state of a running query.

    Nothing is read in this call: the query may have no batch yet.

    Parameters
    ----------
    query : StreamingQuery, UUID or str
        The query, its id, or its name. It runs in the application of the active session.
    operator : int or str, optional
        The stateful operator: its number, counted from the sink on, or Spark's name of it if no
        other has that name. The last of a query is 0. `State.describe` shows them.
    store_name, state_var_name, join_side, isolation_level
        The arguments of that name of `live`.

    Returns
    -------
    State
        With ``get``, ``get_many``, ``live``, ``position``, ``committed_offset`` and ``describe``.

    Raises
    ------
    SettingsError
        If `query` is no query, `operator` is neither a number nor a name, or an argument is of
        another type than its name says or a side that no join has.

    Notes
    -----
    Source: KIP-892, ``readOnly(IsolationLevel)``.

    Examples
    --------
    >>> import statemark
    >>> counts = statemark.state("counts")
    >>> counts
    State('counts', operator=0, store_name='default')
    >>> counts.get(7).value.sum  # doctest: +SKIP
    1250
    >>> print(counts.describe())  # doctest: +SKIP
    query 'counts': batch 0
    > operator 0: stateStoreSave (key key; stores default)
    """
    stateful.check_operator(operator)
    stateful.check_store(store_name=store_name, state_var_name=state_var_name, join_side=join_side)
    if isolation_level is not None:
        settings.ISOLATION_LEVEL.written(isolation_level)  # refuses what is none
    named = {
        "store_name": store_name,
        "state_var_name": state_var_name,
        "join_side": join_side,
        "isolation_level": isolation_level,
    }
    return State(query, operator, {k: v for k, v in named.items() if v is not None})
