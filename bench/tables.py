"""Tables and prose of the page of figures."""

from __future__ import annotations

import re
import textwrap

#: Of the prose of a page, as the house rules have it.
WIDTH = 120
#: A blank that is not broken at.
_KEPT = "\u00a0"


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """Render the lines of a table: names on the left, figures on the right."""
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" + "---:|" * (len(header) - 1),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def wrapped(text: str, indent: str = "") -> list[str]:
    """Break prose into lines, which begin with the indent from the second on; code stays whole."""
    whole = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", _KEPT), " ".join(text.split()))
    lines = textwrap.wrap(
        whole, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace(_KEPT, " ") for line in lines]
