"""Pictures of what queries committed. Needs matplotlib: the extra ``plots``."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from statemark.errors import MissingDependencyError, SettingsError

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pyspark.sql.streaming.query import StreamingQuery

    from statemark.metrics import MetricsListener
    from statemark.operator_metrics import OperatorMetrics

    Value = Callable[[OperatorMetrics], float]

_MIB = 2**20
#: Title of each panel, with the unit, and its lines.
_PANELS: tuple[tuple[str, tuple[tuple[str, Value], ...]], ...] = (
    (
        "time (ms)",
        (
            ("batch", lambda row: row.batch_duration_ms),
            ("slowest commit", lambda row: row.commit_latency_max_ms or 0),
        ),
    ),
    ("rows in state", (("rows", lambda row: row.rows_total),)),
    (
        "bytes (MiB)",
        (
            ("memory", lambda row: row.memory_used_bytes / _MIB),
            ("staged when committed", lambda row: row.uncommitted_bytes / _MIB),
            ("spilled", lambda row: row.spilled_bytes / _MIB),
        ),
    ),
    (
        "stores (count)",
        (
            ("loaded from the checkpoint", lambda row: row.loads_checkpoint),
            ("loaded from local disk", lambda row: row.loads_local),
            ("rolled back", lambda row: row.rollbacks),
        ),
    ),
)


def dashboard(
    listener: MetricsListener, query: StreamingQuery | str | uuid.UUID | None = None
) -> Figure:
    """Draw what a listener has kept: time, rows, bytes and loads, by batch.

    Parameters
    ----------
    listener : MetricsListener
        The listener.
    query : StreamingQuery or str or uuid.UUID, optional
        The query, or its id. May be left out where the listener has kept one query.

    Returns
    -------
    matplotlib.figure.Figure
        Four panels over the batches of the query, with lines for each of its operators. It is no
        figure of pyplot's: a notebook shows it, ``savefig`` writes it, nobody has to close it.

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
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        problem = "statemark.plots.dashboard() needs matplotlib"
        raise MissingDependencyError(
            problem,
            reason="matplotlib is not installed in this environment",
            remedy="pip install 'statemark[plots]'; MetricsListener.report() works without it",
        ) from error
    rows = _rows(listener, query)
    figure = Figure(figsize=(10, 7), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True)
    for panel, (title, lines) in zip(axes.flat, _PANELS, strict=True):
        _draw(panel, title, lines, rows)
    for panel in axes[-1]:
        panel.set_xlabel("batch")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))  # no batch is at 0.2
    named = next((row.name for row in reversed(rows) if row.name), None)
    figure.suptitle(f"query {named or rows[0].query_id}")
    return figure


def _rows(
    listener: MetricsListener, query: StreamingQuery | str | uuid.UUID | None
) -> list[OperatorMetrics]:
    rows = listener.rows(query)
    queries = sorted({row.query_id for row in rows})
    if len(queries) == 1:
        return rows
    problem = "nothing was drawn"
    if not queries:
        raise SettingsError(
            problem,
            reason="no batch of this query on Statemark was reported",
            remedy="add the listener with spark.streams.addListener before the query starts",
        )
    raise SettingsError(
        problem,
        reason=f"the listener has kept {len(queries)} queries: {', '.join(queries)}",
        remedy="pass one of them as `query`",
    )


def _draw(
    panel: Axes, title: str, lines: tuple[tuple[str, Value], ...], rows: list[OperatorMetrics]
) -> None:
    by_operator = sorted(rows, key=lambda row: row.operator_id)  # stable: by batch within each
    operators = [list(found) for _, found in groupby(by_operator, key=lambda row: row.operator_id)]
    for of_one in operators:
        batches = [row.batch_id for row in of_one]
        whose = "" if len(operators) == 1 else f", {of_one[0].operator} {of_one[0].operator_id}"
        for label, value in lines:
            panel.plot(batches, [value(row) for row in of_one], marker=".", label=label + whose)
    panel.set_title(title)
    panel.set_ylim(bottom=0)
    panel.legend(fontsize="small")
