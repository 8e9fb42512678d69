"""Failures of queries and of reads of them, by their kinds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from statemark import _jvm, errors
from statemark.errors import (
    KINDS,
    CallInterruptedError,
    EngineError,
    InvalidInputError,
    JarNotFoundError,
    LiveReadError,
    SettingsError,
    SinkError,
    StatemarkError,
    no_plugin,
)

# Spark's state source has conditions of its own: they are of the read, whoever made it.
_OF_STATE = re.compile(r"\[STDS_\w+")
# A Spark Connect client has messages and conditions. Spark writes the class of an exception before
# its message where it has no class of its own for it, and where a task fails with it.
_OVER_CONNECT = re.compile(r"\(?\bstatemark\.[\w.]*?(\w+)Exception(?:\) |: )([^\n]*)")
# The condition of a read that cannot be planned; the name of the kind follows.
_CONDITION = "STATEMARK."
_REMEDY = "\n  remedy: "
# A format is missing, and so is the rest of the plugin.
_NO_FORMAT = re.compile(r"\[DATA_SOURCE_NOT_FOUND\] [^\n]*: (statemark(?:-kafka)?)\. ")
# A class is missing: in a task, on the driver, and as a query has the latter, by its name alone.
_NO_CLASS = re.compile(
    r"(?:\A|ClassNotFoundException: |terminated with exception: )"
    r"(statemark(?:\.[a-z]\w*)+\.[A-Z][\w$]*)(?!\S)"
)
# An error that Python code has raised in a query, as in `foreachBatch`: Spark has its text alone.
_TRACEBACK = "Traceback (most recent call last):\n"
_OF_PYTHON = re.compile(
    r"(?:  [^\n]*\n)*statemark\.errors\.(\w+): (.+?)\n  reason: (.+?)\n  remedy: ([^\n]+)",
    re.DOTALL,
)
# Where stacks and the like begin, which are of no use to the reader of a message.
_NOISE = re.compile(r"\n\nJVM stacktrace:|\n\s+at |\nDriver stacktrace:")


def error_of(error: BaseException | None) -> StatemarkError | None:
    """Return the failure of Statemark's behind an exception of pyspark's.

    Parameters
    ----------
    error : BaseException or None
        Raised by an action on a table of `live`, by a write to Kafka, or returned by
        ``query.exception()``, which is None for a query that has not failed; also where a call in
        ``foreachBatch`` has failed.

    Returns
    -------
    StatemarkError or None
        An error whose class is the kind of the failure, an `EngineError`; `JarNotFoundError` where
        Spark has not found a class or a format of Statemark's; `error` itself where it is one of
        Statemark's. None where `error` is None, the failure is none of these, and for most failures
        of a Spark Connect client, which gets messages and conditions only.

    Raises
    ------
    SettingsError
        If `error` is no exception.

    Notes
    -----
    Source: Kafka's `RetriableException`, a class that says what a caller does next.

    Examples
    --------
    >>> import statemark
    >>> statemark.error_of(ValueError("not of Spark's")) is None
    True
    """
    if error is None or isinstance(error, StatemarkError):
        return error
    if not isinstance(error, Exception):
        problem = f"{type(error).__name__} given in place of an exception"
        remedy = "pass what was caught, or what query.exception() returns"
        raise SettingsError(problem, reason="it has no failure behind it", remedy=remedy)
    told = _jvm.told_of(error) or _by_condition(error)
    if told is None or told.kind is None:
        text = text_of(error)
        return _raised_inside(text) or _no_jar(text)
    problem = "Spark reports a failure of Statemark's"
    remedy = told.remedy or _any_remedy(told.kind, told.why)
    return told.kind(problem, reason=_plain(told.why), remedy=remedy)


@contextmanager
def of_write() -> Iterator[None]:
    """Raise what fails in a write to Kafka, or a wait, as an error of its kind; the rest as it is.

    So is an interrupt: Spark knows by what pyspark has raised that a query was stopped in it.
    """
    try:
        yield
    except Exception as e:
        known = error_of(e)
        if known is None or known is e or isinstance(known, CallInterruptedError):
            raise
        raise known from None


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
        by_jvm = _jvm.told_of(e)
        told = by_jvm or _by_condition(e) or _by_text(e)
        if is_all_of_it and _NO_FORMAT.search(told.why):
            raise no_plugin() from None
        is_sparks = by_jvm is not None or isinstance(e, PySparkException)
        is_of_read = is_sparks and (is_all_of_it or _OF_STATE.match(told.why) is not None)
        is_sinks = told.kind is not None and issubclass(told.kind, SinkError)
        if is_sinks or (told.kind is None and not is_of_read):
            raise
        is_known = told.kind is not None or _OF_STATE.match(told.why) is not None
        raise _read_error(query, told) from None if is_known else e


def _by_condition(error: Exception) -> _jvm.Told | None:
    """Return what a read says that Spark cannot plan, which passes Spark Connect as well."""
    try:
        condition = getattr(error, "getCondition", lambda: None)() or ""
    except Exception:  # noqa: BLE001 - some ask the virtual machine for it, which may be gone
        return None
    if not condition.startswith(_CONDITION):
        return None
    lines, _, remedy = _plain(text_of(error)).partition(_REMEDY)
    kind = KINDS.get(condition.removeprefix(_CONDITION))
    return _jvm.Told(kind, lines.rpartition("\n  reason: ")[2], remedy or None)


def _by_text(error: Exception) -> _jvm.Told:
    """Return what a failure says by its text, which is all that Spark Connect passes of most."""
    text = text_of(error)
    named = _OVER_CONNECT.search(text)
    return (
        _jvm.Told(KINDS.get(named[1]), named[2], None)
        if named
        else _jvm.Told(None, _plain(text), None)
    )


def _raised_inside(text: str) -> StatemarkError | None:
    """Return the error of this package that ends the traceback of a text."""
    # Of errors that were raised one in the handling of the other, the last has ended the query.
    found = _OF_PYTHON.match(text.rpartition(_TRACEBACK)[2])
    kind = None if found is None else getattr(errors, found[1], None)
    if found is None or not (isinstance(kind, type) and issubclass(kind, StatemarkError)):
        return None
    return kind(found[2], reason=found[3], remedy=found[4])


def _no_jar(text: str) -> JarNotFoundError | None:
    """Return the error for what Spark says where it does not find Statemark's jar: names alone."""
    name = _NO_FORMAT.search(text) or _NO_CLASS.search(text)
    if name is None:
        return None
    problem = "Spark does not have Statemark's jar"
    return JarNotFoundError(
        problem,
        reason=f"{name[1]} was not found, on the driver or on an executor",
        remedy="call statemark.use(spark), in the Python thread that starts the query, or start"
        " Spark with --jars $(statemark jar), which brings the jar to executors as well",
    )


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


def _read_error(query: str, told: _jvm.Told) -> EngineError:
    of_read = told.kind or LiveReadError
    problem = f"query {query} was not read"
    remedy = told.remedy or _any_remedy(of_read, told.why)
    return of_read(problem, reason=" ".join(_plain(told.why).split("\n")), remedy=remedy)


def _any_remedy(kind: type[EngineError], why: str) -> str:
    """Say what to do about a failure that does not say it."""
    if kind.is_retryable:
        return "read again"
    # The same read fails again.
    is_wrong = issubclass(kind, InvalidInputError) or "_INVALID_" in why
    return f"correct what the reason names{'' if is_wrong else ', or read again'}"


def _plain(text: str) -> str:
    return _NOISE.split(text, maxsplit=1)[0]
