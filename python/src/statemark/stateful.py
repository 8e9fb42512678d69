"""The stateful operators of a running query: what a read of it may name."""

from __future__ import annotations

import html
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

from statemark import arguments, queries
from statemark.errors import InvalidInputError, LiveReadError, SettingsError

if TYPE_CHECKING:
    from statemark.queries import Query
    from statemark.reads import Position

_SIDES = ("left", "right")


@dataclass(frozen=True)
class Operator:
    """A stateful operator of a running query.

    Attributes
    ----------
    number : int
        What reads take as `operator_id`. The last operator of a query is 0: Spark counts from the
        sink to the sources.
    name : str
        Spark's name of it, as in the progress of the query.
    key_columns : tuple of str
        The names of the columns of its key, which `get` asks for; empty where its state has no key,
        or `key_problem` says why they cannot be read.
    sides : tuple of str
        What reads take as `join_side`; empty where the operator is no join of streams.
    state_variables : tuple of str
        What reads take as `state_var_name`; empty where the operator is no transformWithState. With
        them, `key_columns` are those of the first.
    stores : tuple of str
        What reads take as `store_name`.
    key_problem : str or None
        Why the columns of its key cannot be read, such as a damaged file of the checkpoint; None
        where they can.
    provider_note : str or None
        That the checkpoint pins another state store provider than the session names which started
        the query, and the command that moves the state; None where it does not.
    """

    number: int
    name: str
    key_columns: tuple[str, ...]
    sides: tuple[str, ...]
    state_variables: tuple[str, ...]
    stores: tuple[str, ...]
    key_problem: str | None = None
    provider_note: str | None = None


@dataclass(frozen=True)
class Description:
    """What a running query keeps in state, as of its last committed batch.

    Attributes
    ----------
    query : str
        The query as errors call it: its id, or its name in quotes.
    position : Position
        The batch, and how far the query has read its sources.
    operators : tuple of Operator
        All its stateful operators, in the order of their numbers.
    chosen : int
        The number of the one that is read.

    Notes
    -----
    ``print`` shows it as text; a notebook shows it as a table.
    """

    query: str
    position: Position
    operators: tuple[Operator, ...]
    chosen: int

    def __str__(self) -> str:
        """Return it as text: a line for the query, and one for each operator."""
        lines = [f"query {self.query}: batch {self.position.batch_id}"]
        for row in self._rows():
            told = "; ".join(f"{name} {value}" for name, value in row[3:] if value)
            lines.append(f"{row[0]} operator {row[1]}: {row[2]}" + (f" ({told})" if told else ""))
        return "\n".join([*lines, *self._notes()])

    def _repr_html_(self) -> str:
        names = ("", "operator", "name", "key", "sides", "state variables", "stores")
        head = "".join(f"<th>{name}</th>" for name in names)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells) + "</tr>"
            for row in self._rows()
            for cells in [[*row[:3], *(value for _, value in row[3:])]]
        )
        title = html.escape(f"query {self.query}: batch {self.position.batch_id}")
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._notes())
        return f"<p>{title}</p><table><tr>{head}</tr>{body}</table>{notes}"

    def _notes(self) -> list[str]:
        told = dict.fromkeys(one.provider_note for one in self.operators)
        return [note for note in told if note]

    def _rows(self) -> list[Any]:
        return [
            (
                ">" if one.number == self.chosen else " ",
                one.number,
                one.name,
                ("key", ", ".join(one.key_columns)),
                ("sides", ", ".join(one.sides)),
                ("variables", ", ".join(one.state_variables)),
                ("stores", ", ".join(one.stores)),
            )
            for one in self.operators
        ]


