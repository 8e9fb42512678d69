"""The stores of a checkpoint on this machine's disks, by the names and sizes of their files."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from statemark import checkpoint_snapshots
from statemark.checkpoint_facts import Store
from statemark.checkpoint_snapshots import Snapshot
from statemark.checkpoint_writers import Writers
from statemark.units import number

if TYPE_CHECKING:
    from statemark.checkpoint_logs import Log

_FILE = re.compile(r"([0-9]+)(?:_([0-9a-fA-F-]+))?\.(zip|changelog|delta|snapshot)")
_SHARED = ("SSTs", "logs")
_SNAPSHOTS = ("zip", "snapshot")
#: A number that a damaged log names may be any: no more missing files of a store are listed.
_MOST_LISTED = 1000
_OF_ANOTHER_HISTORY = "it is of a history that was rolled back"
_LARGEST_SCHEMA_BYTES = 64 * 1024 * 1024


class Stores:
    """The directories of stores."""

    def __init__(self, root: Path, commits: Log, partitions: int | None) -> None:
        self.root, self.commits, self.partitions = root, commits, partitions
        self.version = 0 if commits.newest is None else commits.newest + 1
        self.missing: list[str] = []

    def all(self) -> Iterator[Store]:
        """Yield every partition of every store, by operator and partition."""
        operators = _numbered(self.root / "state")
        self.missing += [f"state/{name}" for name in self._gone({path.name for path in operators})]
        for operator in operators:
            count = self._count(operator)
            there = [d for d in _numbered(operator) if count is None or int(d.name) < count]
            gone = set(range(count or 0)) - {int(directory.name) for directory in there}
            self.missing += [f"state/{operator.name}/{number}" for number in sorted(gone)]
            names: set[str] = set()
            by_partition = {directory: _stores_in(directory) for directory in there}
            for stores in by_partition.values():
                names |= stores.keys()
            for directory, stores in by_partition.items():
                self.missing += [
                    str((directory / name).relative_to(self.root))
                    for name in sorted(names - stores.keys())
                ]
                for name, path in stores.items():
                    yield self._store(int(operator.name), int(directory.name), name, path)

    def _gone(self, there: set[str]) -> list[str]:
        """Return the operators without a directory: Spark numbers them from 0 on."""
        newest = self.commits.newest
        named = set(self.commits.ids(newest) or ()) if newest is not None else set()
        # A query without state has no such directory.
        is_there = os.path.lexists(self.root / "state")
        last = min(max(map(int, there), default=1 if is_there else 0), _MOST_LISTED)
        return sorted({*named, *map(str, range(last))} - there)

    def _count(self, operator: Path) -> int | None:
        """Return the number of partitions of an operator; None where nothing says it.

        Some operators keep all in one partition, whatever the query has and their metadata say.
        """
        batch = self.commits.newest
        ids = None if batch is None else self.commits.ids(batch)
        of_operator = (ids or {}).get(operator.name)
        if of_operator is not None:
            return len(of_operator)
        return 1 if _has_one_key(operator) else self.partitions

    def _store(self, operator: int, partition: int, name: str, directory: Path) -> Store:
        snapshots: dict[int, Path] = {}
        changelogs: dict[int, tuple[Path, int]] = {}
        total = 0
        for path, size in _files(directory):
            named = _FILE.fullmatch(path.name)
            if named is None and path.parent == directory:
                continue  # a checksum file, which Spark may write beside each
            total += size
            if named is None:
                continue
            version = int(named[1])
            if version > self.version or not self._counts(version, named[2], operator, partition):
                continue
            if named[3] in _SNAPSHOTS:
                snapshots[version] = path
            else:
                changelogs[version] = (path, size)
        in_v1 = {version: path for version, path in snapshots.items() if _is_v1_zip(path)}
        writers = Writers(in_v1, changelogs)
        for version in in_v1:
            if writers.is_stale(version):
                del snapshots[version]
        begin = max(snapshots, default=0)
        needed = range(begin + 1, self.version + 1)
        suffix = next((path.suffix for path, _ in changelogs.values()), ".changelog")
        where = directory.relative_to(self.root)
        gone = (f"{where}/{v}{suffix}" for v in needed if v not in changelogs)
        snapshot = Snapshot.of(snapshots[begin], self.root) if begin else Snapshot()
        overtaken = writers.overtaken(begin, self.version)
        damaged = snapshot.damaged
        if overtaken is not None:
            damaged = (*damaged, (f"{where}/{overtaken}.changelog", _OF_ANOTHER_HISTORY))
        older = None
        if not snapshot.is_whole or overtaken is not None:
            older = tuple(
                (version, size)
                for version, size in checkpoint_snapshots.older(snapshots, self.root)
                if writers.overtaken(version, self.version) is None
            )
        return Store(
            operator=operator,
            partition=partition,
            name=name,
            version=self.version,
            snapshot=begin,
            snapshot_bytes=snapshot.size,
            changelogs={version: size for version, (_, size) in changelogs.items()},
            total_bytes=total,
            rows=snapshot.rows,
            missing=(
                *snapshot.missing,
                *itertools.islice(gone, _MOST_LISTED),
            ),
            damaged=damaged,
            older=older,
        )

    def _counts(self, version: int, unique: str | None, operator: int, partition: int) -> bool:
        """Tell whether a file is of the attempt that was committed, where the log still says so."""
        if unique is None:
            return self.commits.format != 2
        ids = self.commits.ids(version - 1) if version - 1 in self.commits.batches else None
        of_operator = (ids or {}).get(str(operator))
        if of_operator is None or partition >= len(of_operator):
            return True
        return unique in of_operator[partition]


def _is_v1_zip(path: Path) -> bool:
    return path.suffix == ".zip" and "_" not in path.name


def _has_one_key(operator: Path) -> bool:
    """Tell whether all rows of an operator have one key: a limit's, or an aggregate's of all rows.

    The schema of keys is the first JSON object in a file of its first partition.
    """
    schema = operator / "0" / "_metadata" / "schema"
    try:
        if schema.stat().st_size > _LARGEST_SCHEMA_BYTES or not schema.is_file():
            return False
        text = schema.read_bytes().decode(errors="replace")
        fields = json.JSONDecoder().raw_decode(text[text.index("{") :])[0]["fields"]
        return all(field["type"] == "void" for field in fields)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _numbered(folder: Path) -> list[Path]:
    """Return the directories that a folder has under numbers, by number."""
    if not folder.is_dir():
        return []
    # Spark writes no zeros before a number.
    found = (path for path in folder.iterdir() if str(number(path.name)) == path.name)
    return sorted(
        (path for path in found if path.is_dir()),
        key=lambda path: int(path.name),
    )


def _stores_in(directory: Path) -> dict[str, Path]:
    """Return the stores of a partition by name: a join has its four one folder deeper."""
    deeper = {
        path.name: path
        for path in sorted(directory.iterdir())
        if path.is_dir() and path.name not in _SHARED and path.name[0] not in "_."
    }
    has_own = any(_FILE.fullmatch(path.name) for path in directory.iterdir())
    return {"default": directory, **deeper} if has_own or not deeper else deeper


def _files(directory: Path) -> Iterable[tuple[Path, int]]:
    """Return the files of a store and their sizes, those of shared folders too."""
    for folder in (directory, *(directory / name for name in _SHARED)):
        if folder.is_dir():
            for path in folder.iterdir():
                if path.name[0] in "_." or path.suffix == ".crc":
                    continue
                # A query that runs deletes old files meanwhile.
                with contextlib.suppress(OSError):
                    found = path.stat()
                    if stat.S_ISREG(found.st_mode):
                        yield path, found.st_size
