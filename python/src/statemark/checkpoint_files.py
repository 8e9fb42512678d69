"""Reads a checkpoint on this machine's disks, without a JVM.

What a start needs is told by the two logs, and by the names and sizes of files: `statemark verify`
reads them to their ends.
"""

from __future__ import annotations

import json
from pathlib import Path

from statemark.checkpoint_facts import Checkpoint
from statemark.checkpoint_logs import Log, Logs
from statemark.checkpoint_stores import Stores


class NoCheckpointError(Exception):
    """A directory that is no checkpoint of a query."""

    def __init__(self) -> None:
        super().__init__("it has no file 'metadata', and nothing in 'offsets' and 'commits'")


def read(root: Path) -> Checkpoint:
    """Read a checkpoint on this machine's disks.

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
    offsets, commits = Log(root, "offsets"), Log(root, "commits")
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
        damaged=tuple(logs.damaged),
        unfinished=tuple(
            str(path)
            for path in sorted(own.glob("switch-*"))
            if (path / "manifest.json").is_file()
            and not any((path / mark).exists() for mark in ("finished", "undone"))
        ),
        repartition=logs.repartition,
        owners=tuple(str(path) for path in sorted(own.glob("owner-*"))),
        batch_s=commits.step_s,
    )


def _query_id(path: Path) -> str | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return str(found["id"]) if isinstance(found, dict) and "id" in found else None
