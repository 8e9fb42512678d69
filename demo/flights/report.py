"""The table and the verdict at the end."""

from __future__ import annotations

from typing import Any

Measures = dict[str, Any]

_TITLES = {"dedup": "deduplication", "delays": "aggregation", "weather": "join"}


def table(left: Measures, right: Measures, names: tuple[str, str]) -> str:
    """
    Lay two sides out in columns.

    Parameters
    ----------
    left, right
        What `flights.side` measured.
    names
        Titles of the two columns.

    Returns
    -------
    str
        Lines of text; the last column is left divided by right.
    """
    lines = [("", *names, "ratio"), ("", "", "", "")]
    for title, digits, get in _rows():
        a, b = get(left), get(right)
        lines.append((title, _number(a, digits), _number(b, digits), _ratio(a, b)))
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    return "\n".join(_line(line, widths) for line in lines)


def verdict(verdicts: dict[str, dict[str, Any]], sides: dict[str, str]) -> list[str]:
    """
    Say for each query and side whether it equals the batch result.

    Parameters
    ----------
    verdicts
        What `flights.compare` wrote.
    sides
        Title of each side by its directory's name.

    Returns
    -------
    list of str
        One line for each.
    """
    return [
        f"{_TITLES[query]:<14} {title:<14} "
        + (f"differs: {found[side]}" if found[side] else f"equal, {found['rows']:,} rows")
        for query, found in verdicts.items()
        for side, title in sides.items()
    ]


def _rows() -> list[tuple[str, int, Any]]:
    rows: list[tuple[str, int, Any]] = []
    for query, title in _TITLES.items():
        rows += [
            (f"{title}: input rows", 0, lambda m, q=query: m[q]["rows"]),
            (f"{title}: batches", 0, lambda m, q=query: m[q]["batches"]),
            (f"{title}: state rows, at most", 0, lambda m, q=query: m[q]["state_rows"]),
            (f"{title}: processor time, s", 1, lambda m, q=query: m[q]["cpu_s"]),
            (f"{title}: batch, median ms", 0, lambda m, q=query: m[q]["batch_ms"]),
            (f"{title}: commit, median ms", 1, lambda m, q=query: m[q]["commit_ms"]),
        ]
    return [
        *rows,
        ("failure to next commit, ms", 0, lambda m: m["dedup"]["recovery"]["to_commit_ms"]),
        ("checkpoint files opened by the retry", 0, lambda m: len(set(opened(m)))),
        ("  how often they were opened", 0, lambda m: len(opened(m))),
    ]


def opened(side: Measures) -> list[str]:
    """Files that the retry opened below the operator's state directory."""
    files: list[str] = side["dedup"]["recovery"]["opened"]
    return files


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}"


def _ratio(left: float, right: float) -> str:
    return f"{left / right:,.2f}" if right else "-"


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    first, *rest = (
        cell.ljust(width) if i == 0 else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "   ".join([first, *rest]).rstrip()
