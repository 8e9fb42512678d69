"""The settings of the state store provider: their keys, and which values they take.

The plugin checks everything again in the Java virtual machine. Checking here as well puts the
error on the line that holds the mistake, minutes before the first batch would have found it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import PurePath
from urllib.parse import urlsplit

from statemark.errors import SettingsError
from statemark.isolation import IsolationLevel

PREFIX = "spark.sql.streaming.stateStore.statemark."
ISOLATION_LEVEL = PREFIX + "isolationLevel"
MAX_UNCOMMITTED_BYTES = PREFIX + "maxUncommittedBytes"
LOCAL_DIR = PREFIX + "localDir"
LOCAL_DIR_MAX_BYTES = PREFIX + "localDirMaxBytes"
LOCAL_DIR_MAX_AGE = PREFIX + "localDirMaxAge"

PROVIDER_CLASS_KEY = "spark.sql.streaming.stateStore.providerClass"
PROVIDER_CLASS = "statemark.spark.StatemarkStateStoreProvider"

PLUGINS_KEY = "spark.plugins"
#: Tells the driver what each executor's local directory holds.
PLUGIN = "statemark.spark.StatemarkPlugin"

# Spark's byte strings: binary multiples, whole numbers only.
_POWERS = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_UNITS = {**_POWERS, **{f"{unit}b": power for unit, power in _POWERS.items() if unit not in "b"}}
_SIZE = re.compile(r"([0-9]+)([a-z]*)", re.ASCII)
_MAX_LONG = 2**63 - 1
_SIZE_REMEDY = "use a size above 0 such as 64m or 268435456, -1 for no limit, or auto"


def isolation_level(value: IsolationLevel | str) -> str:
    """Return the isolation level as it is written in Spark's configuration.

    Parameters
    ----------
    value : IsolationLevel or str
        A level, or its name in either case.

    Returns
    -------
    str
        The name in upper case.

    Raises
    ------
    SettingsError
        If there is no such level.
    """
    try:
        return IsolationLevel.parse(value).value
    except SettingsError as error:
        raise _bad(ISOLATION_LEVEL, value, reason=error.reason, remedy=error.remedy) from None


def max_uncommitted_bytes(value: int | str) -> str:
    """Return the limit on uncommitted bytes as it is written in Spark's configuration.

    Parameters
    ----------
    value : int or str
        Bytes (> 0), a byte string of Spark's (``"64m"``), ``-1`` for no limit, or ``"auto"``.

    Returns
    -------
    str
        The same, in lower case and without surrounding blanks.

    Raises
    ------
    SettingsError
        If it is none of these, or more bytes than a signed 64-bit number holds.

    Examples
    --------
    >>> from statemark.settings import max_uncommitted_bytes
    >>> max_uncommitted_bytes("64M"), max_uncommitted_bytes(-1)
    ('64m', '-1')
    """
    key = MAX_UNCOMMITTED_BYTES
    if isinstance(value, bool) or not isinstance(value, int | str):
        reason = f"a {type(value).__name__} is not a size"
        raise _bad(key, value, reason=reason, remedy=_SIZE_REMEDY)
    text = str(value).strip().lower()
    return text if text in ("auto", "-1") else _size(key, value, remedy=_SIZE_REMEDY)


def local_dir_max_bytes(value: int | str) -> str:
    """Return how much unused stores may take of the local directory.

    Parameters
    ----------
    value : int or str
        Bytes (> 0) or a byte string of Spark's (``"50g"``).

    Returns
    -------
    str
        The same, in lower case and without surrounding blanks.

    Raises
    ------
    SettingsError
        If it is neither.
    """
    remedy = "use a size above 0 such as 50g or 53687091200"
    return _size(LOCAL_DIR_MAX_BYTES, value, remedy=remedy)


def local_dir_max_age(value: str) -> str:
    """Return how long an unused store stays in the local directory.

    Parameters
    ----------
    value : str
        A duration of Spark's: a whole number and ``s``, ``m``, ``h`` or ``d``.

    Returns
    -------
    str
        The same, in lower case and without surrounding blanks.

    Raises
    ------
    SettingsError
        If it is none.

    Examples
    --------
    >>> from statemark.settings import local_dir_max_age
    >>> local_dir_max_age("12H")
    '12h'
    """
    text = str(value).strip().lower()
    if not re.fullmatch(r"0*[1-9][0-9]*(s|m|min|h|d)", text):
        reason = "a duration is a whole number above 0 and s, m, h or d"
        raise _bad(
            LOCAL_DIR_MAX_AGE, value, reason=reason, remedy="use a duration such as 7d or 12h"
        )
    return text


def _size(key: str, value: int | str, *, remedy: str) -> str:
    text = str(value).strip().lower()
    parsed = _SIZE.fullmatch(text)
    if parsed is None:
        reason = "a size is a whole number and an optional unit"
        raise _bad(key, value, reason=reason, remedy=remedy)
    number, unit = parsed.groups()
    if unit not in _UNITS:
        reason = f"{unit!r} is not a unit of size; the units are {', '.join(filter(None, _UNITS))}"
        raise _bad(key, value, reason=reason, remedy=remedy)
    size_bytes = int(number) * 1024 ** _UNITS[unit]
    if not 0 < size_bytes <= _MAX_LONG:
        reason = f"{size_bytes} bytes is not within 1..{_MAX_LONG}"
        raise _bad(key, value, reason=reason, remedy=remedy)
    return text


def local_dir(value: str | os.PathLike[str]) -> str:
    """Return the local directory as it is written in Spark's configuration.

    Parameters
    ----------
    value : str or os.PathLike
        An absolute path, or a ``file:`` URI with one. It is a path on every executor, so it
        need not exist here.

    Returns
    -------
    str
        The same, without surrounding blanks.

    Raises
    ------
    SettingsError
        If the path is relative, or the URI names another file system or host.
    """
    remedy = "use an absolute path, or file: and an absolute path"
    if not isinstance(value, str | os.PathLike):
        reason = f"a {type(value).__name__} is not a path"
        raise _bad(LOCAL_DIR, value, reason=reason, remedy=remedy)
    text = os.fspath(value).strip()
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", text)
    if scheme is None:
        if not PurePath(text).is_absolute():
            reason = "the path is empty" if not text else "the path is relative"
            raise _bad(LOCAL_DIR, value, reason=reason, remedy=remedy)
        return text
    uri = urlsplit(text)
    if uri.scheme != "file":
        reason = f"stores work on a local disk, and {scheme[1]}: is not one"
        raise _bad(LOCAL_DIR, value, reason=reason, remedy=remedy)
    if uri.netloc not in ("", "localhost"):
        reason = f"the URI names the host {uri.netloc!r}"
        raise _bad(LOCAL_DIR, value, reason=reason, remedy=remedy)
    if not uri.path.startswith("/"):
        raise _bad(LOCAL_DIR, value, reason="the path in the URI is relative", remedy=remedy)
    return text


_CHECKS: dict[str, Callable[[str], str]] = {
    ISOLATION_LEVEL: isolation_level,
    MAX_UNCOMMITTED_BYTES: max_uncommitted_bytes,
    LOCAL_DIR: local_dir,
    LOCAL_DIR_MAX_BYTES: local_dir_max_bytes,
    LOCAL_DIR_MAX_AGE: local_dir_max_age,
}


def check(options: Mapping[str, object], *, source: str) -> None:
    """Refuse options under the provider's prefix that the provider would refuse.

    Parameters
    ----------
    options : Mapping
        Options of Spark; those outside the prefix are passed over.
    source : str
        Where they were set, for the error.

    Raises
    ------
    SettingsError
        If a key under the prefix is unknown, or its value is bad.
    """
    # Spark's keys are case-sensitive, so a prefix in the wrong case is a typing error as well.
    for key, value in options.items():
        if not key.lower().startswith(PREFIX.lower()):
            continue
        known = _CHECKS.get(key)
        if known is None:
            problem = f"unknown setting {key} = {value!r}, set in {source}"
            raise SettingsError(
                problem,
                reason="no setting of Statemark has this key",
                remedy=f"remove it, or use one of {', '.join(_CHECKS)}",
            )
        known(str(value))


def _bad(key: str, value: object, *, reason: str, remedy: str) -> SettingsError:
    return SettingsError(f"bad value {value!r} for {key}", reason=reason, remedy=remedy)
