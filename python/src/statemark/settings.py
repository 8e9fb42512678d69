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

from statemark import units
from statemark.errors import SettingsError
from statemark.isolation import IsolationLevel

PREFIX = "spark.sql.streaming.stateStore.statemark."
ISOLATION_LEVEL = PREFIX + "isolationLevel"
MAX_UNCOMMITTED_BYTES = PREFIX + "maxUncommittedBytes"
LOCAL_DIR = PREFIX + "localDir"
LOCAL_DIR_MAX_BYTES = PREFIX + "localDirMaxBytes"
LOCAL_DIR_MAX_AGE = PREFIX + "localDirMaxAge"
READ_RETENTION_VERSIONS = PREFIX + "readRetentionVersions"
READ_RETENTION_TIME = PREFIX + "readRetentionTime"

PROVIDER_CLASS_KEY = "spark.sql.streaming.stateStore.providerClass"
PROVIDER_CLASS = "statemark.spark.StatemarkStateStoreProvider"

PLUGINS_KEY = "spark.plugins"
#: Tells the driver what each executor's local directory holds.
PLUGIN = "statemark.spark.StatemarkPlugin"

_MAX_VERSIONS = 512
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
        raise units.bad(ISOLATION_LEVEL, value, reason=error.reason, remedy=error.remedy) from None


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
        raise units.bad(key, value, reason=reason, remedy=_SIZE_REMEDY)
    text = str(value).strip().lower()
    return text if text in ("auto", "-1") else units.size(key, value, remedy=_SIZE_REMEDY)


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
    return units.size(LOCAL_DIR_MAX_BYTES, value, remedy=remedy)


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
    return units.duration(LOCAL_DIR_MAX_AGE, value, examples="7d or 12h")


def read_retention_versions(value: int | str) -> str:
    """Return how many versions that a store has left live reads may still see, at least.

    Parameters
    ----------
    value : int or str
        A number from 0, for none at all, to 512.

    Returns
    -------
    str
        The same.

    Raises
    ------
    SettingsError
        If it is none.
    """
    text = str(value).strip()
    if not re.fullmatch(r"[0-9]{1,3}", text) or int(text) > _MAX_VERSIONS:
        reason = "a store keeps some versions and not many"
        remedy = f"use a number from 0 to {_MAX_VERSIONS}"
        raise units.bad(READ_RETENTION_VERSIONS, value, reason=reason, remedy=remedy)
    return text


def read_retention_time(value: str) -> str:
    """Return for how long live reads may see the versions that a store has left.

    Parameters
    ----------
    value : str
        A duration of Spark's, as for `local_dir_max_age`.

    Returns
    -------
    str
        The same, in lower case and without surrounding blanks.

    Raises
    ------
    SettingsError
        If it is none.
    """
    return units.duration(READ_RETENTION_TIME, value, examples="30s or 5m")


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
        raise units.bad(LOCAL_DIR, value, reason=reason, remedy=remedy)
    text = os.fspath(value).strip()
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", text)
    if scheme is None:
        if not PurePath(text).is_absolute():
            reason = "the path is empty" if not text else "the path is relative"
            raise units.bad(LOCAL_DIR, value, reason=reason, remedy=remedy)
        return text
    uri = urlsplit(text)
    reason = ""
    if uri.scheme != "file":
        reason = f"stores work on a local disk, and {scheme[1]}: is not one"
    elif uri.netloc not in ("", "localhost"):
        reason = f"the URI names the host {uri.netloc!r}"
    elif not uri.path.startswith("/"):
        reason = "the path in the URI is relative"
    if reason:
        raise units.bad(LOCAL_DIR, value, reason=reason, remedy=remedy)
    return text


_CHECKS: dict[str, Callable[[str], str]] = {
    ISOLATION_LEVEL: isolation_level,
    MAX_UNCOMMITTED_BYTES: max_uncommitted_bytes,
    LOCAL_DIR: local_dir,
    LOCAL_DIR_MAX_BYTES: local_dir_max_bytes,
    LOCAL_DIR_MAX_AGE: local_dir_max_age,
    READ_RETENTION_VERSIONS: read_retention_versions,
    READ_RETENTION_TIME: read_retention_time,
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
