"""What `statemark doctor` has looked at: as lines for people, and as JSON for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from statemark import doctor_restart
from statemark.checkpoint_facts import PROVIDER
from statemark.doctor_findings import size_text

if TYPE_CHECKING:
    from statemark.doctor_disk import Disk
    from statemark.doctor_memory import Memory
    from statemark.doctor_restart import Load, Restart
    from statemark.doctor_situation import Situation
    from statemark.doctor_software import Software

_UNKNOWN = "not known"


@dataclass(frozen=True)
class Examined:
    """What was looked at.

    Attributes
    ----------
    about : Situation
        Settings and checkpoint.
    software : Software or None
        What a start of Spark would find; None for a session that runs.
    spark_version : str or None
        The version of Spark.
    disk : Disk or None
        The local directory.
    memory : Memory
        The budget of memory.
    restart : Restart or None
        What a restart reads.
    """

    about: Situation
    software: Software | None
    spark_version: str | None
    disk: Disk | None
    memory: Memory
    restart: Restart | None


def facts(seen: Examined) -> dict[str, tuple[str, ...]]:
    """Return what was looked at, for people.

    Parameters
    ----------
    seen : Examined
        What was looked at.

    Returns
    -------
    dict of str to tuple of str
        Lines by what they are about.
    """
    found: dict[str, tuple[str, ...]] = {}
    if seen.software is not None:
        software = seen.software
        found["java"] = (f"{software.java or _UNKNOWN} ({software.java_path or 'nowhere'})",)
        jar = software.jar and software.jar.rpartition("/")[2]
        found["spark"] = (f"{software.spark or _UNKNOWN}, jar {jar or 'none'}",)
    else:
        found["spark"] = (f"{seen.spark_version}, a session that runs",)
    provider = seen.about.conf.get(PROVIDER)
    named = f"provider {provider}" if provider else "no provider named: statemark.configure and"
    found["settings"] = (
        f"master {seen.about.master}; {named}" + ("" if provider else " `statemark conf` name it"),
    )
    found["memory"] = tuple(_of_memory(seen.memory))
    found["local disk"] = (_of_disk(seen.disk),)
    if seen.about.checkpoint is not None:
        found["checkpoint"] = tuple(_of_checkpoint(seen.about))
    if seen.restart is not None:
        found["restart"] = tuple(doctor_restart.lines(seen.restart))
    return found


def _of_memory(memory: Memory) -> list[str]:
    limit, pool = memory.uncommitted_bytes, memory.native_bytes
    lines = [
        f"{memory.role}: heap {size_text(memory.heap_bytes)},"
        f" of it {size_text(limit) if limit is not None else 'all'} for uncommitted writes;"
        f" native memory {size_text(pool) if pool is not None else 'unbounded'}"
    ]
    used = []
    if memory.batch_bytes is not None:
        used.append(f"a batch's writes {size_text(memory.batch_bytes)} at least")
    if memory.keys_bytes is not None:
        used.append(f"indexes and filters about {size_text(memory.keys_bytes)}")
    return [*lines, f"the checkpoint's query: {', '.join(used)}"] if used else lines


def _of_disk(disk: Disk | None) -> str:
    if disk is None:
        return "none that outlives a process: localDir is not set"
    which = disk.path if disk.is_named else f"{disk.path}, as localDir is not set"
    if disk.free_bytes is None or disk.total_bytes is None:
        return f"{which}: not on this machine"
    room = f"{size_text(disk.free_bytes)} of {size_text(disk.total_bytes)} free"
    return f"{which}: {disk.kind or 'a file system of unknown kind'}, {room}"


def _of_checkpoint(about: Situation) -> list[str]:
    found = about.checkpoint
    assert found is not None
    provider = (found.provider or _UNKNOWN).rpartition(".")[2]
    total = size_text(sum(store.total_bytes for store in found.stores))
    committed = "no batch" if found.committed is None else f"batch {found.committed}"
    lines = [
        f"{found.location}: query {found.query_id or _UNKNOWN}",
        f"{provider}, format {found.format or _UNKNOWN}, {committed} committed,"
        f" {len(found.stores)} stores, {total}",
    ]
    if about.format_counts and found.format == 2 and not about.of_store("checkpointFormatVersion"):
        lines.append("the job has to set checkpointFormatVersion to 2: nothing here does")
    return lines


def values(seen: Examined) -> dict[str, object]:
    """Return what was looked at, for programs.

    Parameters
    ----------
    seen : Examined
        What was looked at.

    Returns
    -------
    dict of str to object
        Keys of the JSON object. What is not known is left out.
    """
    software, disk, memory, restart = seen.software, seen.disk, seen.memory, seen.restart
    found: dict[str, Any] = {
        "java": software and {"version": software.java, "path": software.java_path},
        "spark": {
            "version": seen.spark_version,
            "home": software and software.spark_home,
            "jar": software and software.jar,
        },
        "settings": {
            "master": seen.about.master,
            "provider": seen.about.conf.get(PROVIDER),
        },
        "memory": {
            "role": memory.role,
            "heapBytes": memory.heap_bytes,
            "uncommittedLimitBytes": memory.uncommitted_bytes,
            "nativeBytes": memory.native_bytes,
            "batchBytes": memory.batch_bytes,
            "keysBytes": memory.keys_bytes,
        },
        "localDir": disk
        and {
            "path": disk.path,
            "kind": disk.kind,
            "freeBytes": disk.free_bytes,
            "totalBytes": disk.total_bytes,
        },
        "checkpoint": _checkpoint_values(seen.about),
        "restart": restart and _restart_values(restart),
    }
    return {key: _known(value) for key, value in found.items() if value}


def _checkpoint_values(about: Situation) -> dict[str, object] | None:
    found = about.checkpoint
    if found is None:
        return None
    return {
        "location": found.location,
        "queryId": found.query_id,
        "provider": found.provider,
        "checkpointFormatVersion": found.format,
        "partitions": found.partitions,
        "lastPlannedBatch": found.planned,
        "lastCommittedBatch": found.committed,
        "stores": len(found.stores),
        "bytes": sum(store.total_bytes for store in found.stores),
    }


def _restart_values(restart: Restart) -> dict[str, object]:
    return {
        "version": restart.version,
        "repeatedBatch": restart.repeats,
        "inUse": restart.in_use,
        "localStores": restart.local,
        "snapshotBytes": restart.snapshot_bytes,
        "changelogs": restart.changelogs,
        "changelogBytes": restart.changelog_bytes,
        "stores": [_known(_load_values(load)) for load in restart.loads],
    }


def _load_values(load: Load) -> dict[str, object]:
    return {
        "operator": load.store.operator,
        "partition": load.store.partition,
        "store": load.store.name,
        "localVersion": load.from_local,
        "why": load.why or None,
        "snapshotVersion": load.snapshot if load.from_local is None else None,
        "snapshotBytes": load.snapshot_bytes,
        "changelogs": load.changelogs,
        "changelogBytes": load.changelog_bytes,
    }


def _known(values: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in values.items() if value is not None}
