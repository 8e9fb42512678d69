"""Which provider has written the files of a version, where these may be of two histories.

In checkpoint format v1 Spark's provider may write the snapshot of a version and leave a changelog
standing of a history that was rolled back, or the other way about. FORMAT.md says how signatures
tell.
"""

from __future__ import annotations

import contextlib
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_MARK = struct.Struct(">4sbqbi")
_MAGIC = b"SMcl"
_BEFORE_OWN = 1
_SNAPSHOT_MARK = b"statemark"
_OPTIONS = b"OPTIONS-"
_NAMES_CHANGELOG = struct.Struct(">bbqi")
#: Signatures of the headers of a zip, and where the name of the entry stands behind them.
_HEADERS = ((b"PK\x03\x04", 30), (b"PK\x01\x02", 46))
_FOREIGN: Final = "foreign"
_UNKNOWN: Final = "unknown"


@dataclass(frozen=True)
class _Own:
    """A snapshot of Statemark's, and the length of the changelog that it names, if any."""

    changelog: int | None


@dataclass(frozen=True)
class Writers:
    """The writers of a store's files in checkpoint format v1, as these tell.

    Attributes
    ----------
    snapshots : dict of int to pathlib.Path
        The zips by version.
    changelogs : dict of int to tuple
        The changelogs and their sizes by version.
    """

    snapshots: Mapping[int, Path]
    changelogs: Mapping[int, tuple[Path, int]]
    _known: dict[int, _Own | str] = field(default_factory=dict, compare=False)

    def is_stale(self, version: int) -> bool:
        """Tell whether the snapshot of a version is of a history that was rolled back.

        Parameters
        ----------
        version : int
            A version with a snapshot.

        Returns
        -------
        bool
            Whether it is Statemark's, and Spark's provider has written its changelog since.
        """
        if version not in self.changelogs:
            return False
        writer = self._writer(version)
        length = self.changelogs[version][1]
        named = writer.changelog if isinstance(writer, _Own) else None
        return named is not None and named != length and self._before(version) is None

    def overtaken(self, snapshot: int, at: int) -> int | None:
        """Return the first changelog from a snapshot on that is of a history that was rolled back.

        Parameters
        ----------
        snapshot : int
            The version of the snapshot; 0 for the empty store.
        at : int
            The version to which changelogs lead.

        Returns
        -------
        int or None
            Its version; None where there is none, and the changelogs lead there.
        """
        if (
            0 < snapshot < at
            and self._writer(snapshot) == _FOREIGN
            and self._before(snapshot + 1) == _BEFORE_OWN
        ):
            return snapshot + 1
        both = sorted(self.snapshots.keys() & self.changelogs.keys())
        return next(
            (
                version
                for version in both
                if snapshot < version <= at
                and self._writer(version) == _FOREIGN
                and self._before(version) is not None
            ),
            None,
        )

    def _before(self, version: int) -> int | None:
        """Return what a changelog's signature says of the version before; None without one."""
        if version not in self.changelogs:
            return None
        with contextlib.suppress(OSError), self.changelogs[version][0].open("rb") as file:
            file.seek(-min(_MARK.size, self.changelogs[version][1]), 2)
            end = file.read(_MARK.size)
            if len(end) == _MARK.size:
                magic, kind, of, before, _ = _MARK.unpack(end)
                if (magic, kind, of) == (_MAGIC, 1, version):
                    return int(before)
        return None

    def _writer(self, version: int) -> _Own | str:
        if version not in self._known:
            path = self.snapshots.get(version)
            self._known[version] = _UNKNOWN if path is None else _writer_of(path)
        return self._known[version]


def _writer_of(path: Path) -> _Own | str:
    """Return who has uploaded a zip, which may be damaged: the names in its headers tell."""
    try:
        data = path.read_bytes()
    except OSError:
        return _UNKNOWN
    if _names(data, _SNAPSHOT_MARK):
        return _Own(_named(path))
    return _FOREIGN if _names(data, _OPTIONS) else _UNKNOWN


def _names(data: bytes, prefix: bytes) -> bool:
    for signature, name_at in _HEADERS:
        at = data.find(signature)
        while at >= 0:
            if data.startswith(prefix, at + name_at):
                return True
            at = data.find(signature, at + 1)
    return False


def _named(path: Path) -> int | None:
    with contextlib.suppress(
        OSError, ValueError, LookupError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error
    ):
        with zipfile.ZipFile(path) as image:
            signature = image.read(_SNAPSHOT_MARK.decode())
        if len(signature) == _NAMES_CHANGELOG.size:
            kind, has_one, length, _ = _NAMES_CHANGELOG.unpack(signature)
            if (kind, has_one) == (1, 1):
                return int(length)
    return None
