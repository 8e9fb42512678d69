"""Tables of live reads: they are read when they are used, and fail with errors of this package.

A table is one of pyspark's own class, classic or Connect, made a subclass of it whose methods turn
what a read raises into a `LiveReadError`. What they return is made one as well, so that the action
at the end of a chain is covered; a view in SQL, and a table that joins one of these, are not.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from statemark import failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY = "_statemark_query"
_LOAD = "_statemark_load"
# Of pyspark.sql: what makes tables of tables, or writes them.
_KEPT = {
    *("DataFrame", "GroupedData", "DataFrameNaFunctions", "DataFrameStatFunctions"),
    *("DataFrameWriter", "DataFrameWriterV2"),
}
# Notebooks and `frame[condition]` call these.
_SPECIAL = {"__getitem__", "__repr__", "_repr_html_"}


def guarded(frame: DataFrame, *, query: str) -> DataFrame:
    """Return a table as one that fails with errors of this package.

    Parameters
    ----------
    frame : DataFrame
        A table of format ``statemark``; it is changed itself.
    query : str
        The query as errors call it.

    Returns
    -------
    DataFrame
        The table.
    """
    return cast("DataFrame", _kept(frame, query))


def unread(load: Callable[[], DataFrame], *, query: str) -> DataFrame:
    """Return a table of a classic session that is read when it is first used.

    Parameters
    ----------
    load : callable
        Reads the table; a call that fails is made again at the next use.
    query : str
        The query as errors call it.

    Returns
    -------
    DataFrame
        The table.
    """
    from pyspark.sql.classic.dataframe import DataFrame as Classic

    frame: Any = object.__new__(_unread_class(Classic))
    vars(frame).update({_QUERY: query, _LOAD: load})
    return cast("DataFrame", frame)


@functools.cache
def _unread_class(base: type) -> type:
    """Return a class of tables that lack all attributes of an object until one is asked for."""

    def of_object(self: object, name: str) -> object:
        load = vars(self).get(_LOAD)
        # Python looks for methods such as __deepcopy__ that most classes have not.
        if load is None or name.startswith("__"):
            return base.__getattr__(self, name)  # type: ignore[attr-defined]
        with failures.of_read(vars(self)[_QUERY], is_all_of_it=True):
            vars(self).update(vars(load()))
        vars(self).pop(_LOAD, None)  # another thread may have been here
        return getattr(self, name)

    return type(base.__name__, (_guarded_class(base),), {"__getattr__": of_object})


@functools.cache
def _guarded_class(base: type) -> type:
    members: dict[str, Any] = {}
    for name in dir(base):
        if name.startswith("_") and name not in _SPECIAL:
            continue
        found = inspect.getattr_static(base, name)
        if inspect.isfunction(found):
            members[name] = _guarded_method(found)
        elif isinstance(found, property | functools.cached_property):
            members[name] = _guarded_property(found, base)
    return type(base.__name__, (base,), members)


def _guarded_method(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: object, *args: object, **named: object) -> object:
        query = vars(self)[_QUERY]
        with failures.of_read(query, is_all_of_it=False):
            return _kept(method(self, *args, **named), query)

    return call


def _guarded_property(found: property | functools.cached_property[Any], base: type) -> property:
    def value(self: object) -> object:
        query = vars(self)[_QUERY]
        with failures.of_read(query, is_all_of_it=False):
            return _kept(found.__get__(self, base), query)

    return property(value, doc=found.__doc__)


def _kept(result: object, query: str) -> object:
    """Return what a table's method has returned, guarded where a read can still fail in it."""
    kind: type = type(result)
    if inspect.isgenerator(result):
        return _rows(result, query)
    is_sparks = kind.__module__.startswith("pyspark.sql.") and kind.__name__ in _KEPT
    if is_sparks and _QUERY not in vars(result):
        vars(result)[_QUERY] = query
        result.__class__ = _guarded_class(kind)
    return result


def _rows(rows: Iterator[Any], query: str) -> Iterator[Any]:
    with failures.of_read(query, is_all_of_it=False):
        yield from rows
