"""Java properties files, the format of ``spark-defaults.conf``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from statemark.errors import SettingsError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = str.maketrans({"\\": "\\\\"} | {c: f"\\{name}" for name, c in _ESCAPES.items()})
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_PROPERTY = re.compile(r"((?:\\.|[^\\\s:=])*)(?:\s*[:=]\s*|\s+)?(.*)", re.DOTALL)


def read(path: Path) -> dict[str, str]:
    """Read a file as Spark does: UTF-8, values without surrounding blanks.

    Parameters
    ----------
    path : pathlib.Path
        The file.

    Returns
    -------
    dict of str to str
        Values by key; empty if there is no such file.

    Raises
    ------
    SettingsError
        If the file cannot be read.
    """
    try:
        whole = path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        problem = f"the file of settings {path} cannot be read"
        remedy = "let this user read it, or name another file"
        raise SettingsError(problem, reason=str(error.strerror), remedy=remedy) from error
    settings: dict[str, str] = {}
    logical = ""
    for line in [*whole.splitlines(), ""]:
        text = line.lstrip()
        if not logical and text.startswith(("#", "!")):
            continue
        logical += text
        backslashes = len(logical) - len(logical.rstrip("\\"))
        if backslashes % 2:
            logical = logical[:-1]  # goes on in the next line
            continue
        parsed = _PROPERTY.fullmatch(logical)
        if logical and parsed:
            settings[_unescape(parsed[1])] = _unescape(parsed[2]).strip()
        logical = ""
    return settings


def write(settings: Mapping[str, str]) -> str:
    r"""Return settings as the text of a file that `read` and Spark read back.

    Parameters
    ----------
    settings : Mapping
        Values by key; keys as Spark's are, without blanks.

    Returns
    -------
    str
        One line for each setting, with a line feed after the last.

    Examples
    --------
    >>> from statemark import properties
    >>> properties.write({"spark.jars": "/my jars/a.jar"})
    'spark.jars /my jars/a.jar\n'
    """
    return "".join(f"{key} {value.translate(_ESCAPED)}\n" for key, value in settings.items())


def _unescape(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        return chr(int(found[1], 16)) if found[1] else _ESCAPES.get(found[2], found[2])

    return _ESCAPE.sub(plain, text)
