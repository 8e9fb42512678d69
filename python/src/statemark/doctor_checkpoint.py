"""A checkpoint that cannot be started, or whose query will not run as its settings say."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from statemark import doctor_kinds as kinds
from statemark import units
from statemark.checkpoint_facts import PARTITIONS, PROVIDER, Checkpoint, Store
from statemark.doctor_findings import Finding, size_text

if TYPE_CHECKING:
    from statemark.doctor_restart import Load, Restart
    from statemark.doctor_situation import Situation

_MIB = 1024 * 1024
_SHOWN = 3
_SKEWED = 4
_LARGE = 64 * _MIB
#: How many changelogs may follow a snapshot where nothing tells how long batches take.
_LAG_OF_SHORT_BATCHES = 10
_FORMAT = "checkpointFormatVersion"
_OF_CLASS = {
    "StatemarkStateStoreProvider": "statemark",
    "RocksDBStateStoreProvider": "rocksdb",
}


def findings(about: Situation, restart: Restart | None) -> list[Finding]:
    """Return what is odd in a checkpoint.

    Parameters
    ----------
    about : Situation
        The checkpoint, and the settings of the next run.
    restart : Restart or None
        What that run reads; None where no batch is committed, or the query has no state.

    Returns
    -------
    list of Finding
        In the order of the table of kinds; empty without a checkpoint.
    """
    checkpoint = about.checkpoint
    if checkpoint is None:
        return []
    found = [finding for rule in _RULES for finding in rule(checkpoint, about)]
    return [*found, *_state(checkpoint, about, restart)]


def _metadata(checkpoint: Checkpoint, _: Situation) -> Iterator[Finding]:
    if checkpoint.query_id is None:
        yield kinds.METADATA_GONE.found(
            f"{checkpoint.location}/metadata is missing, or names no query",
            reason="it has the query's id, by which local directories and sinks know the query;"
            " Spark refuses to start without it, or, before 4.2, makes a new id",
            remedy='bring it back from a copy; it is one line: {"id":"<the query\'s id>"}, and logs'
            " of earlier runs have the id",
        )


def _logs(checkpoint: Checkpoint, _: Situation) -> Iterator[Finding]:
    for name, why in checkpoint.damaged:
        yield kinds.ENTRY_DAMAGED.found(
            f"{checkpoint.location}/{name} cannot be read",
            reason=f"{why}; a start reads this entry",
            remedy="bring it back from a copy; `statemark verify` shows which batches can be"
            " restored",
            file=name,
        )
    entries = [name for name in checkpoint.missing if not _is_state(name)]
    if entries:
        yield kinds.ENTRY_MISSING.found(
            f"{_listed(entries)} of {checkpoint.location} {_are(entries)} gone",
            reason="a start reads the newest entries of both logs, and the one before",
            remedy="bring what is gone back from a copy; `statemark verify` shows which batches can"
            " be restored",
            files=entries,
        )


def _commits(checkpoint: Checkpoint, _: Situation) -> Iterator[Finding]:
    if checkpoint.uncommitted:
        yield kinds.COMMIT_MISSING.found(
            f"{checkpoint.uncommitted} of {checkpoint.location} is gone",
            reason="a start takes the batch before the newest planned one for committed, warns, and"
            f" runs batch {checkpoint.planned} again",
            remedy="look at who deleted it; a sink that is not idempotent may get rows twice",
            file=checkpoint.uncommitted,
        )


def _state(checkpoint: Checkpoint, about: Situation, restart: Restart | None) -> Iterator[Finding]:
    loads = restart.loads if restart else ()
    # On a cluster a task may run where the store's local directory is not.
    broken = [load.store for load in loads if load.is_broken or _is_only_here(load, about)]
    missing = [name for name in checkpoint.missing if _is_state(name)]
    missing += [name for store in broken for name in store.missing]
    if missing:
        yield kinds.STATE_MISSING.found(
            f"{_listed(missing)} of {checkpoint.location} {_are(missing)} gone",
            reason=f"batch {checkpoint.committed} is restored from it",
            remedy="bring it back from a copy; `statemark verify` shows which batches can be"
            " restored without",
            files=missing,
        )
    damaged = [found for store in broken for found in store.damaged]
    if damaged:
        names = [name for name, _ in damaged]
        yield kinds.STATE_DAMAGED.found(
            f"{_listed(names)} of {checkpoint.location} {_are(names)} damaged",
            reason=damaged[0][1],
            remedy="bring it back from a copy; `statemark verify` shows which batches can be"
            " restored without",
            files=names,
        )
    spared = [load for load in loads if load.store not in broken]
    names = [name for load in spared for name in load.store.missing]
    names += [name for load in spared for name, _ in load.store.damaged]
    if names:
        yield kinds.STATE_LACKS.found(
            f"{_listed(names)} of {checkpoint.location} {_are(names)} gone or damaged",
            reason="a start does without, by an older snapshot or by a local directory of this"
            " machine; when that is gone too, the state is lost",
            remedy="bring it back from a copy, or run the query until its next snapshots are"
            " there; `statemark verify` reads all files",
            files=names,
        )


def _is_state(name: str) -> bool:
    return name == "state" or name.startswith("state/")


def _is_only_here(load: Load, about: Situation) -> bool:
    return load.from_local is not None and bool(load.store.missing) and not about.is_local


def _commands(checkpoint: Checkpoint, _: Situation) -> Iterator[Finding]:
    if checkpoint.unfinished:
        name = _OF_CLASS.get((checkpoint.provider or "").rpartition(".")[2], "statemark")
        yield kinds.SWITCH_UNFINISHED.found(
            f"a switch of {checkpoint.location} to another provider was interrupted",
            reason=f"{checkpoint.unfinished[-1]} has a plan, and no mark that it is done or undone",
            remedy=f"run `statemark switch {checkpoint.location} --to {name}` again, or with the"
            " other provider: it undoes or completes what it finds. The query starts as it is, on"
            f" {checkpoint.provider}",
            directories=list(checkpoint.unfinished),
        )
    if checkpoint.repartition is not None:
        former, wanted = checkpoint.repartition
        yield kinds.REPARTITION_UNFINISHED.found(
            f"a repartition of {checkpoint.location} from {former} to {wanted} was interrupted",
            reason="its batch is planned and not committed, and Spark does not start the query",
            remedy=f"finish it: `statemark repartition {checkpoint.location}"
            f" --partitions {wanted}`, or take it back with --rollback",
            former=former,
            wanted=wanted,
        )
    if checkpoint.owners:
        yield kinds.COMMAND_AT_WORK.found(
            f"a switch or repartition works on {checkpoint.location}, or was killed",
            reason=f"{checkpoint.owners[-1]} is there while a command changes the checkpoint",
            remedy="wait until it has ended before you start the query; where none runs any more,"
            " the next command takes the directory away",
            directories=list(checkpoint.owners),
        )


def _settings(checkpoint: Checkpoint, about: Situation) -> Iterator[Finding]:
    wanted = about.conf.get(PROVIDER)
    if wanted and checkpoint.provider and wanted != checkpoint.provider:
        name = _OF_CLASS.get(wanted.rpartition(".")[2])
        yield kinds.PROVIDER_DIFFERS.found(
            f"{checkpoint.location} pins {checkpoint.provider}, and the settings name {wanted}",
            reason="a query keeps the provider that its checkpoint pins, whatever settings say",
            remedy=f"stop the query and run `statemark switch {checkpoint.location} --to {name}`,"
            " or leave it where it is"
            if name
            else "leave it where it is: a checkpoint does not move to that provider",
            pinned=checkpoint.provider,
            wanted=wanted,
        )
    given = about.of_store(_FORMAT, "1" if about.has_session else "")
    if about.format_counts and checkpoint.format and given and given != str(checkpoint.format):
        yield kinds.FORMAT_DIFFERS.found(
            f"{checkpoint.location} has checkpoint format {checkpoint.format}, and {_FORMAT} is"
            f" {given}",
            reason="a query keeps the format of its first batch, and is refused with another",
            remedy=f"set spark.sql.streaming.stateStore.{_FORMAT}={checkpoint.format}",
            checkpoint=checkpoint.format,
            setting=given,
        )
    # A session always has a number, which most people never chose.
    partitions = None if about.has_session else about.conf.get(PARTITIONS)
    if partitions and checkpoint.partitions and partitions != str(checkpoint.partitions):
        yield kinds.PARTITIONS_DIFFER.found(
            f"{checkpoint.location} has {checkpoint.partitions} partitions, and {PARTITIONS} is"
            f" {partitions}",
            reason="a query keeps the number of its first batch, whatever the setting says",
            remedy=f"stop the query and run `statemark repartition {checkpoint.location}"
            f" --partitions {partitions}`, or leave it as it is",
            checkpoint=checkpoint.partitions,
            setting=partitions,
        )


def _lag(checkpoint: Checkpoint, about: Situation) -> Iterator[Finding]:
    """Find stores whose maintenance does not keep up."""
    if not checkpoint.stores:
        return
    store = max(checkpoint.stores, key=lambda store: store.version - store.snapshot)
    lag = store.version - store.snapshot
    interval = units.seconds(about.of_store("maintenanceInterval", "60s")) or 60
    # One tick may find the number not reached yet, and the next one takes the snapshot.
    batches = (
        math.ceil(2 * interval / max(checkpoint.batch_s, 0.1))
        if checkpoint.batch_s is not None
        else _LAG_OF_SHORT_BATCHES * about.min_deltas
    )
    explained = 2 * about.min_deltas + batches
    if lag > explained:
        yield kinds.SNAPSHOTS_LAG.found(
            f"store {store.text} has {lag} changelogs since its last snapshot",
            reason=f"minDeltasForSnapshot, maintenanceInterval and the time of a batch explain"
            f" {explained}: maintenance fails, or is slow, and a load replays all of them",
            remedy="look for `Maintenance of … failed` in the executors' logs; give these settings"
            " to this command with --conf where they are not the defaults",
            changelogs=lag,
            explained=explained,
            store=store.text,
        )


def _skew(checkpoint: Checkpoint, _: Situation) -> Iterator[Finding]:
    of_store: defaultdict[tuple[int, str], list[Store]] = defaultdict(list)
    for store in checkpoint.stores:
        of_store[store.operator, store.name].append(store)
    for (operator, name), stores in of_store.items():
        mean = sum(store.total_bytes for store in stores) / len(stores)
        largest = max(stores, key=lambda store: store.total_bytes)
        if largest.total_bytes > max(_SKEWED * mean, _LARGE):
            yield kinds.SKEW.found(
                f"partition {largest.partition} of operator {operator}, store {name}, has"
                f" {size_text(largest.total_bytes)}, {largest.total_bytes / mean:.1f} times the"
                " mean",
                reason="the task of this partition decides how long a batch and a restart take, and"
                " how much memory they need",
                remedy="look for keys that most rows have, such as null; more partitions help where"
                f" keys are many: `statemark repartition {checkpoint.location} --partitions N`",
                operator=operator,
                store=name,
                partition=largest.partition,
                bytes=largest.total_bytes,
                meanBytes=int(mean),
            )


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    rest = len(names) - _SHOWN
    return f"{shown} and {rest} more" if rest > 0 else shown


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


_RULES: tuple[Callable[[Checkpoint, Situation], Iterator[Finding]], ...] = (
    _metadata,
    _logs,
    _commits,
    _commands,
    _settings,
    _lag,
    _skew,
)
