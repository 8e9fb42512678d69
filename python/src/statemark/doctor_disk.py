"""The local directory: its kind, its room, and whose it is."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from statemark import doctor_kinds as kinds
from statemark import mounts, settings, units
from statemark.checkpoint_reading import is_directory
from statemark.doctor_findings import Finding, size_text

if TYPE_CHECKING:
    from statemark.doctor_situation import Situation

_IN_MEMORY = frozenset(("tmpfs", "ramfs"))
_ON_NETWORK = frozenset(
    ("9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "glusterfs", "gpfs", "lustre", "nfs", "nfs4")
) | frozenset(
    ("smb3", "smbfs", "fuse.gcsfuse", "fuse.glusterfs", "fuse.goofys", "fuse.s3fs", "fuse.sshfs")
)
_LEAST_ROOM = 1024**3
#: Of a store after four flushes (docs/restarts.md).
_HANDLES = 16


@dataclass(frozen=True)
class Disk:
    """The file system of the local directory.

    Attributes
    ----------
    path : str
        The local directory.
    is_named : bool
        Whether ``localDir`` names it; else it is the user's cache directory.
    kind : str or None
        The type of the file system, as ``ext4``; None where the system does not say it.
    free_bytes, total_bytes : int or None
        What this user may still write, and the size of the file system; None where the directory is
        not on this machine.
    """

    path: str
    is_named: bool
    kind: str | None
    free_bytes: int | None
    total_bytes: int | None


def look(about: Situation) -> Disk | None:
    """Look at the local directory.

    Parameters
    ----------
    about : Situation
        The settings that name it.

    Returns
    -------
    Disk or None
        None where stores do not outlive their process.
    """
    root = about.local_dir
    if root is None:
        return None
    is_named = bool(about.own(settings.LOCAL_DIR))
    there = _existing(root)
    # On a cluster the directory may be on other machines alone.
    if not about.is_local and there != root:
        return Disk(str(root), is_named, None, None, None)
    usage = shutil.disk_usage(there)
    return Disk(str(root), is_named, mounts.kind_of(there), usage.free, usage.total)


def findings(about: Situation, disk: Disk | None, *, download_bytes: int) -> list[Finding]:
    """Return what is odd with the local directory.

    Parameters
    ----------
    about : Situation
        The settings that name it.
    disk : Disk or None
        What `look` has found.
    download_bytes : int
        What a restart on this machine would download.

    Returns
    -------
    list of Finding
        In the order of the table of kinds.
    """
    if disk is None or disk.free_bytes is None:
        return []
    root = Path(disk.path)
    refused = list(_refused(root, disk))
    if refused:
        return refused
    return [
        *_foreign(root, about),
        *_open(root),
        *_kinds(disk),
        *_room(disk, download_bytes if about.is_local else 0),
        *_limit(about),
        *_handles(about),
    ]


def _refused(root: Path, disk: Disk) -> Iterator[Finding]:
    there = _existing(root)
    reason = None
    if not root.is_absolute():
        reason = "this user has no home directory"
    elif not is_directory(there):
        reason = f"{there} is no directory"
    elif not os.access(there, os.W_OK | os.X_OK):
        reason = f"this user may not write to {there}"
    else:
        try:
            root.stat()
        except FileNotFoundError:
            pass  # the first store makes it
        except OSError as error:
            reason = str(error.strerror)
    if reason and disk.is_named:
        yield kinds.LOCAL_DIR_REFUSED.found(
            f"{settings.LOCAL_DIR.key} is {root}, where no store can lie",
            reason=reason,
            remedy="name a directory that Spark's user may write to, or let the user write to it",
            localDir=str(root),
        )
    elif reason:
        yield kinds.CACHE_DIR_UNUSABLE.found(
            f"{root}, the user's cache directory, cannot hold stores",
            reason=f"{reason}; stores lie in Spark's local directories and end with the process,"
            " so that a restart loads them from the checkpoint",
            remedy=f"name a directory in {settings.LOCAL_DIR.key}",
            localDir=str(root),
        )


def _foreign(root: Path, about: Situation) -> Iterator[Finding]:
    """Find what the plugin would refuse on the way from the root to a store (docs/restarts.md)."""
    query = about.checkpoint.query_id if about.checkpoint else None
    if query is None or not is_directory(root):
        return
    for step in _steps(root / query):
        reason = _problem(step)
        if reason:
            yield kinds.LOCAL_DIR_FOREIGN.found(
                f"{step} lies where a directory of stores has to be",
                reason=f"{reason}; whoever else may write there could read the state, or forge it",
                remedy="look at who put it there and remove it, or name another directory in"
                f" {settings.LOCAL_DIR.key}",
                path=str(step),
            )
            return


def _steps(top: Path) -> Iterator[Path]:
    """Yield a query's directory, those of its stores and homes, none below one that is refused."""
    yield top
    # Nothing below another user's can be told, nor below a name that is too long.
    if is_directory(top) and os.access(top, os.R_OK | os.X_OK) and _problem(top) is None:
        for store in sorted(top.iterdir()):
            yield store
            # A process that runs deletes directories meanwhile.
            with contextlib.suppress(FileNotFoundError, PermissionError):
                if _problem(store) is None:
                    yield from sorted(store.iterdir())