def operators(query: Query, *, timeout: float | str | None = None) -> list[Operator]:
    """Return the stateful operators of a running query.

    Parameters
    ----------
    query : StreamingQuery, UUID or str
        The query, its id, or its name.
    timeout : float or str, optional
        Seconds to wait for the first batch, or a duration such as ``"10s"``; 10 seconds if unset.

    Returns
    -------
    list of Operator
        In the order of their numbers; empty where the query has no state.

    Raises
    ------
    LiveReadError
        If no such query runs, or it has committed no batch.
    SettingsError
        If an argument is bad.
    MissingDependencyError
        If pyspark is not installed.

    Notes
    -----
    Source: the metadata of operators that Spark keeps in a checkpoint. A query that began with a
    Spark older than 4.0 has none, and this returns none of its operators.

    Examples
    --------
    >>> import statemark
    >>> [(operator.number, operator.name) for operator in statemark.operators(query)]
    ... # doctest: +SKIP
    [(0, 'stateStoreSave')]
    """
    found = queries.rows(query, what="operators", timeout=timeout)
    return sorted(
        (
            Operator(
                number=row.operator_id,
                name=row.name,
                key_columns=tuple(row.key_columns),
                sides=tuple(row.sides),
                state_variables=tuple(row.state_variables),
                stores=tuple(row.stores),
                key_problem=row.key_problem,
                provider_note=row.provider_note,
            )
            for row in found
        ),
        key=lambda operator: operator.number,
    )


def number_of(query: Query, operator: int | str, *, timeout: float | str | None = None) -> int:
    """Return the number of a stateful operator that a read names.

    Parameters
    ----------
    query : StreamingQuery, UUID or str
        The query, its id, or its name.
    operator : int or str
        Its number, or Spark's name of it. For a number the query is not asked.
    timeout : float or str, optional
        As for `operators`.

    Returns
    -------
    int
        The number.

    Raises
    ------
    LiveReadError
        If none of the query's operators, or more than one, has the name; or as `operators`.
    SettingsError
        If `operator` is neither a number nor a name.
    """
    check_operator(operator)
    if isinstance(operator, int):
        return operator
    return chosen_of(query, operator, operators(query, timeout=timeout))


def check_operator(operator: object) -> None:
    """Refuse what is neither a number nor a name, before any query is asked.

    Raises
    ------
    SettingsError
        If it is neither.
    """
    if isinstance(operator, bool) or not isinstance(operator, int | str):
        problem = f"bad operator {operator!r}"
        raise SettingsError(
            problem,
            reason=f"a {type(operator).__name__} is neither a number nor a name",
            remedy="pass a number or a name of `statemark.operators(query)`",
        )
    if isinstance(operator, int):
        _check_number("operator", operator)


def _check_number(name: str, number: int) -> None:
    if number < 0:
        problem = f"bad {name} {number}"
        raise SettingsError(
            problem, reason="operators are counted from 0", remedy="pass a number from 0 on"
        )


def check_store(
    *,
    operator_id: int = 0,
    store_name: str | None,
    state_var_name: str | None,
    join_side: str | None,
) -> None:
    """Refuse what names no store of an operator, before any query is asked.

    Raises
    ------
    SettingsError
        If a value is of another type, or no operator can have it.
    """
    arguments.refuse_type("operator_id", operator_id, Integral, remedy="pass a number from 0 on")
    _check_number("operator_id", operator_id)
    names = {"store_name": store_name, "state_var_name": state_var_name, "join_side": join_side}
    for name, value in names.items():
        if value is not None:
            arguments.refuse_type(name, value, str, remedy="pass a name that `operators` shows")
    if join_side not in (None, *_SIDES):
        problem = f"bad join_side {join_side!r}"
        raise SettingsError(problem, reason="a join has two sides", remedy="pass 'left' or 'right'")


def chosen_of(query: Query, wanted: int | str, found: list[Operator]) -> int:
    """Return the number of the operator among those of a query that a read names.

    Raises
    ------
    LiveReadError
        If none of them, or more than one, is meant.
    """
    numbers = [one.number for one in found if wanted in (one.number, one.name)]
    if len(numbers) == 1:
        return numbers[0]
    problem = f"query {queries.shown(queries.option_of(query))} was not read"
    if not found:
        raise InvalidInputError(
            problem,
            reason="it has no stateful operator, and so no state to read",
            remedy="read the table that it writes",
        )
    there = ", ".join(f"{one.number} ({one.name})" for one in found)
    raise LiveReadError(
        problem,
        reason=f"{len(numbers) or 'none'} of its stateful operators is {wanted!r}: {there}",
        remedy="pass the number of one of them as `operator`",
    )
