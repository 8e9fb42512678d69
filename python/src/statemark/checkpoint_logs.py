"""The logs of a checkpoint on this machine's disks: what a start reads of them."""

from __future__ import annotations

import contextlib
import os
import re
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from statemark.checkpoint_facts import PARTITIONS, Damage
from statemark.checkpoint_reading import DamagedError, is_directory, json_object, lines
from statemark.units import number

#: For each operator by its number, the ids of its stores by partition.
Ids = dict[str, list[list[str]]]
#: More than any query has.
_MOST_PARTITIONS = 1_000_000


class Log:
    """A log of Spark's: a file for each batch, whose first line is a version."""

    def __init__(self, root: Path, name: str) -> None:
        self.folder = root / name
        names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        self.batches = sorted({one for one in map(number, names) if one is not None})
        # Each store asks for those of all its files.
        self._ids: dict[int, Ids | None] = {}

    @property
    def newest(self) -> int | None:
        """The newest batch; None where the log is empty."""
        return self.batches[-1] if self.batches else None

    def entry(self, batch: int) -> dict[str, Any]:
        """Return the first object of an entry, or raise DamagedError."""
        version, rest, *_ = *lines(self.folder / str(batch), count=2), "", ""
        if not re.fullmatch(r"v\d+", version.strip()):
            problem = f"it begins with {version[:20]!r} and not with a version"
            raise DamagedError(problem)
        return json_object(rest or "{}")

    @cached_property
    def format(self) -> int | None:
        """The checkpoint format of the newest batch; None where the log is empty."""
        if self.newest is None:
            return None
        return 2 if self.ids(self.newest) is not None else 1

    def ids(self, batch: int) -> Ids | None:
        """Return the ids of versions that a batch has committed, in checkpoint format v2."""
        if batch not in self._ids:
            try:
                self._ids[batch] = _ids(self.entry(batch))
            except DamagedError:
                self._ids[batch] = None
        return self._ids[batch]

    @property
    def step_s(self) -> float | None:
        """Return the median time from one commit to the next: a query may have been stopped."""
        times = []
        for batch in self.batches[-20:]:
            # A query that runs deletes old entries meanwhile.
            with contextlib.suppress(OSError):
                times.append((self.folder / str(batch)).stat().st_mtime)
        steps = sorted(later - before for before, later in pairwise(times))
        return steps[len(steps) // 2] if steps else None


def _ids(entry: dict[str, Any]) -> Ids | None:
    """Return the ids of an entry, None where it has none; or raise DamagedError."""
    found = entry.get("stateUniqueIds")
    if not found:
        return None
    is_whole = isinstance(found, dict) and all(
        isinstance(partitions, list) and all(isinstance(ids, list) for ids in partitions)
        for partitions in found.values()
    )
    if not is_whole:
        problem = f"its stateUniqueIds are {str(found)[:80]}"
        raise DamagedError(problem)
    return dict(found)


def _has_ids(commits: Log) -> bool:
    """Tell whether a checkpoint has format v2, whose commit log says which files count."""
    if commits.newest is not None:
        return commits.format == 2
    state = commits.folder.parent / "state/0/0"
    return is_directory(state) and any("_" in path.stem[1:] for path in state.iterdir())


class Logs:
    """What a start reads of both logs."""

    def __init__(self, offsets: Log, commits: Log) -> None:
        self.missing: list[str] = []
        self.uncommitted: str | None = None
        self.damaged: list[Damage] = []
        self.conf: dict[str, str] = {}
        self.partitions: int | None = None
        self.repartition: tuple[str, str] | None = None
        planned, committed = offsets.newest, commits.newest
        folders = [log.folder for log in (offsets, commits)]
        not_one = [one.name for one in folders if os.path.lexists(one) and not is_directory(one)]
        self.damaged += [(name, "it is no directory") for name in not_one]
        if planned is None:
            self.missing += ["offsets"] if committed is not None else []
            return
        self.conf = self._confs(offsets, planned)
        if committed is not None:
            self._ids_of(commits, committed)
            if committed > planned:
                self.missing.append(f"offsets/{committed}")
        # Spark reads the entry before the newest one, too.
        if planned > 0 and planned - 1 not in offsets.batches:
            self.missing.append(f"offsets/{planned - 1}")
        if planned > 0 and (committed is None or committed < planned - 1):
            if _has_ids(commits):
                self.missing.append(f"commits/{planned - 1}")
            else:
                self.uncommitted = f"commits/{planned - 1}"
        before = self.conf
        if planned > 0 and planned - 1 in offsets.batches:
            before = self._confs(offsets, planned - 1)
        numbers = before.get(PARTITIONS, ""), self.conf.get(PARTITIONS, "")
        # Of the last committed batch: an interrupted repartition has pinned another number.
        pinned = numbers[0] if committed == planned - 1 else numbers[1]
        self.partitions = number(pinned)
        if (self.partitions or 0) > _MOST_PARTITIONS:
            self.partitions = None
            self.damaged.append((f"offsets/{planned}", f"it pins {pinned} partitions"))
        if committed == planned - 1 and all(numbers) and numbers[0] != numbers[1]:
            self.repartition = numbers

    def _entry(self, log: Log, batch: int) -> dict[str, Any]:
        try:
            return log.entry(batch)
        except DamagedError as error:
            self.damaged.append((f"{log.folder.name}/{batch}", str(error)))
            return {}

    def _ids_of(self, commits: Log, batch: int) -> None:
        entry = self._entry(commits, batch)
        try:
            _ids(entry)
        except DamagedError as error:
            self.damaged.append((f"{commits.folder.name}/{batch}", str(error)))

    def _confs(self, offsets: Log, batch: int) -> dict[str, str]:
        found = self._entry(offsets, batch).get("conf", {})
        return {key: str(value) for key, value in found.items()} if isinstance(found, dict) else {}
