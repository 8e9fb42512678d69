"""Keys of a running query's state, as lookups take them."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import re
import time
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from statemark import arguments
from statemark.errors import LiveReadError

#: Values by the names of their columns, or in the order of the columns.
Key = dict[str, Any] | list[Any]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MICRO = datetime.timedelta(microseconds=1)


def keys_of(values: object) -> list[Key]:
    """Return keys as `key_of` returns each.

    Parameters
    ----------
    values : Iterable
        The keys as the caller gives them.

    Returns
    -------
    list of dict or list
        In the same order.

    Raises
    ------
    LiveReadError
        If they are one key, or a value of them cannot be part of a key.
    """
    # Its parts would be taken for keys.
    is_one = isinstance(values, Mapping | str | bytes | bytearray | memoryview)
    is_one = is_one or hasattr(values, "__fields__") or arguments.is_a(values, "Column")
    # A table of pandas hands out the names of its columns.
    is_table = hasattr(values, "columns") and not arguments.is_a(values, "DataFrame")
    if is_one or is_table or not isinstance(values, Iterable):
        of = type(values).__name__
        problem = f"a {of} is no list of keys" if is_table else f"{values!r} is no list of keys"
        raise LiveReadError(
            problem,
            reason=f"it is of type {of}",
            remedy="pass a list, such as table.to_dict('records')"
            if is_table
            else "pass a list, or call `get` for one key",
        )
    return [key_of(value) for value in values]


def key_of(value: object) -> Key:
    """Return a key in plain Python values.

    Parameters
    ----------
    value : Mapping, Row or value
        The key as the caller gives it.

    Returns
    -------
    dict or list
        A list with the one value where it is no mapping. Structs are dictionaries, arrays lists; no
        Row and no scalar of NumPy's is left.

    Raises
    ------
    LiveReadError
        If it has a value that cannot be part of a key.

    Examples
    --------
    >>> key_of({"window": {"start": 3}, "tags": ("a", "b")})
    {'window': {'start': 3}, 'tags': ['a', 'b']}
    >>> key_of(7)
    [7]
    """
    key = _native(value)
    return key if isinstance(key, dict) else [key]


def to_json(keys: Sequence[Key]) -> str:
    """Return keys as the driver reads them: what JSON has no value for is an object that names it.

    Parameters
    ----------
    keys : Sequence of dict or list
        What `key_of` returns.

    Returns
    -------
    str
        A JSON array with an object for each, or an array of its values.

    Examples
    --------
    >>> to_json([{"ratio": float("-inf")}, {"ratio": 0.5}])
    '[{"ratio": {"float": "-inf"}}, {"ratio": 0.5}]'
    """
    return json.dumps([_plain(key) for key in keys], allow_nan=False)


# Names that Spark gives to a column of a key which is computed: by a grouping, by a window, by a
# typed `groupByKey`, in a join. Another is the user's own, unless it is the text of an expression.
_MADE_UP = re.compile(r"_groupingexpression.*|(session_)?window|value|field\d+|.*\W.*", re.DOTALL)


def misnamed(keys: Sequence[Key], columns: Sequence[str]) -> str | None:
    """Return what to say of keys of one column that give it another name than the user's own.

    Parameters
    ----------
    keys : Sequence of dict or list
        What `key_of` returns.
    columns : Sequence of str
        The names of the columns of a key.

    Returns
    -------
    str or None
        None where there is nothing to say, as where Spark has made up the column's name.

    Examples
    --------
    >>> misnamed([{"kye": 7}], ["key"])
    "a key names 'kye', and the only column of a key is 'key': the value was taken for that one"
    >>> misnamed([{"key": 7}], ["_groupingexpression"])
    """
    if len(columns) != 1 or _MADE_UP.fullmatch(columns[0]):
        return None
    for key in keys:
        if not isinstance(key, dict) or len(key) != 1:
            continue
        (name,) = key
        if name.lower() != columns[0].lower():  # as Spark compares them, unless it is told to
            return (
                f"a key names {name!r}, and the only column of a key is {columns[0]!r}: the value"
                " was taken for that one"
            )
    return None


def _native(value: object) -> object:
    """Return a value in types of Python's own, without those of PySpark and NumPy."""
    if value is None or isinstance(value, bool | int | float | str | decimal.Decimal | bytes):
        return value
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta):
        if value != value:  # the null of pandas among times
            return None
        return _plain_time(value) if isinstance(value, datetime.datetime) else value
    if isinstance(value, Mapping):
        return {str(name): _native(part) for name, part in value.items()}
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, tuple) and hasattr(value, "__fields__"):  # a Row with names
        return {name: _native(part) for name, part in zip(value.__fields__, value, strict=True)}
    if isinstance(value, list | tuple):
        return [_native(part) for part in value]
    if arguments.is_a(value, "Column"):  # which has every attribute that it is asked for
        raise _no_key(value, reason="a Column is no value: it has one for each row")
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    if kind in ("m", "M"):  # a time of NumPy's in its own unit, which may be below Python's
        return _native(value.astype(f"{kind}8[us]").tolist())  # type: ignore[attr-defined]
    if hasattr(value, "tolist"):  # another value of NumPy's
        held = value.tolist()
        if type(held) is not type(value):  # as with a number that Python has no type for
            return _native(held)
    raise _no_key(value, reason=f"a value of type {type(value).__name__} cannot be part of a key")


def _plain(value: object) -> object:
    """Return a value as JSON that the driver reads into the column's type."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(float(value))}
    if isinstance(value, decimal.Decimal):
        if value.is_nan():
            return {"float": "nan"}
        return str(value) if value.is_finite() else {"float": str(float(value))}
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode()}
    if isinstance(value, datetime.datetime):
        wall = value.replace(tzinfo=datetime.timezone.utc)
        return {"instant": _instant(value), "wall": (wall - _EPOCH) // _MICRO}
    if isinstance(value, datetime.timedelta):
        return {"micros": value // _MICRO}
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return value


def _plain_time(value: datetime.datetime) -> datetime.datetime:
    """Return a time of Python's own class in place of a subclass such as that of pandas."""
    return datetime.datetime(
        *(value.year, value.month, value.day, value.hour, value.minute, value.second),
        microsecond=value.microsecond,
        tzinfo=value.tzinfo,
        fold=value.fold,
    )


def _instant(value: datetime.datetime) -> int:
    """Return microseconds since 1970. A time without a zone is of this process's, as in PySpark."""
    try:
        zoned = value if value.tzinfo else value.astimezone()
    except (ValueError, OverflowError):
        # Python tells a zone by the days around, of which the first and the last year lack some.
        return round(time.mktime(value.timetuple())) * 10**6 + value.microsecond
    return (zoned - _EPOCH) // _MICRO


def _no_key(key: object, *, reason: str) -> LiveReadError:
    """Return the error for a value that is no key of any operator."""
    return LiveReadError(
        f"{key!r} is no key of the operator",
        reason=reason,
        remedy="pass a mapping with a value for each column that `operators(query)` names, or the "
        "value of the only one",
    )
