"""Spark's byte strings and durations, as settings take them."""

from __future__ import annotations

import re

from statemark.errors import SettingsError

# Spark's byte strings: binary multiples, whole numbers only.
_POWERS = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_UNITS = {**_POWERS, **{f"{unit}b": power for unit, power in _POWERS.items() if unit not in "b"}}
_SIZE = re.compile(r"([0-9]+)([a-z]*)", re.ASCII)
_MAX_LONG = 2**63 - 1


def duration(key: str, value: str, *, examples: str) -> str:
    """Return a duration above 0 in lower case, or raise SettingsError."""
    text = str(value).strip().lower()
    if not re.fullmatch(r"0*[1-9][0-9]*(s|m|min|h|d)", text):
        reason = "a duration is a whole number above 0 and s, m, h or d"
        raise bad(key, value, reason=reason, remedy=f"use a duration such as {examples}")
    return text


def size(key: str, value: int | str, *, remedy: str) -> str:
    """Return a size above 0 in lower case, or raise SettingsError."""
    text = str(value).strip().lower()
    parsed = _SIZE.fullmatch(text)
    if parsed is None:
        reason = "a size is a whole number and an optional unit"
        raise bad(key, value, reason=reason, remedy=remedy)
    number, unit = parsed.groups()
    if unit not in _UNITS:
        reason = f"{unit!r} is not a unit of size; the units are {', '.join(filter(None, _UNITS))}"
        raise bad(key, value, reason=reason, remedy=remedy)
    size_bytes = int(number) * 1024 ** _UNITS[unit]
    if not 0 < size_bytes <= _MAX_LONG:
        reason = f"{size_bytes} bytes is not within 1..{_MAX_LONG}"
        raise bad(key, value, reason=reason, remedy=remedy)
    return text


def bad(key: str, value: object, *, reason: str, remedy: str) -> SettingsError:
    """Return the error that a setting has a value that it does not take."""
    return SettingsError(f"bad value {value!r} for {key}", reason=reason, remedy=remedy)
