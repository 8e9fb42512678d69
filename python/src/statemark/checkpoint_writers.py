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

_SIGNATURE = struct.Struct(">4sbqbi")
_MAGIC = b"SMcl"
_BEFORE_OWN = 1
_SNAPSHOT_SIGNATURE = b"statemark"
_OPTIONS = b"OPTIONS-"
_NAMES_UNSIGNED = struct.Struct(">bbqi")
_NAMES_SIGNED = struct.Struct(">bbq")
#: The last block of a changelog that was written to its end with LZ4, the default codec.
_LZ4_END = b"LZ4Block"
_LZ4_END_SIZE = 21
#: Signatures of the headers of a zip, and where the name of the entry stands behind them.
_HEADERS = ((b"PK\x03\x04", 30), (b"PK\x01\x02", 46))
_FOREIGN: Final = "foreign"
_UNKNOWN: Final = "unknown"


@dataclass(frozen=True)
class _Own:
    """A snapshot of Statemark's, and the changelog that it names, if any.

    Attributes
    ----------
    length : int or None
        Its length, where it has no signature.
    number : int or None
        The number in its signature.
    """

    length: int | None = None
    number: int | None = None


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
            Whether it is Statemark's, and another run has written its changelog anew since.
        """
        if version not in self.changelogs:
            return False
        writer = self._writer(version)
        if not isinstance(writer, _Own):
            return False
        signature = self._signature(version)
        if writer.number is not None:
            if signature is None:
                return self._is_whole(version)
            return signature[0] >> 32 != writer.number >> 32  # of another run
        if writer.length is None:
            return False
        if signature is not None:
            return True
        return writer.length != self.changelogs[version][1] and self._is_whole(version)

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
        signature = self._signature(version)
        return None if signature is None else signature[1]

    def _signature(self, version: int) -> tuple[int, int] | None:
        """Return the number in a changelog's signature and what it says of the version before."""
        end = self._end(version, _SIGNATURE.size)
        if len(end) == _SIGNATURE.size:
            magic, kind, number, before, _ = _SIGNATURE.unpack(end)
            if (magic, kind) == (_MAGIC, 1):
                return int(number), int(before)
        return None

    def _is_whole(self, version: int) -> bool:
        """Tell whether a changelog without a signature ends as Spark's provider ends one."""
        return self._end(version, _LZ4_END_SIZE).startswith(_LZ4_END)

    def _end(self, version: int, size: int) -> bytes:
        if version in self.changelogs:
            path, length = self.changelogs[version]
            with contextlib.suppress(OSError), path.open("rb") as file:
                file.seek(-min(size, length), 2)
                return file.read(size)
        return b""

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
    if _names(data, _SNAPSHOT_SIGNATURE):
        return _named(path)
    return _FOREIGN if _names(data, _OPTIONS) else _UNKNOWN


def _names(data: bytes, prefix: bytes) -> bool:
    for signature, name_at in _HEADERS:
        at = data.find(signature)
        while at >= 0:
            if data.startswith(prefix, at + name_at):
                return True
            at = data.find(signature, at + 1)
    return False


def _named(path: Path) -> _Own:
    with contextlib.suppress(
        OSError, ValueError, LookupError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error
    ):
        with zipfile.ZipFile(path) as image:
            signature = image.read(_SNAPSHOT_SIGNATURE.decode())
        if signature[:2] == b"\x01\x01" and len(signature) == _NAMES_UNSIGNED.size:
            return _Own(length=int(_NAMES_UNSIGNED.unpack(signature)[2]))
        if signature[:2] == b"\x01\x02" and len(signature) == _NAMES_SIGNED.size:
            return _Own(number=int(_NAMES_SIGNED.unpack(signature)[2]))
    return _Own()
