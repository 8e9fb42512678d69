"""Directories of a store on this machine, as their lock files tell."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from statemark.checkpoint_reading import is_directory
from statemark.units import number

#: FORMAT.md, "Local directory": the place of the lock that shows that a home is in use.
_LOCK = "owner.lock"
_PRESENCE = 1
_LONGEST_NOTE = 100
_TEMPORARY = "temporary-"


@dataclass(frozen=True)
class Home:
    """A directory of a store, as its lock file tells.

    Attributes
    ----------
    version : int or None
        The version that is on disk; None where the directory is of no use.
    in_use : bool
        Whether some process has it open.
    problem : str
        Why it is of no use; empty where it may be used.
    """

    version: int | None
    in_use: bool
    problem: str


def homes_in(folder: Path, *, switched_ns: int | None = None) -> Iterator[Home]:
    """Yield the directories that earlier processes have left of a store.

    Parameters
    ----------
    folder : pathlib.Path
        The directory of the store.
    switched_ns : int or None
        When the query's provider was switched last: a directory that was last flushed before is of
        no use. The JVM knows it by the checkpoint's mark, which only RocksDB can read.

    Yields
    ------
    Home
        One of them; those that a process deletes meanwhile are left out.
    """
    if not is_directory(folder) or folder.is_symlink():
        return
    if not all(_is_own(step) for step in (folder.parent, folder)):
        yield Home(None, in_use=False, problem="the local directory is another user's")
        return
    try:
        found = sorted(folder.iterdir())
    except OSError:
        yield Home(None, in_use=False, problem="the local directory cannot be read")
        return
    for path in found:
        # A process that runs deletes homes meanwhile.
        with contextlib.suppress(OSError):
            yield from _home(path, switched_ns)


def _home(path: Path, switched_ns: int | None) -> Iterator[Home]:
    lock = path / _LOCK
    if path.is_symlink() or path.name.startswith(_TEMPORARY) or not _is_regular(lock):
        return
    if not all(_is_own(step) for step in (path, path / "base") if step.exists()):
        yield Home(None, in_use=False, problem="the local directory is another user's")
    elif not _is_regular(path / "base" / "CURRENT"):
        yield Home(None, in_use=False, problem="the local directory holds no RocksDB")
    elif switched_ns is not None and lock.stat().st_mtime_ns < switched_ns:
        why = "the local directory is older than the last switch of providers"
        yield Home(None, _is_held(lock), why)
    else:
        # At 0 its first version has not gone to disk.
        version = number(_note(lock)) or None
        problem = "" if version else "the local directory has no version on disk"
        yield Home(version, _is_held(lock), problem)


def _is_own(path: Path) -> bool:
    """Tell whether a path is a directory of this user; no link is followed."""
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _is_regular(path: Path) -> bool:
    """Tell whether a path is a regular file: whoever opens a pipe waits for ever."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _note(lock: Path) -> str:
    with lock.open("rb") as file:
        return file.read(_LONGEST_NOTE).decode(errors="replace").strip()


def _is_held(lock: Path) -> bool:
    """Tell whether a process shows that it uses a home; keeps no process from taking it."""
    import fcntl  # which Windows lacks

    with lock.open("rb") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, _PRESENCE)
        except OSError:
            return True
        return False  # the lock ends with the file
