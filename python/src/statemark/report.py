"""A page of text on what queries did: what is slow, what is odd, and what to do about it."""

from __future__ import annotations

import html
from itertools import groupby
from statistics import mean
from typing import TYPE_CHECKING

from statemark.operator_metrics import by_operator, query_name
from statemark.report_rules import commit_ms, findings, parts, runs_of, sink_findings, sink_ms
from statemark.sink_metrics import of_sink, since_before

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from statemark.operator_metrics import OperatorMetrics
    from statemark.report_rules import Finding

    Rows = Sequence[OperatorMetrics]

# The last runs are shown.
_RUNS = 3
_NOTHING = "No batch of a query on Statemark was reported yet."


class Report(str):
    """A page of text, which a notebook shows as a table for each query.

    Parameters
    ----------
    text : str
        The page.
    html : str
        The same as HTML.
    """

    _html: str

    def __new__(cls, text: str, html: str = "") -> Report:  # noqa: D102 - that of the class
        self = super().__new__(cls, text)
        self._html = html
        return self

    def _repr_html_(self) -> str:
        return self._html


def text(rows: Iterable[OperatorMetrics]) -> Report:
    """Return a page of text for what a listener has kept.

    Parameters
    ----------
    rows : iterable of OperatorMetrics
        Of one query after the other, each from its oldest batch on.

    Returns
    -------
    Report
        A paragraph for each operator of each query, and for its Kafka sink: its batches and
        commits, then what is odd.
    """
    lines, tables = [], []
    for query, of_query in groupby(rows, key=lambda row: row.query_id):
        kept = list(of_query)
        name = query_name(kept)
        title = f"query {name} ({query})" if name else f"query {query}"
        operators = by_operator(kept)
        lines += [title, *(line for found in operators for line in _paragraph(found))]
        tables.append(f"<p>{html.escape(title)}</p>" + (_table(operators) if operators else ""))
        if written := of_sink(kept):
            told, odd = _sink(written), sink_findings(written)
            lines += [f"  {told}", *_odd(odd)]
            tables.append(f"<p>{html.escape(told)}<br>{_odd_html(odd)}</p>")
    if not lines:
        return Report(_NOTHING, f"<p>{_NOTHING}</p>")
    return Report("\n".join(lines), "".join(tables))


def _facts(rows: Rows) -> dict[str, str]:
    """Return what is told of an operator, by its name there; empty where there is nothing."""
    first, last = rows[0], rows[-1]
    loads = {
        "from the local directory": sum(row.loads_local for row in rows),
        "from the checkpoint": sum(row.loads_checkpoint for row in rows),
    }
    return {
        "operator": f"{last.operator_id}, {last.operator}",
        "batches": f"{first.batch_id} to {last.batch_id}",
        "rows in state": f"{last.rows_total:,}",
        "memory": f"{last.memory_used_bytes / 2**20:,.1f} MiB",
        "batch": _batches(rows),
        "commit of a store": _commit(rows),
        "stores loaded": ", ".join(f"{n:,} {where}" for where, n in loads.items() if n),
    }


def _paragraph(rows: Rows) -> list[str]:
    facts = _facts(rows)
    lines = [
        f"  operator {facts['operator']}: batches {facts['batches']}, "
        f"{facts['rows in state']} rows in state, {facts['memory']} of memory"
    ]
    more = ("batch", "commit of a store", "stores loaded")
    lines += [f"    {name}: {facts[name]}" for name in more if facts[name]]
    return [*lines, *_odd(findings(rows))]


def _sink(rows: Rows) -> str:
    """Return what the Kafka sink has written, as a line."""
    copied = sum(since_before(rows, "sink_copied_rows"))
    return (
        f"Kafka sink: batches {rows[0].batch_id} to {rows[-1].batch_id}, "
        f"{sum(row.sink_rows or 0 for row in rows):,} rows, {copied:,} of them by a copy; "
        f"{mean(map(sink_ms, rows)):,.0f} ms in the mean until readers saw a batch, "
        f"{max(map(sink_ms, rows)):,} ms the slowest"
    )


def _odd(odd: Sequence[Finding]) -> list[str]:
    lines = []
    for finding in odd:
        lines += [f"    ! {finding.what}", f"      {finding.remedy} (docs/{finding.page})"]
    return lines or ["    nothing odd"]


def _odd_html(odd: Sequence[Finding]) -> str:
    told = [
        f"<b>{html.escape(found.what)}</b><br>" + html.escape(f"{found.remedy} (docs/{found.page})")
        for found in odd
    ]
    return "<br>".join(told) or "nothing odd"


def _table(operators: Sequence[Rows]) -> str:
    """Return the facts of a query's operators as HTML, and what is odd in the last column."""
    head = "".join(f"<th>{name}</th>" for name in [*_facts(operators[0]), "odd"])
    body = ""
    for rows in operators:
        cells = [*map(html.escape, _facts(rows).values()), _odd_html(findings(rows))]
        body += "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    return f"<table><tr>{head}</tr>{body}</table>"


def _batches(rows: Rows) -> str:
    """Return how long batches took, and apart the first of each run, which loads stores."""
    runs = runs_of(rows)
    oldest = rows[0]
    # Of a long run the listener has dropped the first batch.
    begins_late = oldest.batch_id > 0 and not oldest.reloads
    firsts = [run.pop(0) for run in runs[begins_late:]]
    later = [row.batch_duration_ms for run in runs for row in run]
    told = f"{mean(later):,.0f} ms in the mean, {max(later):,} ms the slowest" if later else ""
    if firsts:
        shown = ", ".join(f"{row.batch_duration_ms:,}" for row in firsts[-_RUNS:])
        told += f"{'; ' * bool(told)}{shown} ms the first of a run"
    return told


def _commit(rows: Rows) -> str:
    commits = sum(row.commit_count for row in rows)
    if not commits:
        return ""
    total = commit_ms(rows)
    shares = [f"{what} {share:.0%}" for what, share in parts(rows, total) if share >= 0.01]
    return f"{total / commits:,.1f} ms in the mean" + (f" ({', '.join(shares)})" if shares else "")
