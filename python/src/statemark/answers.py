"""What an offline command has come to, for people and for programs."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from typing import Any

from statemark import json_output

_MAX_ROWS = 20


class Answer(Mapping[str, Any]):
    """What a command has come to: its JSON object, which docs/tools.md describes, as a mapping.

    ``print`` shows it as text, a notebook as tables. A list of objects makes a frame:
    ``pandas.DataFrame(answer["findings"])``.

    Attributes
    ----------
    ok : bool
        Whether all is as it should be: the exit code of the command is 0, and not 1.
    """

    def __init__(self, values: Mapping[str, Any], *, ok: bool) -> None:
        self._values = {key: value for key, value in values.items() if key != "schema"}
        self.ok = ok

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - whatever JSON has
        """Return the value of a key of the JSON object."""
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        """Return its keys."""
        return iter(self._values)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._values)

    def to_json(self) -> str:
        """Return the object, as the command prints it.

        Returns
        -------
        str
            On one line.
        """
        return json_output.of(self._values)

    def __repr__(self) -> str:
        """Return it as text: a line for each value, and a table for each list of objects."""
        width = max((len(name) for name, _ in self._plain()), default=0)
        lines = [f"{name:<{width}}  {_shown(value)}" for name, value in self._plain()]
        for name, rows in self._tables():
            head, *cells = _cells(rows)
            widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
            lines.append(f"{name} ({len(rows)})")
            lines += [
                "  " + "  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)).rstrip()
                for row in [head, *cells]
            ]
            if len(rows) > _MAX_ROWS:
                lines.append(f"  … and {len(rows) - _MAX_ROWS} more")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        def row(cells: list[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

        plain = "".join(row([name, _shown(value)], "td") for name, value in self._plain())
        parts = [f"<table>{plain}</table>"]
        for name, rows in self._tables():
            head, *cells = _cells(rows)
            body = row(head, "th") + "".join(row(line, "td") for line in cells)
            parts.append(f"<p>{html.escape(name)} ({len(rows)})</p><table>{body}</table>")
        return "".join(parts)

    def _plain(self) -> list[tuple[str, object]]:
        return [item for item in self._values.items() if not _is_table(item[1])]

    def _tables(self) -> list[tuple[str, list[dict[str, Any]]]]:
        return [item for item in self._values.items() if _is_table(item[1])]


def _is_table(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def _cells(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return the first rows as text, below the names of all that some row has."""
    head = list(dict.fromkeys(name for row in rows for name in row))
    shown = rows[:_MAX_ROWS]
    return [head, *([_shown(row.get(name, "")) for name in head] for row in shown)]


def _shown(value: object) -> str:
    if isinstance(value, list) and _is_table(value):
        names = [one.get("name", one.get("id")) for one in value]
        return ", ".join(map(str, names)) if all(n is not None for n in names) else f"{len(names)}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(part)}" for name, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
