"""Reads files of a checkpoint that may be anything: damaged, endless, or gone meanwhile."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

#: The longest line that is read. An entry of a log has a few hundred bytes for each partition.
_LONGEST_BYTES = 64 * 1024 * 1024


class DamagedError(Exception):
    """A file that cannot be read, and why."""


def lines(path: Path, *, count: int) -> list[str]:
    """Return the first lines of a file.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    count : int
        How many lines are wanted.

    Returns
    -------
    list of str
        The lines without their ends; fewer where the file has fewer.

    Raises
    ------
    DamagedError
        If it is no file, cannot be read, is no text, or one of the lines has no end.
    """
    try:
        # A pipe would wait for a writer, and a device may have no end.
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(number, "rb") as file:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                problem = "it is no file"
                raise DamagedError(problem)
            found = [file.readline(_LONGEST_BYTES) for _ in range(count)]
        if any(len(line) == _LONGEST_BYTES for line in found):
            problem = f"a line has more than {_LONGEST_BYTES:,} bytes"
            raise DamagedError(problem)
        return [line.decode().rstrip("\r\n") for line in found if line]
    except (OSError, ValueError) as error:
        raise DamagedError(str(error)) from error


def json_object(text: str) -> dict[str, Any]:
    """Return the JSON object that a text is.

    Parameters
    ----------
    text : str
        The text.

    Returns
    -------
    dict
        The object.

    Raises
    ------
    DamagedError
        If it is none.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedError(str(error)) from error
    if not isinstance(found, dict):
        problem = f"it has {text[:20]!r} and not a JSON object"
        raise DamagedError(problem)
    return found


def is_directory(path: Path) -> bool:
    """Tell whether a path leads to a directory, as far as this user may see.

    Parameters
    ----------
    path : pathlib.Path
        Any path, also one that is too long for the system.

    Returns
    -------
    bool
        False where that cannot be told.
    """
    try:
        return path.is_dir()
    except OSError:
        return False
