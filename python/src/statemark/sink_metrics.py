"""What the Kafka sink of a query has written, of the rows that a listener keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from statemark.operator_metrics import OperatorMetrics


def of_sink(rows: Iterable[OperatorMetrics]) -> list[OperatorMetrics]:
    """Return a row for each batch of one query that Statemark's Kafka sink has written.

    Parameters
    ----------
    rows : iterable of OperatorMetrics
        Those of the query.

    Returns
    -------
    list of OperatorMetrics
        In the order that they had.
    """
    written = {(row.run_id, row.batch_id): row for row in rows if row.sink_rows is not None}
    return list(written.values())


def since_before(rows: Sequence[OperatorMetrics], column: str) -> list[int]:
    """Return how much each batch has added to a column that counts over its run.

    Parameters
    ----------
    rows : sequence of OperatorMetrics
        What `of_sink` returns.
    column : str
        The name of the column.

    Returns
    -------
    list of int
        One for each row; of a run whose beginning is not kept, the first is all until then.
    """
    counts: list[int] = [getattr(row, column) for row in rows]
    runs = [row.run_id for row in rows]
    return [
        count - (counts[i - 1] if i and runs[i - 1] == runs[i] else 0)
        for i, count in enumerate(counts)
    ]
