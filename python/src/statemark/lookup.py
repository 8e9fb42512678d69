"""Rows of a running query by key.

No Spark job runs for them: the driver asks the executor that holds a key. Where no executor has its
store open, as when one has died between two batches, a task reads it. A classic session makes one
call to the virtual machine; a Spark Connect client reads a table that has the rows. Here a key
is only written down. Its value in the types of the operator's columns is the driver's to say.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from statemark import _jvm, failures, lookup_keys, queries, reads
from statemark.errors import StoreMovedError, VersionGoneError, ViewClosedError

if TYPE_CHECKING:
    from pyspark.sql import Row

    from statemark.isolation import IsolationLevel
    from statemark.queries import Query

_TRIES = 5


def get(
    query: Query,
    key: object,
    *,
    operator: int | str | None = None,
    operator_id: int = 0,
    store_name: str = "default",
    state_var_name: str | None = None,
    join_side: str | None = None,
    isolation_level: IsolationLevel | str | None = None,
    position_bound: reads.Position | None = None,
    timeout: float | str | None = None,
) -> Row | None:
    """Return the row of one key of a running query.

    Parameters
    ----------
    query : StreamingQuery, UUID or str
        The query, its id, or its name. It runs in the application of the active session.
    key : Mapping, Row or value
        A value for each column of the operator's key; a struct's is a mapping or a Row again, an
        array's a list. Where the key has one column, the value alone is enough, and in a mapping
        the column may have any name: Spark makes up the name of a column that is computed. Another
        name than the user's own is worth a warning. Where it has several, a list or tuple has their
        values in order.
    operator, operator_id, store_name, state_var_name, join_side
        The arguments of that name of `live`. For an operator's name the query is asked once more.
    isolation_level, position_bound, timeout
        The arguments of that name of `live`.

    Returns
    -------
    Row or None
        The row as `live` has it: ``key``, ``value``, ``partition_id``; None if there is none.
        Lists and maps of transformWithState come whole.

    Raises
    ------
    LiveReadError
        If `key` has not the columns of the operator's key, or values of other types; if it has
        several rows, as in a stream-stream join; if no such query runs, or it is not as far as
        `position_bound`. On a classic session its class says the kind, such as `VersionGoneError`.
    SettingsError
        If another argument is bad.
    MissingDependencyError
        If pyspark is not installed.

    Notes
    -----
    Source: KIP-892, ``readOnly(IsolationLevel)``.

    A key is found where a filter with ``==``, or ``IS NULL`` for None, finds it: 0.0 and -0.0 are
    one, and NaN is NaN. A float is rounded to a column of type FLOAT. What a column cannot hold is
    in no key: 300 in a TINYINT, 1.005 in a DECIMAL(10, 2); but 7.5 for a BIGINT is refused, as a
    value of another type is. A text may stand for a number or a time, and a number for a text:
    ``"7"`` finds 7. A datetime for a DATE or TIMESTAMP_NTZ is what its clock shows.

    Where the operator is no aggregation, a NaN, or a key with more than six zeros of type FLOAT or
    DOUBLE, is found by reading a whole partition. A key that has a map cannot be looked up, nor
    one with an interval of months, of which PySpark makes no Row: filter `live`.

    Examples
    --------
    >>> import statemark
    >>> statemark.get(query, {"key": 7}).value.sum  # doctest: +SKIP
    1250
    >>> statemark.get(query, 7).value.sum  # doctest: +SKIP
    1250
    """
    rows = get_many(
        query,
        [key],
        operator=operator,
        operator_id=operator_id,
        store_name=store_name,
        state_var_name=state_var_name,
        join_side=join_side,
        isolation_level=isolation_level,
        position_bound=position_bound,
        timeout=timeout,
    )
    return rows[0]


def get_many(
    query: Query,
    keys: Iterable[object],
    *,
    operator: int | str | None = None,
    operator_id: int = 0,
    store_name: str = "default",
    state_var_name: str | None = None,
    join_side: str | None = None,
    isolation_level: IsolationLevel | str | None = None,
    position_bound: reads.Position | None = None,
    timeout: float | str | None = None,
) -> list[Row | None]:
    """Return the rows of several keys.

    At READ_COMMITTED all are as of one batch. At READ_UNCOMMITTED they have what the running batch
    has staged at the moment that each partition, and each page of long rows, is read.

    Parameters
    ----------
    query : StreamingQuery, UUID or str
        The query, its id, or its name.
    keys : Iterable of Mapping, Row or value
        The keys, each as `get` takes it.
    operator, operator_id, store_name, state_var_name, join_side
        As for `get`.
    isolation_level, position_bound, timeout
        As for `get`.

    Returns
    -------
    list of Row or None
        For each key what `get` returns, in the order of `keys`.

    Raises
    ------
    LiveReadError, SettingsError, MissingDependencyError
        As `get`.

    Examples
    --------
    >>> import statemark
    >>> rows = statemark.get_many(query, [{"key": 7}, {"key": -1}])  # doctest: +SKIP
    >>> [row and row.value.sum for row in rows]  # doctest: +SKIP
    [1250, None]
    """
    options = reads.options(
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
    if state_var_name is not None:
        options["flattenCollectionTypes"] = "false"
    asked = lookup_keys.keys_of(keys)
    if not asked:
        return []
    named = queries.shown(options)
    read = _page if _jvm.is_classic() else _page_of_table
    return _all_pages(read, options=options, asked=asked, named=named, tries=_TRIES)


#: Reads rows of the first keys: what option ``asOf`` takes for the rest, the rows, and the names of
#: the columns of a key.
_Page = Callable[
    [dict[str, str], list[lookup_keys.Key]], tuple[str, "list[Row | None]", "list[str]"]
]


def _all_pages(
    read: _Page, *, options: dict[str, str], asked: list[lookup_keys.Key], named: str, tries: int
) -> list[Row | None]:
    """Return the rows of all keys, at READ_COMMITTED as of one batch.

    A page has the rows of the first keys that it is asked for. The one after it asks for twice as
    many keys as this one had: long rows are not read for pages that have no room for them.
    """
    rows: list[Row | None] = []
    as_of: dict[str, str] = {}
    count = len(asked)
    try:
        while len(rows) < len(asked):
            with failures.of_read(named, is_all_of_it=True):
                token, page, columns = read(
                    {**options, **as_of}, asked[len(rows) : len(rows) + count]
                )
            if not rows:
                _warn_of_names(asked, columns)
            as_of = {"asOf": token}
            rows += page
            count = 2 * len(page)
    except (VersionGoneError, StoreMovedError, ViewClosedError):
        # The batch of the first page is gone: the next try reads the newest one.
        if not rows or tries == 1:
            raise
    else:
        return rows
    return _all_pages(read, options=options, asked=asked, named=named, tries=tries - 1)


def _warn_of_names(asked: list[lookup_keys.Key], columns: list[str]) -> None:
    """Warn of a key whose one name is not that of the column; Python shows it once for a line."""
    said = lookup_keys.misnamed(asked, columns)
    if said is None:
        return
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("statemark."):
        level, frame = level + 1, frame.f_back
    warnings.warn(said, stacklevel=level)


def _page(
    options: dict[str, str], keys: list[lookup_keys.Key]
) -> tuple[str, list[Row | None], list[str]]:
    return _jvm.lookup(options=options, keys=lookup_keys.to_json(keys))


def _page_of_table(
    options: dict[str, str], keys: list[lookup_keys.Key]
) -> tuple[str, list[Row | None], list[str]]:
    """Read a page as a Spark Connect client does."""
    asked = {**options, "what": "lookup", "keys": lookup_keys.to_json(keys)}
    found = sorted(queries.reader(asked).load().collect(), key=lambda row: int(row.place))
    rows = [row.row for row in found]
    # The columns are another request to the server, unless a row has them.
    columns: list[str] = list(next((row.key.__fields__ for row in rows if row is not None), ()))
    return found[0].as_of, rows, columns
