"""Products of modes: each mode once by default, every combination with STATEMARK_MODES=all."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Of state in a checkpoint.
FORMATS = ("1", "2")
IS_WHOLE = os.environ.get("STATEMARK_MODES") == "all"


def pairs(*columns: Sequence[Any], is_whole: bool = IS_WHOLE) -> list[tuple[Any, ...]]:
    """
    Combine modes: a row for each value of the longest column, the others take turns.

    Examples
    --------
    >>> pairs(("a", "b", "c"), ("1", "2"), is_whole=False)
    [('a', '1'), ('b', '2'), ('c', '1')]
    """
    if is_whole:
        return list(itertools.product(*columns))
    rows = max(len(column) for column in columns)
    return [tuple(column[i % len(column)] for column in columns) for i in range(rows)]
