"""Arguments of `statemark.latest`, and the table that it is given."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING

from statemark import arguments
from statemark.errors import MissingDependencyError, SettingsError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Spark's name of the function that finds winners.
FUNCTION = "statemark_latest"
_STRATEGIES = ("offset", "timestamp", "header")
#: Columns of Spark's Kafka source that say where and when a record came, and their types.
_PLACE = {"partition": "int", "offset": "bigint", "timestamp": "timestamp"}
_HEADERS = "array<struct<key:string,value:binary>>"


def keys_of(key: object) -> list[str]:
    """Return the names of key columns.

    Raises
    ------
    SettingsError
        If it is neither a name nor a list of names, or empty.
    """
    names: list[object] = [key]
    if isinstance(key, Sequence) and not isinstance(key, str | bytes):
        names = list(key)
    for name in names:
        arguments.refuse_type(
            "key", name, str, remedy="pass the name of a column, or a list of names"
        )
    if not names:
        problem = "key is empty"
        raise SettingsError(problem, reason="no column is named", remedy="name one or more")
    return [str(name) for name in names]


def refuse_unfit(strategy: object, header: object, observed_as: object) -> None:
    """Refuse arguments that say no rule.

    Raises
    ------
    SettingsError
        If they do not.
    """
    arguments.refuse_type("observed_as", observed_as, str, remedy="pass a name")
    if header is not None:
        arguments.refuse_type("header", header, str, remedy="pass the header's key as a text")
    if strategy not in _STRATEGIES:
        problem = f"strategy={strategy!r} is refused"
        raise SettingsError(
            problem,
            reason="there is no such strategy",
            remedy=f"use one of {', '.join(map(repr, _STRATEGIES))}",
        )
    if (strategy == "header") != bool(header):
        problem = f"header={header!r} is refused with strategy={strategy!r}"
        raise SettingsError(
            problem,
            reason="a header is what strategy 'header', and no other, reads the version from",
            remedy="give header=, the header's key, and strategy='header', or neither",
        )


def refuse_unfit_missing(missing: object, strategy: str) -> None:
    """Refuse what says not what becomes of a record without a header.

    Raises
    ------
    SettingsError
        If it does not, or no header is read.
    """
    if missing not in ("oldest", "refuse"):
        problem = f"missing={missing!r} is refused"
        reason = "a record without the header is older than all others, or ends the query"
        raise SettingsError(problem, reason=reason, remedy="use 'oldest' or 'refuse'")
    if missing == "refuse" and strategy != "header":
        problem = f"missing='refuse' is refused with strategy={strategy!r}"
        reason = "every record has what that strategy reads"
        raise SettingsError(problem, reason=reason, remedy="leave missing out")


def refuse_unfit_ttl(df: DataFrame, ttl: timedelta) -> None:
    """Refuse a time to remember winners that is none, or that nothing here can keep.

    Raises
    ------
    SettingsError
        If it is none, or the DataFrame is no streaming one.
    MissingDependencyError
        If pandas is not installed.
    """
    arguments.refuse_type("ttl", ttl, timedelta, remedy="pass a datetime.timedelta")
    problem = f"ttl={ttl!r} is refused"
    if ttl < timedelta(milliseconds=1):
        raise SettingsError(
            problem,
            reason="it is less than a millisecond",
            remedy="give what is longer than records are late",
        )
    if not df.isStreaming:
        raise SettingsError(
            problem,
            reason="the DataFrame is no streaming one, and nothing has to be remembered",
            remedy="leave ttl out",
        )
    if find_spec("pandas") is None:
        problem = "pandas is not installed"
        reason = "with ttl rows pass through Python, in Spark's transformWithStateInPandas"
        remedy = "pip install 'statemark[pandas]', or leave ttl out"
        raise MissingDependencyError(problem, reason=reason, remedy=remedy)


def require_columns(df: DataFrame, keys: Sequence[str], strategy: str) -> None:
    """Refuse a table that does not say where and when its records came.

    Raises
    ------
    SettingsError
        If a column is missing, or of another type than Spark's Kafka source has.
    """
    types = {name.lower(): of for name, of in df.dtypes}
    wanted = {**dict.fromkeys(keys, ""), **_PLACE}
    if strategy == "header":
        wanted["headers"] = _HEADERS
    for name, of in wanted.items():
        there = types.get(name.lower())
        if there is None:
            reason = f"{strategy!r} needs where and when each record came"
            if name == "headers":
                reason = "strategy 'header' reads a header of each record"
            problem = f"column {name!r} is missing"
            raise SettingsError(
                problem,
                reason=f"{reason}, and the DataFrame has {', '.join(df.columns)}",
                remedy="keep the columns of Spark's Kafka source up to here; headers are there"
                " with its option includeHeaders=true",
            )
        if of and there != of:
            problem = f"column {name!r} is of type {there}"
            remedy = f"CAST({name} AS {of.upper()}), or keep the source's column"
            raise SettingsError(problem, reason=f"latest reads it as {of}", remedy=remedy)


def require_function(df: DataFrame) -> None:
    """Refuse a session without the function that finds winners.

    Raises
    ------
    SettingsError
        If it is one.
    """
    if not df.sparkSession.catalog.functionExists(FUNCTION):
        problem = f"the session does not know {FUNCTION}"
        raise SettingsError(
            problem,
            reason="Statemark's jar was not on the driver's class path when the session was built",
            remedy="build it with statemark.configure(builder), or start it with "
            "spark-submit --jars $(statemark jar)",
        )
