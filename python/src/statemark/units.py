"""What values of settings are: Spark's byte strings and durations, and others.

Each function returns a value as it is written in Spark's configuration, and refuses what the
plugin would refuse.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import PurePath
from urllib.parse import urlsplit

from statemark.errors import SettingsError
from statemark.isolation import IsolationLevel

# Spark's byte strings: binary multiples, whole numbers only.
_POWERS = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_UNITS = _POWERS | {
    unit + suffix: power for unit, power in _POWERS.items() if power for suffix in ("b", "ib")
}
# Spark's durations, each in microseconds. A number alone is in milliseconds.
_MICROSECONDS = {
    "": 1000,
    "us": 1,
    "ms": 1000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
# Python reads no longer numbers, and none of these is small enough for Java.
_AMOUNT = re.compile(r"([0-9]{1,4000})([a-z]*)", re.ASCII)
_MAX_LONG = 2**63 - 1
# What Java's `trim` takes away.
_BLANKS = "".join(map(chr, range(ord(" ") + 1)))
# What Java's `URI` does not take, besides blanks and control characters beyond ASCII.
_NO_URI = re.compile(r'[\x00-\x20\x7f-\xa0"<>\\^`{|}\[\]]|%(?![0-9A-Fa-f]{2})|#.*#')


class RefusedError(Exception):
    """A value that a setting does not take, and why."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def level(value: object) -> str:
    """Return the name of an isolation level in upper case, or raise RefusedError."""
    named = value.strip(_BLANKS) if isinstance(value, str) else value
    if isinstance(named, str) and named != named.strip():
        raise RefusedError(reason="blanks beyond ASCII are part of the name")
    try:
        return IsolationLevel.parse(named).value  # type: ignore[arg-type]
    except SettingsError as error:
        raise RefusedError(reason=error.reason) from None


def duration(value: object) -> str:
    """Return a duration above 0 in lower case, or raise RefusedError."""
    text = _text(value)
    parsed = _AMOUNT.fullmatch(text)
    if parsed is None:
        raise RefusedError(reason="a duration is a whole number and an optional unit")
    number, unit = parsed.groups()
    if unit not in _MICROSECONDS:
        units = ", ".join(filter(None, _MICROSECONDS))
        raise RefusedError(reason=f"{unit!r} is not a unit of time; the units are {units}")
    if int(number) > _MAX_LONG:
        raise RefusedError(reason=f"{number} is above {_MAX_LONG}")
    if int(number) * _MICROSECONDS[unit] < _MICROSECONDS["ms"]:
        raise RefusedError(reason="a duration has a millisecond at least")
    return text


def size(value: object, *, words: Sequence[str] = ()) -> str:
    """Return a size above 0, or one of the words, in lower case, or raise RefusedError."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise RefusedError(reason=f"a {type(value).__name__} is not a size")
    text = _text(value)
    if text in words:
        return text
    parsed = _AMOUNT.fullmatch(text)
    if parsed is None:
        raise RefusedError(reason="a size is a whole number and an optional unit")
    number, unit = parsed.groups()
    if unit not in _UNITS:
        units = ", ".join(filter(None, _UNITS))
        raise RefusedError(reason=f"{unit!r} is not a unit of size; the units are {units}")
    size_bytes = int(number) * 1024 ** _UNITS[unit]
    if not 0 < size_bytes <= _MAX_LONG:
        raise RefusedError(reason=f"{size_bytes} bytes is not within 1..{_MAX_LONG}")
    return text


def size_bytes(value: object, *, unit: str = "b") -> int | None:
    """Return how many bytes one of Spark's byte strings says.

    Parameters
    ----------
    value : object
        A byte string.
    unit : str, optional
        The unit of a number alone, such as ``m`` for MiB, as Spark's memory settings have it.

    Returns
    -------
    int or None
        Bytes; None where it is no byte string.

    Examples
    --------
    >>> from statemark import units
    >>> units.size_bytes("4g"), units.size_bytes("384", unit="m"), units.size_bytes("auto")
    (4294967296, 402653184, None)
    """
    parsed = _AMOUNT.fullmatch(_text(value))
    if parsed is None or parsed[2] not in _UNITS:
        return None
    power = _UNITS[parsed[2] or unit]
    return int(parsed[1]) * int(1024**power)


def seconds(value: object) -> float | None:
    """Return how many seconds one of Spark's durations says; None where it is no duration."""
    parsed = _AMOUNT.fullmatch(_text(value))
    if parsed is None or parsed[2] not in _MICROSECONDS:
        return None
    return int(parsed[1]) * _MICROSECONDS[parsed[2]] / 1e6


def number(text: object) -> int | None:
    """Return the number from 0 on that a text or a number is; None where it is none.

    Parameters
    ----------
    text : object
        What a file or a setting has.

    Returns
    -------
    int or None
        The number, where Java's `long` can hold it.

    Examples
    --------
    >>> from statemark import units
    >>> [units.number(one) for one in ("12", 7, "-1", "9" * 20, True, None)]
    [12, 7, None, None, None, None]
    """
    if isinstance(text, bool) or not isinstance(text, int | str):
        return None
    written = str(text)
    is_number = written.isascii() and written.isdecimal() and len(written) <= len(str(_MAX_LONG))
    found = int(written) if is_number else -1
    return found if 0 <= found <= _MAX_LONG else None


def fraction(value: object) -> float | None:
    """Return a number from 0 on, whole or not; None where it is none, or not finite."""
    try:
        found = float(_text(value))
    except ValueError:
        return None
    return found if 0 <= found < math.inf else None


def count(value: object, *, most: int) -> str:
    """Return a whole number from 0 to `most`, or raise RefusedError."""
    text = _text(value)
    if not re.fullmatch(r"[0-9]{1,4000}", text) or int(text) > most:
        raise RefusedError(reason=f"it is no whole number from 0 to {most}")
    return text


def word(one: str, other: str) -> Callable[[object], str]:
    """Return a reader that returns one of two words, or raises RefusedError."""

    def read(value: object) -> str:
        text = _text(value)
        if text not in (one, other):
            raise RefusedError(reason=f"it is neither {one} nor {other}")
        return text

    return read


truth = word("true", "false")


def version(value: object) -> str:
    """Return a version of three numbers or more, or raise RefusedError."""
    text = str(value).strip(_BLANKS)
    if not re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+[0-9A-Za-z.+-]*", text):
        raise RefusedError(reason="a version begins with three numbers, with dots between them")
    return text


def directory(value: object) -> str:
    """Return an absolute path, or a ``file:`` URI with one, or raise RefusedError.

    It is a path on every executor, so it need not exist here.
    """
    if not isinstance(value, str | os.PathLike):
        raise RefusedError(reason=f"a {type(value).__name__} is not a path")
    text = os.fspath(value).strip(_BLANKS)
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", text)
    if scheme is None:
        if not PurePath(text).is_absolute():
            raise RefusedError(reason="the path is relative" if text else "the path is empty")
        return text
    if scheme[1] != "file":
        raise RefusedError(reason=f"stores work on a local disk, and {scheme[1]}: is not one")
    bad = _NO_URI.search(text) or next(filter(str.isspace, text), None)
    if bad is not None:
        raise RefusedError(
            reason="it is no URI: what URIs do not take is written as %20 and the like"
        )
    uri = urlsplit(text)
    if uri.netloc not in ("", "localhost"):
        raise RefusedError(reason=f"the URI names the host {uri.netloc!r}")
    if not uri.path.startswith("/"):
        raise RefusedError(reason="the path in the URI is relative")
    return text


def _text(value: object) -> str:
    return str(value).strip(_BLANKS).lower()
