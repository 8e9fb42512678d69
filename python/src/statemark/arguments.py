"""Arguments of the wrong kind, refused in the call that gives them."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from numbers import Number
from pathlib import Path

from statemark import _jvm
from statemark.errors import SettingsError

#: What to pass for a truth value.
TRUTHS = "pass True or False"
_SHOWN = 60


def refuse_type(name: str, value: object, kinds: type | tuple[type, ...], *, remedy: str) -> None:
    """Refuse a value of another type; a truth value is no number.

    Parameters
    ----------
    name : str
        The argument.
    value : object
        What was given.
    kinds : type or tuple of type
        What it may be.
    remedy : str
        What to pass.

    Raises
    ------
    SettingsError
        If it is of none of these types.

    Examples
    --------
    >>> refuse_type("streaming", "false", bool, remedy="pass True or False")
    Traceback (most recent call last):
    ...
    statemark.errors.SettingsError: bad streaming 'false'
      reason: it is of type str
      remedy: pass True or False
    """
    is_flag = isinstance(value, bool) and kinds is not bool
    if isinstance(value, kinds) and not is_flag:
        return
    shown = repr(value)
    if len(shown) > _SHOWN or "\n" in shown:
        shown = f"of type {type(value).__name__}"
    reason = f"it is of type {type(value).__name__}"
    if value is None:
        reason = "it is None, as of a variable that is not set"
    problem = f"bad {name} {shown}"
    raise SettingsError(problem, reason=reason, remedy=remedy)


def refuse_no_flag(name: str, value: object) -> None:
    """Refuse what is neither True nor False; other values would count by being empty or not."""
    refuse_type(name, value, bool, remedy=TRUTHS)


def location(name: str, value: object) -> str:
    """Return a path or a URI as a text.

    Parameters
    ----------
    name : str
        The argument.
    value : object
        What was given.

    Returns
    -------
    str
        The path or URI.

    Raises
    ------
    SettingsError
        If it is neither a text nor a path of Python's.
    """
    remedy = "pass a path or a URI, as a str or a pathlib.Path"
    refuse_type(name, value, (str, os.PathLike), remedy=remedy)
    text = os.fspath(value)  # type: ignore[call-overload]
    refuse_type(name, text, str, remedy=remedy)
    return str(text)


def texts(name: str, values: object) -> dict[str, str]:
    """Return settings or options as Spark takes them.

    Parameters
    ----------
    name : str
        The argument.
    values : Mapping or None
        What was given.

    Returns
    -------
    dict of str to str
        Values by key; empty for None.

    Raises
    ------
    SettingsError
        If it is no mapping of texts to texts, numbers, truth values or paths. Values, which may be
        secret, are not shown.

    Examples
    --------
    >>> texts("options", {"kafka.linger.ms": 20, "includeHeaders": True})
    {'kafka.linger.ms': '20', 'includeHeaders': 'true'}
    """
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        problem = f"{name} is of type {type(values).__name__}"
        remedy = "pass a dict, as dict(conf.getAll()) of a SparkConf"
        raise SettingsError(problem, reason="it is no mapping", remedy=remedy)
    return {_key(name, key): _text(name, key, value) for key, value in values.items()}


def settings(name: str, values: object) -> dict[str, str]:
    """Return Spark's settings as `texts` does; refuse a key that is none of them as well."""
    found = texts(name, values)
    for key in found:
        if not key.startswith("spark."):
            problem = f"{name} names {key!r}, which is no setting of Spark's"
            reason = "their names begin with 'spark.', those of Hadoop with 'spark.hadoop.'"
            raise SettingsError(problem, reason=reason, remedy="write the whole name")
    return found


def _key(name: str, key: object) -> str:
    refuse_type(f"key of {name}", key, str, remedy="pass names as texts")
    return str(key)


def _text(name: str, key: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | Number | os.PathLike):
        return str(value)
    problem = f"{name} has no text for {key!r}"
    reason = f"its value is of type {type(value).__name__}"
    if value is None:
        reason = "its value is None, as of a variable that is not set"
    raise SettingsError(problem, reason=reason, remedy="pass a text or a number, or leave it out")


def why_unreadable(file: str | os.PathLike[str]) -> str | None:
    """Say why a file cannot be read, without opening it: a pipe can be read once.

    Parameters
    ----------
    file : str or os.PathLike
        Its path.

    Returns
    -------
    str or None
        The reason; None where there is none.
    """
    try:
        mode = Path(file).stat().st_mode
    except FileNotFoundError:
        return "nothing is at this path"
    except OSError as error:
        return str(error.strerror)
    if stat.S_ISDIR(mode):
        return "it is a directory"
    return None if os.access(file, os.R_OK) else "this user may not read it"


def refuse_other(value: object, kind: str, *, remedy: str) -> None:
    """Refuse what is no object of one of Spark's classes, classic or Connect.

    Parameters
    ----------
    value : object
        The argument.
    kind : str
        The name of the class, such as ``"DataFrame"``; pandas has one of that name as well.
    remedy : str
        What to pass.

    Raises
    ------
    SettingsError
        If it is another object.

    Examples
    --------
    >>> refuse_other(7, "DataFrame", remedy="pass a table")
    Traceback (most recent call last):
    ...
    statemark.errors.SettingsError: int given in place of a DataFrame
      reason: it is none of Spark's
      remedy: pass a table
    """
    if is_a(value, kind):
        return
    problem = f"{type(value).__name__} given in place of a {kind}"
    raise SettingsError(problem, reason="it is none of Spark's", remedy=remedy)


def refuse_stopped(spark: object) -> None:
    """Refuse a session that has ended, as what it is asked would fail with a stack.

    Parameters
    ----------
    spark : object
        The argument.

    Raises
    ------
    SettingsError
        If it is a session that is stopped.
    """
    problem = "cannot use a session that is stopped"
    if _jvm.is_stopped(spark):
        raise SettingsError(
            problem,
            reason="spark.stop() has ended its application",
            remedy="start another one: statemark.configure(SparkSession.builder).getOrCreate()",
        )
    if is_of_connect(spark) and getattr(spark, "is_stopped", False):
        raise SettingsError(
            problem,
            reason="spark.stop() has ended it on the Spark Connect server",
            remedy="connect again: SparkSession.builder.remote(…).getOrCreate()",
        )


def is_of_connect(value: object) -> bool:
    """Tell whether an object is one of Spark Connect's."""
    return type(value).__module__.startswith("pyspark.sql.connect")


def is_a(value: object, kind: str) -> bool:
    """Tell whether an object is of one of Spark's SQL classes, by the name of the class.

    Connect has classes of its own, which need not share a base with the classic ones.
    """
    return any(
        base.__name__ == kind and base.__module__.startswith("pyspark.sql.")
        for base in type(value).__mro__
    )
