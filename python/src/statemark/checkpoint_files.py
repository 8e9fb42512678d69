"""Reads a checkpoint on this machine's disks, without a JVM.

What a start needs is told by the two logs, and by the names and sizes of files: `statemark verify`
reads them to their ends.
"""

from __future__ import annotations

from pathlib import Path

from statemark.checkpoint_facts import Checkpoint
from statemark.checkpoint_logs import Log, Logs
from statemark.checkpoint_reading import DamagedError, json_object, lines
from statemark.checkpoint_stores import Stores

#: A query that runs deletes files that were listed a moment before.
_MOST_READINGS = 5


class NoCheckpointError(Exception):
    """A directory that is no checkpoint of a query."""

    def __init__(self) -> None:
        super().__init__("it has no file 'metadata', and nothing in 'offsets' and 'commits'")


def read(root: Path) -> Checkpoint:
    """Read a checkpoint on this machine's disks, whose query may run meanwhile.

    What is gone or damaged counts where two readings in a row say the same.

    Parameters
    ----------
    root : pathlib.Path
        Its directory.

    Returns
    -------
    Checkpoint
        The checkpoint.

    Raises
    ------
    NoCheckpointError
        If it has neither logs nor the file with the query's id.
    OSError
        If a directory of it may not be read.
    """
    before: object = None
    for is_last in (*(False,) * (_MOST_READINGS - 1), True):
        try:
            found = _read(root)
        except FileNotFoundError:
            # A directory that was listed is gone.
            if is_last:
                raise
            continue
        told = found.planned, found.committed, found.troubles
        if is_last or not any(found.troubles) or told == before:
            break
        before = told
    return found


def _read(root: Path) -> Checkpoint:
    # The query plans a batch before it commits it.
    commits = Log(root, "commits")
    offsets = Log(root, "offsets")
    metadata = root / "metadata"
    if not offsets.batches and not commits.batches and not metadata.is_file():
        raise NoCheckpointError
    planned, committed = offsets.newest, commits.newest
    logs = Logs(offsets, commits)
    stores = Stores(root, commits, logs.partitions)
    found = tuple(stores.all()) if committed is not None else ()
    own = root / "_statemark"
    return Checkpoint(
        location=str(root),
        query_id=_query_id(metadata),
        planned=planned,
        committed=committed,
        conf=logs.conf,
        format=commits.format,
        stores=found,
        missing=(*logs.missing, *stores.missing),
        uncommitted=logs.uncommitted,
        damaged=tuple(logs.damaged),
        unfinished=tuple(
            str(path)
            for path in sorted(own.glob("switch-*"))
            if (path / "manifest.json").is_file()
            and not any((path / mark).exists() for mark in ("finished", "undone"))
        ),
        repartition=logs.repartition,
        owners=tuple(str(path) for path in sorted(own.glob("owner-*"))),
        switched_ns=_modified_ns(own / "mark"),
        batch_s=commits.step_s,
    )


def _modified_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def _query_id(path: Path) -> str | None:
    try:
        found = json_object(next(iter(lines(path, count=1)), ""))
    except DamagedError:
        return None
    return str(found["id"]) if "id" in found else None
