"""Rows of a running query by key.

On a classic session no Spark job runs for them: the driver asks the executor that holds the key. On
Spark Connect they are read as a table is, with the key as a filter.
"""

from __future__ import annotations

import datetime
import decimal
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from statemark import _jvm, reads
from statemark.errors import LiveReadError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row
    from pyspark.sql.streaming.query import StreamingQuery

    from statemark.isolation import IsolationLevel


def get(
    query: StreamingQuery | str,
    key: Mapping[str, Any],
    *,
    operator_id: int = 0,
    store_name: str = "default",
    state_var_name: str | None = None,
    join_side: str | None = None,
    isolation_level: IsolationLevel | str | None = None,
    position_bound: reads.Position | None = None,
    timeout: float | None = None,
) -> Row | None:
    """Return the row of one key of a running query.

    Parameters
    ----------
    query : StreamingQuery or str
        The query, or its id. It runs in the application of the active session.
    key : Mapping
        A value for each column of the operator's key; a struct's is a mapping again.
    operator_id, store_name, state_var_name, join_side, isolation_level, position_bound, timeout
        As `live` takes them.

    Returns
    -------
    Row or None
        The row as `live` has it: ``key``, ``value``, ``partition_id``; None if there is none.
        Lists and maps of transformWithState come whole.

    Raises
    ------
    LiveReadError
        If `key` is no key of the operator, or has several rows there, as in a stream-stream join;
        or if no such query runs, or is not as far as `position_bound`.
    SettingsError
        If another argument is bad.
    MissingDependencyError
        If pyspark is not installed.

    Notes
    -----
    Source: KIP-892, ``readOnly(IsolationLevel)``.

    Examples
    --------
    >>> import statemark
    >>> statemark.get(query, {"key": 7}).value.sum  # doctest: +SKIP
    1250
    """
    rows = get_many(
        query,
        [key],
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
    query: StreamingQuery | str,
    keys: Sequence[Mapping[str, Any]],
    *,
    operator_id: int = 0,
    store_name: str = "default",
    state_var_name: str | None = None,
    join_side: str | None = None,
    isolation_level: IsolationLevel | str | None = None,
    position_bound: reads.Position | None = None,
    timeout: float | None = None,
) -> list[Row | None]:
    """Return the rows of several keys, all as of one batch.

    Parameters
    ----------
    query : StreamingQuery or str
        The query, or its id.
    keys : Sequence of Mapping
        The keys, each as `get` takes it.
    operator_id, store_name, state_var_name, join_side, isolation_level, position_bound, timeout
        As `live` takes them.

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
    for key in keys:
        if not isinstance(key, Mapping):
            raise _no_key(key, reason=f"it is a {type(key).__name__}")
    if not keys:
        return []
    if _jvm.is_classic():
        return _jvm.lookup(options=options, keys=json.dumps([_plain(k) for k in keys]))
    return _filtered(reads.reader(options).load(), keys)


def _plain(value: object) -> object:
    """Return a value as JSON that Spark reads into the column's type."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(v) for name, v in value.items()}
    if isinstance(value, datetime.datetime):
        # As everywhere in PySpark, a time without a zone is of this process's.
        return (value if value.tzinfo else value.astimezone()).isoformat()
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return b64encode(value).decode()
    if hasattr(value, "item"):  # a scalar of NumPy's
        return _plain(value.item())
    raise _no_key(value, reason=f"a {type(value).__name__} cannot be part of a key")


def _filtered(rows: DataFrame, keys: Sequence[Mapping[str, Any]]) -> list[Row | None]:
    from pyspark.sql import functions as F  # noqa: N812

    columns = _columns(rows)
    for key in keys:
        if set(key) != columns:
            raise _no_key(dict(key), reason=f"the columns of a key are {sorted(columns)}")
    conditions = [_condition("key", key) for key in keys]
    found: dict[int, Row] = {}
    place = F.coalesce(*(F.when(c, F.lit(i)) for i, c in enumerate(conditions)))
    tagged = rows.where(reduce(lambda a, b: a | b, conditions))
    for row in tagged.select(place.alias("place"), F.struct("*").alias("row")).collect():
        if row.place in found:
            raise _no_key(dict(keys[row.place]), reason="it has several rows")
        found[row.place] = row.row
    first = {repr(_plain(key)): i for i, key in reversed(list(enumerate(keys)))}
    return [found.get(first[repr(_plain(key))]) for key in keys]


def _columns(rows: DataFrame) -> set[str]:
    from pyspark.sql.types import StructType

    key = rows.schema["key"].dataType if "key" in rows.columns else None
    return set(key.names) if isinstance(key, StructType) else set()


def _condition(path: str, value: object) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    if isinstance(value, Mapping):
        parts = [_condition(f"{path}.`{name}`", part) for name, part in value.items()]
        return reduce(lambda a, b: a & b, parts)
    return F.col(path).isNull() if value is None else F.col(path) == F.lit(value)


def _no_key(key: object, *, reason: str) -> LiveReadError:
    return LiveReadError(
        f"{key!r} is no key of the operator",
        reason=reason,
        remedy="pass a mapping with a value for each column of `live(query).select('key.*')`; rows"
        " of a key that has several come from live(query).where(...)",
    )
