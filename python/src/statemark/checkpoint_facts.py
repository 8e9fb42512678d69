"""What is known of a checkpoint: its logs, and of each store what a restart reads of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from statemark.units import number

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
PARTITIONS = "spark.sql.shuffle.partitions"
_BEFORE_SNAPSHOT = 100

#: A file of a store: path, and why it is of no use.
Damage = tuple[str, str]


@dataclass(frozen=True)
class Store:
    """One partition of one store, as of the last committed batch.

    Attributes
    ----------
    operator, partition, name
        Which one it is.
    version : int
        The version that the last committed batch made; a restart loads it.
    snapshot : int
        The version of the snapshot that a restart begins with; 0 for the empty store.
    snapshot_bytes : int or None
        What a restart downloads of the snapshot; None where it is not known.
    changelogs : dict of int to int or None
        Bytes of the changelogs up to the version, by version; None where they are not known.
    total_bytes : int
        All of its files.
    rows : int or None
        Rows in the snapshot; None where it does not say.
    missing : tuple of str
        Files that the version needs and that are not there.
    damaged : tuple of Damage
        Files that the version needs and that are damaged.
    older : tuple of tuple of int, or None
        Where the newest snapshot is of no use: those before it that a load can begin with, newest
        first, by version and bytes; None where it is good.
    """

    operator: int
    partition: int
    name: str
    version: int
    snapshot: int
    snapshot_bytes: int | None
    changelogs: Mapping[int, int | None]
    total_bytes: int
    rows: int | None
    missing: tuple[str, ...] = ()
    damaged: tuple[Damage, ...] = ()
    older: tuple[tuple[int, int], ...] | None = None

    def after(self, version: int) -> dict[int, int | None]:
        """Return the bytes of the changelogs after a version, by version.

        Parameters
        ----------
        version : int
            The version from which they lead to the last committed batch.

        Returns
        -------
        dict of int to int or None
            Empty for the last committed version; without those that are missing.
        """
        found = sorted(self.changelogs.items())
        return {v: size for v, size in found if version < v <= self.version}

    @property
    def text(self) -> str:
        """Its operator, partition and name, as directories of stores are named."""
        return f"{self.operator}-{self.partition}-{self.name}"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of a query.

    Attributes
    ----------
    location : str
        Where it lies.
    query_id : str or None
        The query's id; None where its file is missing or damaged.
    planned, committed : int or None
        The newest batches in the offset log and in the commit log.
    conf : dict of str to str
        The settings that the newest entry of the offset log pins.
    format : int or None
        The checkpoint format; None before the first commit.
    stores : tuple of Store
        Every partition of every store.
    missing, damaged
        Log entries, or directories of stores, that a start needs.
    uncommitted : str or None
        The entry of the commit log that is gone, where a start does without.
    unfinished : tuple of str
        Directories of a `switch` that was interrupted.
    repartition : tuple of str or None
        The former and the new number of partitions of a `repartition` that was interrupted.
    owners : tuple of str
        Directories that show a command at work.
    switched_ns : int or None
        When the provider was switched last, nanoseconds since the epoch; None where it never was.
    batch_s : float or None
        Seconds from one commit to the next, the median; None where it is not known.
    """

    location: str
    query_id: str | None
    planned: int | None
    committed: int | None
    conf: Mapping[str, str]
    format: int | None
    stores: tuple[Store, ...]
    missing: tuple[str, ...] = ()
    uncommitted: str | None = None
    damaged: tuple[Damage, ...] = ()
    unfinished: tuple[str, ...] = ()
    repartition: tuple[str, str] | None = None
    owners: tuple[str, ...] = ()
    switched_ns: int | None = None
    batch_s: float | None = None

    @property
    def troubles(self) -> tuple[frozenset[str], frozenset[Damage]]:
        """The files that are missing, and those that are damaged, of logs and stores."""
        missing = {
            self.uncommitted or "",
            *self.missing,
            *(name for store in self.stores for name in store.missing),
        }
        damaged = {*self.damaged, *(found for store in self.stores for found in store.damaged)}
        return frozenset(filter(None, missing)), frozenset(damaged)

    @property
    def provider(self) -> str | None:
        """The class of the provider that a restart uses; None where no entry pins one."""
        return self.conf.get(PROVIDER)

    @property
    def partitions(self) -> int | None:
        """The number of partitions that a restart uses."""
        return number(self.conf.get(PARTITIONS))


def from_inspection(found: Mapping[str, Any]) -> Checkpoint:
    """Return what `statemark inspect --json` says of a checkpoint.

    Parameters
    ----------
    found : Mapping
        Its JSON object.

    Returns
    -------
    Checkpoint
        The checkpoint.
    """
    committed = found.get("lastCommittedBatch")
    pinned = {PROVIDER: found.get("provider"), PARTITIONS: found.get("partitions")}
    version = 0 if committed is None else committed + 1
    return Checkpoint(
        location=found["checkpoint"],
        query_id=found["queryId"],
        planned=found["lastPlannedBatch"],
        committed=committed,
        conf={key: str(value) for key, value in pinned.items() if value is not None},
        format=found.get("checkpointFormatVersion"),
        stores=tuple(
            _inspected(operator["id"], store["name"], partition, version)
            for operator in found["operators"]
            for store in operator["stores"]
            for partition in store["partitions"]
            # Directories of a larger number of partitions stay for older batches.
            if partition["partition"] < found.get("partitions", partition["partition"] + 1)
        ),
    )


def _inspected(operator: int, name: str, facts: Mapping[str, Any], version: int) -> Store:
    snapshot = min(facts.get("newestSnapshotVersion", 0), version)
    is_whole = facts.get("newestVersion") == version or version == 0
    return Store(
        operator=operator,
        partition=facts["partition"],
        name=name,
        version=version,
        snapshot=snapshot,
        snapshot_bytes=None if snapshot else 0,
        changelogs=dict.fromkeys(
            # A store in a local directory is older by some versions at most.
            range(max(snapshot - _BEFORE_SNAPSHOT, 0) + 1, version + 1)
        ),
        total_bytes=facts["changelogBytes"] + facts["snapshotBytes"] + facts["sstBytes"],
        rows=facts.get("rows"),
        missing=()
        if is_whole
        else (f"what leads to version {version} of state/{operator}/{facts['partition']}",),
    )
