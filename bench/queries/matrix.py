"""The matrix: queries at other sizes, with other keys, and with other kinds of writes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from queries.operators import LONG, OPERATORS, STRUCT

if TYPE_CHECKING:
    from queries.operators import Operator

_FEW = 1_000
_MANY_KEYS = 10_000_000


def _like(name: str, kind: str, title: str, changes: dict[str, Any]) -> Operator:
    operator = OPERATORS[name]
    return replace(operator, name=f"{name}-{kind}", title=f"{operator.title}, {title}", **changes)


def _small(name: str) -> Operator:
    """Return a query of small micro-batches on a state that the first one fills."""
    operator = OPERATORS[name]
    first = operator.keys or operator.rows
    return _like(name, "small", f"{_FEW:,} rows a batch", {"rows": _FEW, "first": first})


#: What is written: rows that are new, that replace others, and as many removals as new rows.
_WRITES = (
    _like("dedup", "insert", "all keys new", {"new": 1.0}),
    _like("group", "update", "100,000 keys, no new ones", {"keys": 100_000}),
    _like(
        "within",
        "delete",
        "a key removed for each new one",
        {"new": 1.0, "rows": 200_000, "delay": "1 minute"},
    ),
)
#: State that no cache can hold.
_LARGE = {"in_memory": False, "first": _MANY_KEYS, "rows": 100_000}
MATRIX = {
    operator.name: operator
    for operator in (
        *map(_small, ("dedup", "group", "session", "join", "window", "within")),
        _like("dedup", "long", "keys `LONG`", {"key": LONG}),
        _like("dedup", "struct", "keys `STRUCT`", {"key": STRUCT}),
        _like("group", "long", "keys `LONG`", {"key": LONG}),
        _like("group", "struct", "keys `STRUCT`", {"key": STRUCT}),
        *_WRITES,
        _like("dedup", "large", f"{_MANY_KEYS:,} keys", _LARGE),
        _like("group", "large", f"{_MANY_KEYS:,} keys", {**_LARGE, "keys": _MANY_KEYS}),
    )
}
#: Every query that can be named.
ALL = OPERATORS | MATRIX
