"""Tables of live reads: they are read when they are used, and fail with errors of this package.

A table is one of pyspark's own class, classic or Connect, made a subclass of it whose methods turn
what a read raises into an error of its kind. What they return is made one as well, so that the
action at the end of a chain is covered; a view in SQL, a table that joins one of these, and what is
of neither class, as an RDD, are not.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from statemark import failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY = "_statemark_query"
_LOAD = "_statemark_load"
_LOCK = "_statemark_lock"
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
    vars(frame).update({_QUERY: query, _LOAD: load, _LOCK: threading.RLock()})
    return cast("DataFrame", frame)


@functools.cache
def _unread_class(base: type) -> type:
    """Return a class of tables that lack all attributes of an object until one is asked for."""

    def of_object(self: object, name: str) -> object:
        held = vars(self)
        # Python looks for methods such as __deepcopy__ that most classes have not.
        if name.startswith("__") and _LOAD in held:
            raise AttributeError(name)
        with held[_LOCK]:
            if name in held:  # another thread was here
                return held[name]
            load = held.get(_LOAD)
            if load is not None:
                with failures.of_read(held[_QUERY], is_all_of_it=True):
                    found = vars(load())
                # What a method has set before it asked for the rest, as cache does, stays.
                held.update({key: value for key, value in found.items() if key not in held})
                del held[_LOAD]
        if load is not None:
            return getattr(self, name)
        return base.__getattr__(self, name)  # type: ignore[attr-defined]

    return _made(_guarded_class(base), {"__getattr__": of_object})


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
    return _made(base, members)


def _made(base: type, members: dict[str, Any]) -> type:
    """Return a subclass that says it is of the module of its base, by which a client is known."""
    named = {"__module__": base.__module__, "__qualname__": base.__qualname__}
    return type(base.__name__, (base,), {**members, **named})


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
