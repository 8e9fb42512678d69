"""What a restart of a query on this machine would read, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from statemark import settings
from statemark.doctor_findings import size_text
from statemark.doctor_homes import Home, homes_in

if TYPE_CHECKING:
    from statemark.checkpoint_facts import Store
    from statemark.doctor_situation import Situation


@dataclass(frozen=True)
class Load:
    """What the load of one store reads.

    Attributes
    ----------
    store : Store
        The store.
    from_local : int or None
        The version in its local directory that the load begins with; None where it begins with a
        snapshot of the checkpoint.
    why : str
        Why not with a local directory; empty where it does.
    snapshot_bytes : int or None
        What it downloads of the snapshot; None where it is not known.
    changelogs : int
        How many changelogs it replays.
    changelog_bytes : int or None
        Their sizes; None where they are not known.
    snapshot : int
        The version of the snapshot that it begins with, without a local directory; 0 for none.
    is_broken : bool
        Whether it fails: it needs files of the checkpoint that are gone or damaged.
    """

    store: Store
    from_local: int | None
    why: str
    snapshot_bytes: int | None
    changelogs: int
    changelog_bytes: int | None
    snapshot: int = 0
    is_broken: bool = False

    @property
    def is_repaired(self) -> bool:
        """Tell whether it begins with an older snapshot, as the newest is of no use."""
        return self.from_local is None and self.snapshot != self.store.snapshot


@dataclass(frozen=True)
class Restart:
    """What a restart reads before its first batch has ended.

    Attributes
    ----------
    version : int
        The version that every store is loaded at.
    repeats : int or None
        The batch that was planned and not committed, and that runs again; None where there is none.
    loads : tuple of Load
        One for each store.
    in_use : bool
        Whether some process has stores of the query open now.
    """

    version: int
    repeats: int | None
    loads: tuple[Load, ...]
    in_use: bool

    @property
    def snapshot_bytes(self) -> int | None:
        """All that is downloaded of snapshots; None where it is not known."""
        return _sum(load.snapshot_bytes for load in self.loads)

    @property
    def changelog_bytes(self) -> int | None:
        """All that is read of changelogs; None where it is not known."""
        return _sum(load.changelog_bytes for load in self.loads)

    @property
    def changelogs(self) -> int:
        """How many changelogs are replayed."""
        return sum(load.changelogs for load in self.loads)

    @property
    def local(self) -> int:
        """How many stores begin with their local directory."""
        return sum(load.from_local is not None for load in self.loads)

    @property
    def whys(self) -> dict[str, int]:
        """Why stores do not begin with a local directory: reasons, and how many stores each has."""
        found: dict[str, int] = {}
        for load in self.loads:
            if load.why:
                found[load.why] = found.get(load.why, 0) + 1
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def look(about: Situation) -> Restart | None:
    """Return what a restart of the checkpoint's query would read on this machine.

    Parameters
    ----------
    about : Situation
        The settings and the checkpoint.

    Returns
    -------
    Restart or None
        None without a checkpoint, or where it has no committed batch or no state.
    """
    checkpoint = about.checkpoint
    if checkpoint is None or checkpoint.committed is None or not checkpoint.stores:
        return None
    root = about.local_dir
    folder = root / checkpoint.query_id if root and checkpoint.query_id else None
    loads, in_use = [], False
    most = about.max_repair
    for store in checkpoint.stores:
        switched = checkpoint.switched_ns
        homes = () if folder is None else tuple(homes_in(folder / store.text, switched_ns=switched))
        in_use = in_use or any(home.in_use for home in homes)
        if checkpoint.provider != settings.PROVIDER_CLASS:
            loads.append(
                _from_checkpoint(store, "the pinned provider keeps no local directory", most)
            )
        elif folder is None:
            loads.append(_from_checkpoint(store, _no_root(about), most))
        else:
            loads.append(_load(store, homes, about, _absent(about)))
    planned = checkpoint.planned
    is_open = planned is not None and planned > checkpoint.committed
    return Restart(checkpoint.committed + 1, planned if is_open else None, tuple(loads), in_use)


def _no_root(about: Situation) -> str:
    if about.checkpoint is not None and about.checkpoint.query_id is None:
        return "the query's id is not known"
    return f"{settings.LOCAL_DIR.name} is not set"


def _absent(about: Situation) -> str:
    """Return where a local directory was looked for. A job may set another in its code."""
    unset = "" if about.own(settings.LOCAL_DIR) else f", and {settings.LOCAL_DIR.name} is not set"
    return f"no local directory in {about.local_dir}{unset}"


def _load(store: Store, homes: tuple[Home, ...], about: Situation, absent: str) -> Load:
    """Return the load by the rules of `ChangelogPath.find` and `LocalReuse` in the JVM."""
    whys = [home.problem for home in homes if home.problem]
    # The newest of them comes first, by what their owners noted.
    for home in sorted(homes, key=lambda home: -(home.version or -1)):
        version = home.version
        if version is None:
            continue
        gap = store.version - version
        replayed = store.after(version)
        if gap < 0:
            whys.insert(0, "the local directory is ahead of the checkpoint")
        elif gap > about.min_deltas:
            whys.insert(0, f"the local directory is more than {about.min_deltas} versions behind")
        elif len(replayed) < gap:
            whys.insert(0, "a changelog after the local directory's version is gone")
        else:
            size = _sum(replayed.values())
            return Load(store, version, "", 0, len(replayed), size)
    return _from_checkpoint(store, whys[0] if whys else absent, about.max_repair)


def _from_checkpoint(store: Store, why: str, max_repair: int) -> Load:
    """Return the load by `RestoreRules` of the JVM."""
    begin: int | None = store.snapshot
    download = store.snapshot_bytes
    if store.older is not None:
        usable = (one for one in store.older if store.version - one[0] <= max_repair)
        begin, download = next(usable, (None, download))
    # A load that has begun with a snapshot tries no other where a changelog is missing.
    is_broken = begin is None or (
        store.version - begin > len(store.after(begin))
        if store.older is not None
        else bool(store.missing)
    )
    if begin is None or is_broken:
        begin, download = store.snapshot, store.snapshot_bytes
    replayed = store.after(begin)
    size = _sum(replayed.values())
    return Load(store, None, why, download, len(replayed), size, begin, is_broken)


def _sum(sizes: Iterable[int | None]) -> int | None:
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total


def lines(restart: Restart) -> list[str]:
    """Return what a restart reads, for people.

    Parameters
    ----------
    restart : Restart
        What `look` has found.

    Returns
    -------
    list of str
        One line, and one for each reason why stores are read from the checkpoint.
    """
    count = len(restart.loads)
    download, replay = restart.snapshot_bytes, restart.changelog_bytes
    parts = [
        f"{restart.local} of {count} stores from the local directory",
        f"{_known(download)} of snapshots to download",
        f"{_counted(restart.changelogs)} to replay"
        + (f" ({_known(replay)})" if restart.changelogs else ""),
    ]
    found = [f"at version {restart.version}: {', '.join(parts)}"]
    found += [f"{number} from the checkpoint: {why}" for why, number in restart.whys.items()]
    longest = max(restart.loads, key=lambda load: (load.snapshot_bytes or 0, load.changelogs))
    if longest.from_local is None and count > 1:
        found.append(
            f"the longest load: {longest.store.text}, {_known(longest.snapshot_bytes)} and"
            f" {_counted(longest.changelogs)}"
        )
    broken = sum(load.is_broken for load in restart.loads)
    if broken:
        found.append(f"{broken} cannot be loaded: files of the checkpoint are gone or damaged")
    repaired = sum(load.is_repaired and not load.is_broken for load in restart.loads)
    if repaired:
        found.append(f"{repaired} from an older snapshot, as the newest is of no use")
    if restart.repeats is not None:
        found.append(f"batch {restart.repeats} was planned and is not committed: it runs again")
    if restart.in_use:
        found.append(
            "some process has its stores open now: the query seems to run, and an orderly end"
            " leaves the last batch of each store to be replayed"
        )
    return found


def _counted(changelogs: int) -> str:
    return f"{changelogs} changelog{'' if changelogs == 1 else 's'}"


def _known(size: int | None) -> str:
    return "an unknown size" if size is None else size_text(size)