def _problem(path: Path) -> str | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    if stat.S_ISLNK(found.st_mode):
        return f"it is a link to {path.readlink()}"
    if not stat.S_ISDIR(found.st_mode):
        return "it is no directory"
    if found.st_uid != os.geteuid():
        return f"it belongs to user {found.st_uid} and not to {os.geteuid()}"
    return None


def _open(root: Path) -> Iterator[Finding]:
    if not is_directory(root):
        return
    mode = root.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        yield kinds.LOCAL_DIR_OPEN.found(
            f"{root} has mode {stat.S_IMODE(mode):04o}",
            reason="all users may rename the directory of a store while a process uses it",
            remedy=f"set its sticky bit: chmod +t {root}",
            mode=f"{stat.S_IMODE(mode):04o}",
        )


def _kinds(disk: Disk) -> Iterator[Finding]:
    if disk.kind in _IN_MEMORY:
        yield kinds.LOCAL_DIR_IN_MEMORY.found(
            f"{disk.path} is on a {disk.kind}",
            reason="its files take memory that no budget counts, and are gone after a reboot",
            remedy=f"name a directory on a disk in {settings.LOCAL_DIR.key}",
            kind=disk.kind,
        )
    if disk.kind in _ON_NETWORK:
        yield kinds.LOCAL_DIR_ON_NETWORK.found(
            f"{disk.path} is on {disk.kind}, a network file system",
            reason="each lookup that memory does not answer is a call over the network, and locks"
            " of directories count on what one machine sees",
            remedy=f"name a directory on a disk of the machine in {settings.LOCAL_DIR.key}",
            kind=disk.kind,
        )


def _room(disk: Disk, download_bytes: int) -> Iterator[Finding]:
    wanted = max(download_bytes, _LEAST_ROOM)
    if disk.free_bytes is not None and disk.free_bytes < wanted:
        why = (
            f"a restart on this machine downloads {size_text(download_bytes)}"
            if download_bytes > _LEAST_ROOM
            else f"less than {size_text(_LEAST_ROOM)} is soon full"
        )
        yield kinds.LOCAL_DIR_FULL.found(
            f"{disk.path} has room for {size_text(disk.free_bytes)}",
            reason=f"{why}; where a disk is full, tasks fail",
            remedy="make room, as with `statemark local --prune`, or name a directory on another"
            f" disk in {settings.LOCAL_DIR.key}",
            freeBytes=disk.free_bytes,
            wantedBytes=wanted,
        )


def _limit(about: Situation) -> Iterator[Finding]:
    limit = units.size_bytes(about.own(settings.LOCAL_DIR_MAX_BYTES))
    stores = about.checkpoint.stores if about.checkpoint else ()
    state = sum(store.snapshot_bytes or 0 for store in stores)
    if limit is not None and about.is_local and state > limit:
        yield kinds.LOCAL_LIMIT_SMALL.found(
            f"{settings.LOCAL_DIR_MAX_BYTES.key} is {size_text(limit)}, and the newest snapshots"
            f" of the checkpoint take {size_text(state)}",
            reason="of stores that no process uses, those above the limit are deleted: a restart"
            " loads them from the checkpoint",
            remedy="raise it above the size of the state",
            limitBytes=limit,
            stateBytes=state,
        )


def _handles(about: Situation) -> Iterator[Finding]:
    stores = len(about.checkpoint.stores) if about.checkpoint else 0
    most = _most_handles() if about.is_local and stores else None
    if most is not None and stores * _HANDLES > most:
        yield kinds.HANDLES_FEW.found(
            f"{stores} stores take about {stores * _HANDLES} file handles, and a process may have"
            f" {most}",
            reason=f"a store has {_HANDLES} after four flushes; where there are none left, tasks"
            " fail",
            remedy="raise the hard limit (ulimit -Hn), or set"
            " spark.sql.streaming.stateStore.rocksdb.maxOpenFiles",
            handles=stores * _HANDLES,
            limit=most,
        )


def _most_handles() -> int | None:
    """Return the hard limit of this user's processes: Java raises its own to it."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return None
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return None if most == resource.RLIM_INFINITY else most


def _existing(path: Path) -> Path:
    """Return a path, or the nearest one above it that exists."""
    return next((one for one in (path, *path.parents) if _exists(one)), Path("/"))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name may be too long, or a directory above it closed to this user
        return False
