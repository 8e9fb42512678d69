"""Pictures of what queries committed. Needs matplotlib: the extra ``plots``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statemark.errors import MissingDependencyError, SettingsError

if TYPE_CHECKING:
    import uuid

    from matplotlib.figure import Figure
    from pyspark.sql.streaming.query import StreamingQuery

    from statemark.metrics import MetricsListener
    from statemark.operator_metrics import OperatorMetrics


def dashboard(
    listener: MetricsListener, query: StreamingQuery | str | uuid.UUID | None = None
) -> Figure:
    """Draw what a listener has kept: time, rows, bytes and loads, by batch.

    Parameters
    ----------
    listener : MetricsListener
        The listener.
    query : StreamingQuery or str or uuid.UUID, optional
        The query, its id or its name. May be left out where the listener has kept one query.

    Returns
    -------
    matplotlib.figure.Figure
        Panels over the batches of the query: a color for each operator, the same in all of them,
        and strokes where stores were loaded, rolled back or spilled; below them what the Kafka
        sink did, where the query has Statemark's. A panel is logarithmic where
        a line would lie flat else, as beside a first batch that loads all of the state; its title
        says so. Nothing is cut. It is no figure of pyplot's: a notebook shows it, ``savefig``
        writes it, nobody has to close it.

    Raises
    ------
    MissingDependencyError
        If matplotlib is not installed.
    SettingsError
        If `listener` is no listener, `query` is no query, none was reported, or several were and
        none is named.

    Examples
    --------
    >>> import statemark.plots
    >>> statemark.plots.dashboard(listener).savefig("query.svg")  # doctest: +SKIP
    """
    from statemark.metrics import MetricsListener  # needs pyspark, which this module does not

    if not isinstance(listener, MetricsListener):
        problem = f"{type(listener).__name__} given in place of a listener"
        raise SettingsError(
            problem,
            reason="it is no statemark.MetricsListener, which alone has kept the batches",
            remedy="add a MetricsListener with spark.streams.addListener before the query starts, "
            "and pass it: dashboard(listener, query)",
        )
    try:
        from statemark import drawing
    except ImportError as error:
        problem = "statemark.plots.dashboard() needs matplotlib"
        raise MissingDependencyError(
            problem,
            reason="matplotlib is not installed in this environment",
            remedy="pip install 'statemark[plots]'; MetricsListener.report() works without it",
        ) from error
    return drawing.draw(_rows(listener, query))


def _rows(
    listener: MetricsListener, query: StreamingQuery | str | uuid.UUID | None
) -> list[OperatorMetrics]:
    rows = listener.rows(query)
    queries = sorted({row.query_id for row in rows})
    if len(queries) == 1:
        return rows
    names = {row.query_id: row.name for row in rows}

    def named(query: str) -> str:
        return f"{query} ({names[query]})" if names[query] else query

    problem = "nothing was drawn"
    if not queries:
        raise SettingsError(
            problem,
            reason="no batch of this query on Statemark was reported",
            remedy="add the listener with spark.streams.addListener before the query starts",
        )
    raise SettingsError(
        problem,
        reason=f"the listener has kept {len(queries)} queries: {', '.join(map(named, queries))}",
        remedy="pass one of them as `query`",
    )
