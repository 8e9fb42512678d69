"""Failures of queries and of reads of them, by their kinds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from statemark import _jvm
from statemark.errors import (
    KINDS,
    EngineError,
    InvalidInputError,
    LiveReadError,
    SinkError,
    StatemarkError,
    no_plugin,
)

# Spark's state source has conditions of its own: they are of the read, whoever made it.
_OF_STATE = re.compile(r"\[STDS_\w+")
# A Spark Connect client has messages only. Spark writes the class of an exception before its
# message where it has no class of its own for it, and where a task fails with it.
_OVER_CONNECT = re.compile(r"\(?\bstatemark\.[\w.]*?(\w+)Exception(?:\) |: )([^\n]*)")
# The data source of reads is missing, and so is the rest of the plugin.
_NO_FORMAT = re.compile(r"\[DATA_SOURCE_NOT_FOUND\].*\bstatemark\b")
# Where stacks and the like begin, which are of no use to the reader of a message.
_NOISE = re.compile(r"\n\nJVM stacktrace:|\n\s+at |\nDriver stacktrace:")


def error_of(error: Exception) -> EngineError | None:
    """Return the failure of Statemark's behind an exception of pyspark's.

    Parameters
    ----------
    error : Exception
        Raised by an action on a table of `live`, by a write to Kafka, or returned by
        ``query.exception()``.

    Returns
    -------
    EngineError or None
        An error whose class is the kind of the failure, `error` itself where it is one; None where
        the failure is none of Statemark's, and for a Spark Connect client, which gets messages
        only.

    Notes
    -----
    Source: Kafka's `RetriableException`, a class that says what a caller does next.

    Examples
    --------
    >>> import statemark
    >>> statemark.error_of(ValueError("not of Spark's")) is None
    True
    """
    if isinstance(error, EngineError):
        return error
    kind = _jvm.kind_of(error)
    if kind is None:
        return None
    problem = "Spark reports a failure of Statemark's"
    return kind(
        problem,
        reason=_plain(_jvm.message_of(error) or str(error)),
        remedy="do what the reason names" if not kind.is_retryable else "try again",
    )


@contextmanager
def of_read(query: str, *, is_all_of_it: bool) -> Iterator[None]:
    """Raise what fails in a read of a running query as an error of three lines, of its kind.

    Parameters
    ----------
    query : str
        The query as its user has named it.
    is_all_of_it : bool
        Whether nothing but the read can fail. Otherwise, as with an action on a table, what has
        nothing to do with the read is raised as it is.

    Raises
    ------
    EngineError
        Its class is the kind, `LiveReadError` where there is none. What pyspark has raised is its
        ``__context__``: hundreds of lines, which are printed with it only where the kind is not
        known. A failure of a sink, into which the table was written, is raised as it is.
    """
    from pyspark.errors import PySparkException

    try:
        yield
    except StatemarkError:
        raise
    except Exception as e:
        # pyspark has no class for many failures, such as an interrupt, and leaves its connection's.
        told = _jvm.message_of(e)
        kind, message = (_jvm.kind_of(e), told) if told is not None else _over_connect(e)
        if is_all_of_it and _NO_FORMAT.search(message):
            raise no_plugin() from None
        is_sparks = told is not None or isinstance(e, PySparkException)
        is_of_read = is_sparks and (is_all_of_it or _OF_STATE.match(message) is not None)
        is_sinks = kind is not None and issubclass(kind, SinkError)
        if is_sinks or (kind is None and not is_of_read):
            raise
        is_known = kind is not None or _OF_STATE.match(message) is not None
        raise _read_error(query, message, kind) from None if is_known else e


def _over_connect(error: Exception) -> tuple[type[EngineError] | None, str]:
    """Return the kind of a failure, where it is Statemark's, and what it says, by its text."""
    text = text_of(error)
    named = _OVER_CONNECT.search(text)
    return (KINDS.get(named[1]), named[2]) if named else (None, text)


def text_of(error: Exception) -> str:
    """Return what an exception says: some ask the virtual machine for it, which may be gone.

    Parameters
    ----------
    error : Exception
        Any exception.

    Returns
    -------
    str
        Its text, or else the name of its class.
    """
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - what is raised here would hide the failure itself
        return type(error).__name__


def _read_error(query: str, message: str, kind: type[EngineError] | None) -> EngineError:
    of_read = kind or LiveReadError
    problem = f"query {query} was not read"
    if of_read.is_retryable:
        remedy = "read again"
    elif of_read is InvalidInputError:  # the same read fails again
        remedy = (
            "correct what the reason names: spark.streams.active has the queries that run, "
            "statemark.operators(query) what a read of one may name"
        )
    else:
        remedy = "correct what the reason names, or read again"
    return of_read(problem, reason=" ".join(_plain(message).split("\n")), remedy=remedy)


def _plain(text: str) -> str:
    return _NOISE.split(text, maxsplit=1)[0]
