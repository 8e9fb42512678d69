"""Snapshots of a store: what a load downloads, and whether it can begin with them."""

from __future__ import annotations

import re
import stat
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statemark.checkpoint_reading import DamagedError, json_object
from statemark.units import number

if TYPE_CHECKING:
    from statemark.checkpoint_facts import Damage

#: The metadata of a snapshot name its files, about 100 bytes each.
_LARGEST_METADATA_BYTES = 256 * 1024 * 1024
_SST = re.compile(r"[^/\x00]{1,255}")


@dataclass(frozen=True)
class Snapshot:
    """A snapshot, as far as its zip and the sizes of its SST files tell.

    Attributes
    ----------
    size : int
        Bytes that a load downloads of it.
    rows : int or None
        Rows in it; None where it does not say.
    missing : tuple of str
        Files that it names and that are not there.
    damaged : tuple of Damage
        The snapshot, or files that it names, where they are damaged.
    families : dict of str to object, or None
        The column families by name; None where the metadata cannot be read.
    """

    size: int = 0
    rows: int | None = None
    missing: tuple[str, ...] = ()
    damaged: tuple[Damage, ...] = ()
    families: Mapping[str, object] | None = None

    @property
    def is_whole(self) -> bool:
        """Tell whether a load can begin with it."""
        return not self.missing and not self.damaged

    @classmethod
    def of(cls, path: Path, root: Path) -> Snapshot:
        """Return a snapshot of a checkpoint.

        Parameters
        ----------
        path : pathlib.Path
            Its zip, or its file in the HDFS-backed provider.
        root : pathlib.Path
            The checkpoint, to which names are relative.

        Returns
        -------
        Snapshot
            The snapshot.
        """
        name = str(path.relative_to(root))
        try:
            size = path.stat().st_size
            if path.suffix == ".snapshot":
                return cls(size)  # of the HDFS-backed provider
            found = _metadata(path)
            files = [_named_file(file) for file in found.get("sstFiles", [])]
        except (DamagedError, OSError, TypeError) as error:
            return cls(damaged=((name, str(error)),))
        missing: list[str] = []
        damaged: list[Damage] = []
        for file, wanted in files:
            shared = path.parent / "SSTs" / file
            where = str(shared.relative_to(root))
            size += wanted
            there = _size(shared)
            if there is None:
                missing.append(where)
            elif there != wanted:
                damaged.append((where, f"it has {there} bytes and not {wanted}"))
        families = found.get("columnFamilyMapping")
        return cls(
            size,
            number(found.get("numKeys")),
            tuple(missing),
            tuple(damaged),
            families if isinstance(families, dict) else {},
        )


def older(snapshots: Mapping[int, Path], root: Path) -> tuple[tuple[int, int], ...]:
    """Return the snapshots before the newest one that a load can begin with.

    Changes of column families are in snapshots alone: changelogs do not lead past one.

    Parameters
    ----------
    snapshots : dict of int to pathlib.Path
        The snapshots of a store by version; the newest of them is of no use.
    root : pathlib.Path
        The checkpoint.

    Returns
    -------
    tuple of tuple of int
        Versions and bytes to download, newest first; version 0 is the empty store.
    """
    by_version = {version: Snapshot.of(path, root) for version, path in snapshots.items()}
    later: list[Mapping[str, object]] = []
    found: list[tuple[int, int]] = []
    for version in sorted(by_version, reverse=True):
        snapshot = by_version[version]
        families = snapshot.families
        is_older = version != max(by_version)
        if is_older and snapshot.is_whole and all(one == families for one in later):
            found.append((version, snapshot.size))
        if families is not None:
            later.append(families)
    if all(len(families) <= 1 for families in later):
        found.append((0, 0))
    return tuple(found)


def _metadata(path: Path) -> dict[str, Any]:
    """Return the metadata of a snapshot, or raise DamagedError."""
    if not path.is_file():
        problem = "it is no file"
        raise DamagedError(problem)
    try:
        with zipfile.ZipFile(path) as image:
            if image.getinfo("metadata").file_size > _LARGEST_METADATA_BYTES:
                problem = f"its metadata have more than {_LARGEST_METADATA_BYTES:,} bytes"
                raise DamagedError(problem)
            text = image.read("metadata").decode()
    # A damaged zip may also claim to be encrypted, or packed in another way.
    except (OSError, ValueError, LookupError, EOFError, RuntimeError) as error:
        raise DamagedError(str(error)) from error
    except (zipfile.BadZipFile, zlib.error) as error:
        raise DamagedError(str(error)) from error
    return json_object(text.partition("\n")[2])


def _named_file(file: object) -> tuple[str, int]:
    """Return the name and the size of an SST file that metadata name, or raise DamagedError."""
    name = file.get("dfsSstFileName") if isinstance(file, dict) else None
    size = number(file.get("sizeBytes")) if isinstance(file, dict) else None
    if not isinstance(name, str) or not _SST.fullmatch(name) or size is None:
        problem = f"its metadata have {str(file)[:80]} in place of an SST file"
        raise DamagedError(problem)
    return name, size


def _size(path: Path) -> int | None:
    """Return the size of a file; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None
