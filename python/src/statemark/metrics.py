"""What each micro-batch committed, from Spark's own progress events.

Needs pyspark, and no call into the Java virtual machine: the provider reports custom metrics,
Spark sums them over partitions and sends them with its progress.
"""

from __future__ import annotations

import logging
import sys
import threading
import uuid
from collections import OrderedDict, deque
from dataclasses import fields
from numbers import Integral
from typing import TYPE_CHECKING

from statemark import arguments, jars, report
from statemark.errors import MissingDependencyError, SettingsError
from statemark.operator_metrics import OperatorMetrics, read_progress, sink_columns

try:
    from pyspark.sql.streaming.listener import StreamingQueryListener
except ImportError as error:
    _problem = "statemark.MetricsListener cannot be used"
    raise MissingDependencyError(
        _problem,
        reason="its base class is pyspark's, and pyspark is not installed in this environment",
        remedy=jars.pip_install(),
    ) from error

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)


_TEXT = ("query_id", "run_id", "name", "operator")
_FRACTIONS = ("commit_rate", "commit_latency_avg_ms", "commit_latency_max_ms", *sink_columns())


class MetricsListener(StreamingQueryListener):
    """Keeps what Statemark stores committed, for each query, micro-batch and operator.

    With it goes what Statemark's Kafka sink has written. A query that has neither leaves no rows.
    Add one listener to a session; it is safe to read from any thread while queries run.

    Parameters
    ----------
    max_batches : int, default 1000
        Micro-batches kept of each query (> 0); the oldest go first.
    max_queries : int, default 100
        Queries kept (> 0); the one that has been silent for longest goes first.

    Raises
    ------
    SettingsError
        If a limit is not above 0.

    Notes
    -----
    Source: ``stateOperators[].customMetrics`` and ``sink.metrics`` of Spark's progress.

    Examples
    --------
    >>> import statemark
    >>> listener = statemark.MetricsListener(max_batches=500)
    >>> spark.streams.addListener(listener)  # doctest: +SKIP
    >>> listener.latest("1f2e6c1c-0a52-4c4f-9b0e-2f6d4d3a8a11") is None
    True
    """

    def __init__(self, *, max_batches: int = 1000, max_queries: int = 100) -> None:
        for limit, value in (("max_batches", max_batches), ("max_queries", max_queries)):
            remedy = "pass a whole number above 0"
            arguments.refuse_type(limit, value, Integral, remedy=remedy)
            if not 0 < value <= sys.maxsize:
                problem = f"bad value {value!r} for {limit}"
                reason = "nothing would be kept" if value < 1 else "no machine holds as many"
                raise SettingsError(problem, reason=reason, remedy=remedy)
        self._max_batches = int(max_batches)
        self._max_queries = int(max_queries)
        self._lock = threading.Lock()
        # Guarded by the lock; the query heard from last is at the end.
        self._batches: OrderedDict[str, deque[list[OperatorMetrics]]] = OrderedDict()

    def latest(
        self, query: StreamingQuery | str | uuid.UUID, *, operator_id: int = 0
    ) -> OperatorMetrics | None:
        """Return what an operator did in the last micro-batch that was reported.

        Parameters
        ----------
        query : StreamingQuery or str or uuid.UUID
            The query, its id or its name.
        operator_id : int, default 0
            Position among the query's stateful operators; -1 where it has none, and Statemark's
            Kafka sink.

        Returns
        -------
        OperatorMetrics or None
            None if nothing was reported: no micro-batch yet, no such operator, or the query
            runs on another state store provider.

        Raises
        ------
        SettingsError
            As `rows`.
        """
        if query is None:  # which means all of them to `rows`
            raise _no_query(query)
        rows = self.rows(query)
        last = {(row.run_id, row.batch_id) for row in rows[-1:]}
        of_last = (row for row in rows if (row.run_id, row.batch_id) in last)
        return next((row for row in of_last if row.operator_id == operator_id), None)

    def rows(self, query: StreamingQuery | str | uuid.UUID | None = None) -> list[OperatorMetrics]:
        """Return what is kept, oldest first within a query.

        Parameters
        ----------
        query : StreamingQuery or str or uuid.UUID, optional
            The query, its id or its name; all that are kept if unset.

        Returns
        -------
        list of OperatorMetrics
            One for each micro-batch and operator.

        Raises
        ------
        SettingsError
            If `query` is no query, no id of one, and the name of none that is kept.
        """
        with self._lock:
            kept = [batch for batches in self._batches.values() for batch in batches]
        rows = [row for batch in kept for row in batch]
        if query is None:
            return rows
        if isinstance(query, str) and any(row.name == query for row in rows):
            return [row for row in rows if row.name == query]
        key = _query_id(query)
        return [row for row in rows if row.query_id == key]

    def to_pandas(self) -> pd.DataFrame:
        """Return everything that is kept.

        Returns
        -------
        pandas.DataFrame
            One row for each run of a query, micro-batch and operator, oldest first within a
            query. The columns are the attributes of `OperatorMetrics`, with their units;
            None is NaN.

        Raises
        ------
        MissingDependencyError
            If pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            problem = "MetricsListener.to_pandas() needs pandas"
            raise MissingDependencyError(
                problem,
                reason="pandas is not installed in this environment",
                remedy="pip install 'statemark[pandas]'; latest() works without it",
            ) from error
        rows = self.rows()
        # Types are set column by column: an empty frame has them, and None does not change them.
        return pd.DataFrame(
            {
                column.name: pd.Series([getattr(row, column.name) for row in rows], dtype=kind)
                for column in fields(OperatorMetrics)
                for kind in [_dtype(column.name)]
            }
        )

    def report(self, query: StreamingQuery | str | uuid.UUID | None = None) -> report.Report:
        """Return a page of text: what queries did, what is slow or odd, and what to do about it.

        Parameters
        ----------
        query : StreamingQuery or str or uuid.UUID, optional
            The query, its id or its name; all that are kept if unset.

        Returns
        -------
        Report
            A str with a paragraph for each operator of each query. What is odd begins with an
            exclamation mark, and names a remedy and a page of the documents. A notebook shows
            it as a table.

        Raises
        ------
        SettingsError
            As `rows`.

        Examples
        --------
        >>> import statemark
        >>> print(statemark.MetricsListener().report())
        No batch of a query on Statemark was reported yet.
        """
        return report.text(self.rows(query))

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Keep the metrics of a micro-batch; called by Spark.

        Parameters
        ----------
        event : QueryProgressEvent
            The event. One that cannot be read is logged and dropped: metrics are not worth a
            stream.
        """
        try:
            self._keep(read_progress(event.progress))
        except Exception:  # noqa: BLE001 - whatever it is, it must not reach the stream
            _log.warning("progress of a query was dropped: it cannot be read", exc_info=True)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing; called by Spark.

        Parameters
        ----------
        event : QueryStartedEvent
            The event.
        """

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing; called by Spark.

        Parameters
        ----------
        event : QueryIdleEvent
            The event.
        """

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Keep what is known of the query; called by Spark.

        Parameters
        ----------
        event : QueryTerminatedEvent
            The event.
        """

    def _keep(self, rows: list[OperatorMetrics]) -> None:
        if not rows:
            return
        key = rows[0].query_id
        with self._lock:
            batches = self._batches.setdefault(key, deque(maxlen=self._max_batches))
            batches.append(rows)
            self._batches.move_to_end(key)
            while len(self._batches) > self._max_queries:
                self._batches.popitem(last=False)


def _dtype(column: str) -> str:
    if column == "timestamp":
        return "datetime64[ns, UTC]"
    return "object" if column in _TEXT else "float64" if column in _FRACTIONS else "int64"


def _query_id(query: object) -> str:
    value = query if isinstance(query, str | uuid.UUID) else getattr(query, "id", None)
    try:
        return str(uuid.UUID(str(value)))
    except ValueError:
        raise _no_query(query) from None


def _no_query(query: object) -> SettingsError:
    problem = f"{query!r} is not a query"
    reason = (
        "it is neither a StreamingQuery nor the id of one, which is a UUID, and no query of this"
        " name was reported"
    )
    return SettingsError(problem, reason=reason, remedy="pass query or query.id")
