"""Tables of the page of figures."""

from __future__ import annotations


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """Render the lines of a table: names on the left, figures on the right."""
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" + "---:|" * (len(header) - 1),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
