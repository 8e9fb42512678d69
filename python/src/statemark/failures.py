"""Failures of queries, and of tables that `live` returns, by their kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statemark import _jvm

if TYPE_CHECKING:
    from statemark.errors import EngineError


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
        An error whose class is the kind of the failure; None where the failure is none of
        Statemark's, and for a Spark Connect client, which gets messages only.

    Notes
    -----
    Source: Kafka's `RetriableException`, a class that says what a caller does next.

    Examples
    --------
    >>> import statemark
    >>> statemark.error_of(ValueError("not of Spark's")) is None
    True
    """
    kind = _jvm.kind_of(error)
    if kind is None:
        return None
    problem = "Spark reports a failure of Statemark's"
    return kind(
        problem,
        reason=str(error).partition("\n\nJVM stacktrace:")[0],
        remedy="do what the reason names" if not kind.is_retryable else "try again",
    )
