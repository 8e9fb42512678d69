"""Keys of a running query's state, as lookups and filters take them."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import struct
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from statemark.errors import LiveReadError

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

Key = dict[str, Any]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MICRO = datetime.timedelta(microseconds=1)
_INT64 = 2**63


def key_of(value: object) -> Key:
    """Return a key as a dictionary of plain Python values.

    Parameters
    ----------
    value : Mapping or Row
        The key as somebody asks for it.

    Returns
    -------
    dict
        Structs are dictionaries, arrays lists; no Row and no scalar of NumPy's is left.

    Raises
    ------
    LiveReadError
        If it is no mapping and no Row with names, or has a value that cannot be part of a key.

    Examples
    --------
    >>> key_of({"window": {"start": 3}, "tags": ("a", "b")})
    {'window': {'start': 3}, 'tags': ['a', 'b']}
    """
    key = _native(value)
    if not isinstance(key, dict):
        raise no_key(value, reason=f"it is a {type(value).__name__}")
    return key


def to_json(keys: Sequence[Key]) -> str:
    """Return keys as the driver reads them: what JSON has no value for is an object that names it.

    Parameters
    ----------
    keys : Sequence of dict
        What `key_of` returns.

    Returns
    -------
    str
        A JSON array with an object for each.

    Examples
    --------
    >>> to_json([{"ratio": float("-inf")}, {"ratio": 0.5}])
    '[{"ratio": {"float": "-inf"}}, {"ratio": 0.5}]'
    """
    return json.dumps([_plain(key) for key in keys], allow_nan=False)


def condition(path: str, value: object, kind: DataType) -> Column:
    """Return whether a column has a value, as a filter.

    Parameters
    ----------
    path : str
        The column.
    value : object
        A part of what `key_of` returns.
    kind : DataType
        Type of the column.

    Returns
    -------
    Column
        True for the rows that have it.

    Raises
    ------
    LiveReadError
        If a struct has other fields.
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql import types as T  # noqa: N812

    if value is None:
        return F.col(path).isNull()
    if isinstance(kind, T.StructType):
        fields = _fields(value, kind)
        # Else a struct that is null would be one whose fields are.
        parts = [F.col(path).isNotNull()]
        for field in kind:
            name = field.name.replace("`", "``")
            parts.append(condition(f"{path}.`{name}`", fields[field.name], field.dataType))
        return reduce(lambda a, b: a & b, parts)
    try:
        return F.col(path) == _literal(value, kind)
    except OverflowError:  # the column cannot hold it
        return F.lit(col=False)


def no_key(key: object, *, reason: str) -> LiveReadError:
    """Return the error for what is no key of an operator.

    Parameters
    ----------
    key : object
        What somebody asks for.
    reason : str
        Why it is none.

    Returns
    -------
    LiveReadError
        The error, to be raised.
    """
    return LiveReadError(
        f"{key!r} is no key of the operator",
        reason=reason,
        remedy="pass a mapping with a value for each column of `live(query).select('key.*')`; rows"
        " of a key that has several come from live(query).where(...)",
    )


def _native(value: object) -> object:
    """Return a value without what only PySpark and NumPy know."""
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
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    if kind in ("m", "M"):  # a time of NumPy's in its own unit, which may be below Python's
        return _native(value.astype(f"{kind}8[us]").tolist())  # type: ignore[attr-defined]
    if hasattr(value, "tolist"):  # another value of NumPy's
        held = value.tolist()
        if type(held) is not type(value):  # as with a number that Python has no type for
            return _native(held)
    raise no_key(value, reason=f"a {type(value).__name__} cannot be part of a key")


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
    """Return a time without what a subclass, as that of pandas, does otherwise."""
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


def _literal(value: object, kind: DataType) -> Column:
    """Return a value as a literal that is equal to the column's where the value is."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql import types as T  # noqa: N812

    if value is None:
        return F.lit(None).cast(kind)
    if isinstance(kind, T.StructType):
        fields = _fields(value, kind)
        parts = [_literal(fields[f.name], f.dataType).alias(f.name) for f in kind]
        return F.struct(*parts)
    if isinstance(kind, T.ArrayType) and isinstance(value, list):
        return F.array(*[_literal(part, kind.elementType) for part in value]).cast(kind)
    if isinstance(kind, T.StringType) and isinstance(value, bool | int | float):
        # Spark would read each row's string as a number, and fail where it is none.
        return F.lit(json.dumps(value))
    if isinstance(kind, T.FloatType) and isinstance(value, float):
        # Python has none of its own: to be rounded as the column's were.
        return F.lit(struct.unpack("f", struct.pack("f", value))[0])
    if isinstance(kind, T.TimestampNTZType) and isinstance(value, datetime.datetime):
        return F.lit(value.replace(tzinfo=None).isoformat(" ")).cast(kind)
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        return F.lit(decimal.Decimal(value))
    return F.lit(value)


def _fields(value: object, kind: StructType) -> Key:
    """Return the fields of a struct, where it has those of its column."""
    if not isinstance(value, dict) or set(value) != set(kind.names):
        raise no_key(value, reason=f"the columns of a key are {sorted(kind.names)}")
    return value
