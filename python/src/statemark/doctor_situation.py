"""What `statemark doctor` looks at: settings, environment, checkpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from statemark import settings, units
from statemark.checkpoint_facts import PROVIDER

if TYPE_CHECKING:
    from statemark.checkpoint_facts import Checkpoint

_MIB = 1024 * 1024
_STORE = "spark.sql.streaming.stateStore."
_TRUE = "true"
_SIZES = tuple(
    f"rocksdb.{name}" for name in ("blockCacheSizeMB", "writeBufferSizeMB", "maxWriteBufferNumber")
)
#: Spark's automatic repair: the first line that has it, and its default.
_REPAIRS = (4, 2)
_REPAIR = f"{_STORE}autoSnapshotRepair"
_MAX_REPAIR = 50
#: The first line whose queries go on in their checkpoint's format, whatever the session says.
_KEEPS_FORMAT = (4, 3)


@dataclass(frozen=True)
class Situation:
    """What is looked at.

    Attributes
    ----------
    conf : dict of str to str
        Spark's settings.
    env : dict of str to str
        Environment variables.
    line : tuple of int or None
        The line of Spark; None where there is no Spark.
    checkpoint : Checkpoint or None
        The checkpoint; None where none was named.
    spark_home : str or None
        The home of the Spark that would start; None where a session runs, or there is none.
    has_session : bool
        Whether the settings are those of a session that runs, and so are all that count.
    """

    conf: Mapping[str, str]
    env: Mapping[str, str]
    line: tuple[int, int] | None = None
    checkpoint: Checkpoint | None = None
    spark_home: str | None = None
    has_session: bool = False

    def of_store(self, name: str, default: str = "") -> str:
        """Return a setting of Spark's state stores.

        Parameters
        ----------
        name : str
            What follows ``spark.sql.streaming.stateStore.`` in its key.
        default : str, optional
            What it has where it is not set.

        Returns
        -------
        str
            Its value.
        """
        return self.conf.get(_STORE + name, default).strip()

    def own(self, setting: settings.Setting) -> str | None:
        """Return a setting of Statemark's. What follows the prefix counts in either case.

        Parameters
        ----------
        setting : Setting
            The setting.

        Returns
        -------
        str or None
            Its value, else its default.
        """
        return next((self.conf[key] for key in self.keys_of(setting)), setting.default)

    def keys_of(self, setting: settings.Setting) -> list[str]:
        """Return the keys that set a setting of Statemark's, in order of the alphabet.

        Parameters
        ----------
        setting : Setting
            The setting.

        Returns
        -------
        list of str
            More than one where letters are in different cases.
        """
        own = (key for key in self.conf if key.startswith(settings.PREFIX))
        return sorted(key for key in own if key.lower() == setting.key.lower())

    def is_true(self, key: str, *, default: bool = False) -> bool:
        """Tell whether a setting of Spark's is true.

        Parameters
        ----------
        key : str
            Its whole key.
        default : bool, optional
            What counts where it is not set.

        Returns
        -------
        bool
            Its value.
        """
        value = self.conf.get(key)
        return default if value is None else value.strip().lower() == _TRUE

    @property
    def is_set(self) -> bool:
        """Tell whether the settings name Statemark's provider."""
        return self.conf.get(PROVIDER) == settings.PROVIDER_CLASS

    @property
    def master(self) -> str:
        """Where Spark runs."""
        return self.conf.get("spark.master") or self.env.get("MASTER") or "local[*]"

    @property
    def is_local(self) -> bool:
        """Tell whether the driver runs the tasks."""
        return self.master == "local" or self.master.startswith("local[")

    @property
    def role(self) -> str:
        """The process that runs the tasks, as settings name it."""
        return "driver" if self.is_local else "executor"

    @property
    def tasks(self) -> int:
        """How many tasks an executor runs at once."""
        if not self.is_local:
            return units.number(self.conf.get("spark.executor.cores")) or 1
        named = units.number(self.master.partition("[")[2].partition("]")[0].partition(",")[0])
        if named is not None:
            return named
        return 1 if self.master == "local" else os.cpu_count() or 1

    @property
    def executors(self) -> int | None:
        """How many executors there are; None where settings do not say."""
        if self.is_local:
            return 1
        return units.number(self.conf.get("spark.executor.instances")) or None

    @property
    def heap_bytes(self) -> int:
        """The heap of the process that runs the tasks."""
        named = self.conf.get(f"spark.{self.role}.memory", "1g")
        return units.size_bytes(named, unit="m") or 1024 * _MIB

    @property
    def overhead_bytes(self) -> int:
        """What Spark sets aside beside that heap; `NativeMemoryBound` has the same in the JVM."""
        prefix = f"spark.{self.role}."
        named = units.size_bytes(self.conf.get(f"{prefix}memoryOverhead", ""), unit="m")
        if named is not None:
            return named
        least = units.size_bytes(self.conf.get(f"{prefix}minMemoryOverhead", "384"), unit="m")
        factor = units.fraction(self.conf.get(f"{prefix}memoryOverheadFactor", "0.1"))
        return max(int(self.heap_bytes / _MIB * (factor or 0)) * _MIB, least or 0)

    @property
    def sizes_by_hand(self) -> list[str]:
        """The settings by which somebody sizes native memory, as `NativeMemoryBound` has them."""
        named = {key.lower() for key in self.conf if key.startswith(_STORE)}
        return [name for name in _SIZES if (_STORE + name).lower() in named]

    @property
    def is_encrypted(self) -> bool:
        """Tell whether Spark encrypts what it writes to local disks."""
        return self.is_true("spark.io.encryption.enabled")

    @property
    def local_dir(self) -> Path | None:
        """Where stores outlive their process, as `LocalRoot` in the JVM has it; or None."""
        named = self.own(settings.LOCAL_DIR)
        if named:
            try:
                return Path(unquote(urlsplit(named).path) if named.startswith("file:") else named)
            except ValueError:
                return Path(named)  # which is refused
        if not self.is_local or self.is_encrypted:
            return None
        cache = Path(self.env.get("XDG_CACHE_HOME", ""))
        if cache.is_absolute():
            return cache / "statemark"
        try:
            return Path.home() / ".cache" / "statemark"
        except RuntimeError:  # the machine does not know the user; Java says the same
            return Path("?", ".cache", "statemark")

    @property
    def format_counts(self) -> bool:
        """Whether a query is refused where the session says another format than its checkpoint."""
        return self.line is None or self.line < _KEEPS_FORMAT

    @property
    def max_repair(self) -> int:
        """How many changelogs Spark's repair replays after an older snapshot; 0 for no repair."""
        repairs = self.line is None or self.line >= _REPAIRS
        if not repairs or not self.is_true(f"{_REPAIR}.enabled", default=True):
            return 0
        named = units.number(self.conf.get(f"{_REPAIR}.maxChangeFileReplay"))
        return _MAX_REPAIR if named is None else named

    @property
    def min_deltas(self) -> int:
        """How many changelogs lie between two snapshots."""
        named = units.number(self.of_store("minDeltasForSnapshot", "10"))
        return 10 if named is None else max(named, 1)
