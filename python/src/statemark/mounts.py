"""Which file system a path is on, as Linux tells."""

from __future__ import annotations

import re
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")


def kind_of(path: Path) -> str | None:
    """Return the type of the file system that a path is on.

    Parameters
    ----------
    path : pathlib.Path
        Something that exists.

    Returns
    -------
    str or None
        As ``ext4``; None where the system does not say it.
    """
    if not _MOUNTS.is_file():
        return None
    wanted = path.resolve()
    found: tuple[int, str] | None = None
    for line in _MOUNTS.read_text(errors="replace").splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        mount = Path(_ESCAPED.sub(lambda code: chr(int(code[1], 8)), fields[4]))
        depth = len(mount.parts)
        # Of two on one place, the later one is what a process sees.
        if wanted.is_relative_to(mount) and (found is None or depth >= found[0]):
            found = (depth, right.split(" ")[0])
    return found[1] if found else None
