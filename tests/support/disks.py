"""Small disks in memory, for tests of disks that are full."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Disk:
    """
    A disk that is mounted on a directory.

    Attributes
    ----------
    directory
        Where it is mounted.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def fill(self) -> None:
        """Leave no byte free."""
        with suppress(OSError), (self.directory / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(b"-" * 4096)

    def grow(self, size: str) -> None:
        """Make room."""
        assert _ran("mount", "-o", f"remount,size={size}", str(self.directory))


@contextmanager
def mounted(directory: Path, size: str) -> Iterator[Disk | None]:
    """
    Mount a disk on a directory, which is created; yield None where this user may not mount.

    Parameters
    ----------
    directory
        Where it is mounted.
    size
        The size, as `mount` takes it.
    """
    directory.mkdir()
    if not _ran("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)):
        yield None
        return
    try:
        yield Disk(directory)
    finally:
        # At once: Hadoop leaves a file open where closing it meets a full disk.
        assert _ran("umount", "-l", str(directory))


def _ran(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False
