"""The memory of the process that runs the tasks, by the formulas of docs/memory.md."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from statemark import doctor_kinds as kinds
from statemark import settings, units
from statemark.doctor_findings import Finding, size_text

if TYPE_CHECKING:
    from statemark.doctor_situation import Situation

_MIB = 1024 * 1024
#: The bound of the control group that this process is in, as a container sees it.
_CONTAINER = Path("/sys/fs/cgroup/memory.max")
_LEAST_AUTO = 64 * _MIB
_AUTO_SHARE = 10
#: What an index and a filter take of each key, and the share of the pool that they should fit in.
_BYTES_A_KEY = 2
_SHARE_OF_KEYS = 0.4


@dataclass(frozen=True)
class Memory:
    """What stores may take of a process, and what a checkpoint's batches write.

    Attributes
    ----------
    role : str
        ``driver`` on a local master, else ``executor``.
    heap_bytes : int
        Its heap.
    uncommitted_bytes : int or None
        What uncommitted writes may take of the heap; None for no limit.
    native_bytes : int or None
        The pool of native memory; None where settings give it Spark's sizes.
    batch_bytes : int or None
        What the writes of the last batches take of the heap at least: changelogs are compressed.
        None without a checkpoint that tells.
    keys_bytes : int or None
        Native memory for indexes and filters; None without a checkpoint that tells.
    beside_bytes : int
        What the process takes beside its heap: Spark's overhead, or native memory where that is
        more.
    machine_bytes : int or None
        The memory of this machine, or of the container where that is less; None on a cluster, and
        where the system does not say it.
    """

    role: str
    heap_bytes: int
    uncommitted_bytes: int | None
    native_bytes: int | None
    batch_bytes: int | None
    keys_bytes: int | None
    beside_bytes: int
    machine_bytes: int | None


def look(about: Situation) -> Memory:
    """Return the budget of memory, and what the checkpoint's query takes of it.

    Parameters
    ----------
    about : Situation
        The settings and the checkpoint.

    Returns
    -------
    Memory
        The budget.
    """
    native = _native(about)
    return Memory(
        role=about.role,
        heap_bytes=about.heap_bytes,
        uncommitted_bytes=_uncommitted(about),
        native_bytes=native,
        batch_bytes=_batch(about),
        keys_bytes=_keys(about),
        beside_bytes=max(about.overhead_bytes, native or 0),
        machine_bytes=_machine() if about.is_local else None,
    )


def findings(memory: Memory) -> Iterator[Finding]:
    """Find budgets that the checkpoint's query exceeds.

    Parameters
    ----------
    memory : Memory
        What `look` has found.

    Yields
    ------
    Finding
        In the order of the table of kinds.
    """
    whole, machine = memory.heap_bytes + memory.beside_bytes, memory.machine_bytes
    if machine is not None and whole > machine:
        yield kinds.MEMORY_OVER_MACHINE.found(
            f"the driver may take {size_text(whole)}: {size_text(memory.heap_bytes)} of heap and"
            f" {size_text(memory.beside_bytes)} beside it; there are {size_text(machine)}",
            reason="the system ends a process that takes more than there is, or swaps",
            remedy="lower spark.driver.memory, or give the machine or the container more",
            processBytes=whole,
            machineBytes=machine,
        )
    limit, batch = memory.uncommitted_bytes, memory.batch_bytes
    if limit is not None and batch is not None and batch > limit:
        yield kinds.BATCHES_SPILL.found(
            f"the writes of a batch take {size_text(batch)} of an {memory.role}'s heap at least,"
            f" and {settings.MAX_UNCOMMITTED_BYTES.key} allows {size_text(limit)}",
            reason="what is over the limit goes to the local disk, and batches take longer",
            remedy=f"raise spark.{memory.role}.memory and the limit, or make batches smaller",
            batchBytes=batch,
            limitBytes=limit,
        )
    pool, keys = memory.native_bytes, memory.keys_bytes
    if pool is not None and keys is not None and keys > _SHARE_OF_KEYS * pool:
        yield kinds.NATIVE_SMALL.found(
            f"indexes and filters take about {size_text(keys)}, and native memory of the"
            f" {memory.role} is {size_text(pool)}",
            reason="they should fit in two fifths of it: beyond that, a read brings in whole"
            " filters",
            remedy=f"raise spark.{memory.role}.memoryOverhead, half of which is native memory of"
            " stores",
            keysBytes=keys,
            nativeBytes=pool,
        )


def _machine() -> int | None:
    """Return the memory of this machine, or what a container of Linux has of it."""
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
    bound = units.number(_CONTAINER.read_text().strip()) if _CONTAINER.is_file() else None
    return physical if bound is None else min(physical, bound)


def _uncommitted(about: Situation) -> int | None:
    named = (about.own(settings.MAX_UNCOMMITTED_BYTES) or "auto").strip().lower()
    if named == "-1":
        return None
    return units.size_bytes(named) or max(about.heap_bytes // _AUTO_SHARE, _LEAST_AUTO)


def _native(about: Situation) -> int | None:
    named = about.of_store("rocksdb.maxMemoryUsageMB")
    bounded = about.of_store("rocksdb.boundedMemoryUsage").lower()
    if bounded or about.sizes_by_hand:
        by_hand = units.number(named or "500")
        return by_hand * _MIB if bounded == "true" and by_hand is not None else None
    megabytes = units.number(named)
    return about.overhead_bytes // 2 if megabytes is None else megabytes * _MIB


def _batch(about: Situation) -> int | None:
    """Return the heap for state of docs/memory.md, with changelogs for what they hold."""
    stores = about.checkpoint.stores if about.checkpoint else ()
    sizes = [size for store in stores for size in store.changelogs.values() if size is not None]
    if not sizes:
        return None
    mean = sum(sizes) / len(sizes)
    per_task = max(Counter((store.operator, store.partition) for store in stores).values())
    # Staged and serialized while a task commits; prepared in every store of the process until the
    # next batch. How many stores that is, is not known without a number of executors.
    running = min(about.tasks * per_task, len(stores)) * 2 * mean
    there = len(stores) / about.executors if about.executors else 0
    return int(running + there * mean)


def _keys(about: Situation) -> int | None:
    stores = about.checkpoint.stores if about.checkpoint else ()
    known = [store.rows for store in stores if store.rows is not None]
    if not known or about.executors is None:
        return None
    return sum(known) * _BYTES_A_KEY // about.executors
