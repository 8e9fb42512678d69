"""The one JSON object that a command with ``--json`` prints, whatever its outcome."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from statemark.errors import StatemarkError


#: Version of the keys of every object; `CommandContext.Schema` in the JVM.
_SCHEMA = 1


def of(values: Mapping[str, object]) -> str:
    """Return the object of a command, which begins with the version of its keys.

    Parameters
    ----------
    values : Mapping
        What comes after it.

    Returns
    -------
    str
        A JSON object on one line.
    """
    return json.dumps({"schema": _SCHEMA, **values})


def of_error(error: StatemarkError) -> str:
    """Return the object of a command that has failed.

    Parameters
    ----------
    error : StatemarkError
        The error.

    Returns
    -------
    str
        A JSON object on one line.
    """
    told = {"problem": error.problem, "reason": error.reason, "remedy": error.remedy}
    return of({"error": told})


def only(run: Callable[[IO[bytes] | None], int]) -> tuple[int, bool]:
    """Run a process, and print of its output the JSON object alone.

    What else there is, as a user's spark-env.sh may print it, goes to standard error.

    Parameters
    ----------
    run : callable
        Runs the process with the file as its standard output, and returns its exit code.

    Returns
    -------
    tuple of int and bool
        Its exit code, and whether it has printed an object.
    """
    with tempfile.TemporaryFile() as output:
        code = run(output)
        output.seek(0)
        lines = output.read().decode(errors="replace").splitlines()
    told = found(lines)
    for line in lines:
        if line != told:
            sys.stderr.write(f"{line}\n")
    if told is not None:
        sys.stdout.write(f"{told}\n")
    return code, told is not None


def found(lines: Sequence[str]) -> str | None:
    """Return the JSON object among the lines that a process has printed.

    Parameters
    ----------
    lines : sequence of str
        Its standard output.

    Returns
    -------
    str or None
        The last line that is one; None where none is.
    """
    return next((line for line in reversed(lines) if _is_object(line)), None)


def _is_object(line: str) -> bool:
    if not line.startswith("{"):
        return False
    try:
        return "schema" in json.loads(line)
    except ValueError:
        return False
