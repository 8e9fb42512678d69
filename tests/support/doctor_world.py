"""A machine and a checkpoint made by hand, for tests of `statemark doctor`."""

from __future__ import annotations

import json
import resource
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
import statemark
from statemark import (
    doctor_disk,
    doctor_memory,
    doctor_session,
    mounts,
)
from statemark.settings import PLUGIN, PREFIX, PROVIDER_CLASS, PROVIDER_CLASS_KEY

from support.session import IS_BEFORE_42, IS_FROM_43

STORE = "spark.sql.streaming.stateStore."
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
QUERY = "7f49e65f-4379-4f48-8c18-95cfc99399be"
MIB = 1024 * 1024
#: Whether a start passes damaged snapshots over.
REPAIRS = not IS_BEFORE_42
WITHOUT_REPAIR = "Spark repairs itself from 4.2 on"
#: A session on a cluster that `statemark conf` has set up.
CLUSTER = {
    "spark.master": "spark://host:7077",
    "spark.jars": "/lib/statemark.jar",
    "spark.plugins": PLUGIN,
    PROVIDER_CLASS_KEY: PROVIDER_CLASS,
    f"{PREFIX}allowRealTime": "true",
}


@dataclass
class World:
    """A machine on which all is well, and a checkpoint of 12 batches with 2 partitions."""

    path: Path
    monkeypatch: pytest.MonkeyPatch
    conf: dict[str, str] = field(default_factory=dict)
    spark: Any = None
    has_checkpoint: bool = True

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def local(self) -> Path:
        return self.path / "local"

    @property
    def java_home(self) -> Path:
        return self.path / "java"

    def diagnose(self) -> statemark.Diagnosis:
        location = self.checkpoint if self.has_checkpoint else None
        return statemark.doctor(location, spark=self.spark, conf=self.conf)

    # ---- the machine

    def java(self, home: Path, version: str) -> None:
        """Install a Java."""
        (home / "bin").mkdir(parents=True, exist_ok=True)
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
        (home / "bin/java").touch(mode=0o755)

    def mounts(self, kind: str) -> None:
        """Mount a file system of a kind where the local directory is."""
        text = (
            "1 0 8:1 / / rw - ext4 /dev/a rw\n"
            f"2 1 8:2 / {self.path} rw shared:1 - {kind} /dev/b rw\n"
        )
        (self.path / "mountinfo").write_text(text)

    def free(self, size: int) -> None:
        """Leave so much room on every disk."""
        usage = shutil._ntuple_diskusage(1 << 40, 0, size)  # type: ignore[attr-defined]
        self.monkeypatch.setattr(doctor_disk.shutil, "disk_usage", lambda _: usage)

    def limit(self, *, memory: int = 64 << 30, handles: int = 1 << 20) -> None:
        """Give a process so much memory, and so many file handles."""
        (self.path / "memory.max").write_text(f"{memory}\n")
        pages = {"SC_PHYS_PAGES": 1 << 24, "SC_PAGE_SIZE": 4096}
        self.monkeypatch.setattr(doctor_memory.os, "sysconf", pages.__getitem__)
        self.monkeypatch.setattr(resource, "getrlimit", lambda _: (handles, handles))

    def session(self, **lacks: Any) -> None:
        """Hand in a session on a cluster, in which some parts of the plugin are not there."""
        all_conf = CLUSTER | lacks.pop("conf", {})
        all_conf = {key: value for key, value in all_conf.items() if value is not None}
        row = {"process": "driver", "version": None, "plugin": True, "extension": True} | lacks
        other = {**row, "process": "0", "extension": False}
        rows = None if lacks.get("plugin", "") is None else [row, other]
        found = rows and [SimpleNamespace(**one) for one in rows]
        self.monkeypatch.setattr(doctor_session, "installation", lambda _: found)
        conf = SimpleNamespace(getAll=all_conf, get=lambda key, default: all_conf.get(key, default))
        session = {"__module__": "pyspark.sql.session", "conf": conf}
        self.spark = type("SparkSession", (), session | {"version": pyspark.__version__})()

    # ---- the checkpoint

    def write(
        self, *, checkpoint_format: int = 1, provider: str = PROVIDER_CLASS, partitions: int = 2
    ) -> None:
        """Write the checkpoint, whose stores have their last snapshot at version 10."""
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        self.checkpoint.mkdir()
        (self.checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
        for batch in range(12):
            self.entry("offsets", batch, {"conf": self.pinned(provider, partitions)})
            ids = {"0": [[f"a{partition}{batch}"] for partition in range(partitions)]}
            self.entry("commits", batch, {"stateUniqueIds": ids} if checkpoint_format == 2 else {})
        for partition in range(partitions):
            store = self.checkpoint / f"state/0/{partition}"
            (store / "SSTs").mkdir(parents=True)
            for version in range(1, 13):
                unique = f"_a{partition}{version - 1}" if checkpoint_format == 2 else ""
                (store / f"{version}{unique}.changelog").write_bytes(b"c" * 100)
                (store / f"{version}{unique}.changelog.crc").touch()
                if version == 10:
                    self.snapshot(store / f"{version}{unique}.zip", rows=1000)

    @staticmethod
    def pinned(provider: str, partitions: int) -> dict[str, str]:
        return {PROVIDER_CLASS_KEY: provider, "spark.sql.shuffle.partitions": str(partitions)}

    def entry(self, log: str, batch: int, value: dict[str, Any]) -> None:
        """Write an entry of a log."""
        path = self.checkpoint / log / str(batch)
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"v1\n{json.dumps(value)}\n{{}}")

    @staticmethod
    def snapshot(path: Path, *, rows: int) -> None:
        """Write a snapshot with one SST file of 5000 bytes."""
        file = {"localFileName": "1.sst", "dfsSstFileName": "1-x.sst", "sizeBytes": 5000}
        with zipfile.ZipFile(path, "w") as image:
            image.writestr("metadata", "v1\n" + json.dumps({"sstFiles": [file], "numKeys": rows}))
        (path.parent / "SSTs/1-x.sst").write_bytes(b"s" * 5000)

    def grow(self, partition: int, size: int) -> None:
        """Let a partition take some more of the disk, without writing it."""
        with (self.checkpoint / f"state/0/{partition}/SSTs/2-y.sst").open("wb") as file:
            file.truncate(size)

    # ---- the local directory

    def home(self, partition: int, version: int, name: str = "one") -> Path:
        """Leave the directory of a store at a version, as an earlier process would."""
        path = self.local / QUERY / f"0-{partition}-default" / name
        (path / "base").mkdir(parents=True)
        (path / "base/CURRENT").touch()
        (path / "owner.lock").write_text(f"{version}\n")
        return path


def make_world(path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Make it, and let this process see nothing else."""
    world = World(path, monkeypatch)
    world.path.mkdir()
    world.java(world.java_home, "17.0.9")
    core = world.path / f"spark/jars/spark-core_2.13-{pyspark.__version__}.jar"
    core.parent.mkdir(parents=True)
    core.touch()
    world.write()
    world.local.mkdir()
    world.conf[f"{PREFIX}localDir"] = str(world.local)
    # As `statemark conf` sets it from Spark 4.3 on.
    world.conf[f"{PREFIX}allowRealTime"] = "true"
    monkeypatch.setenv("JAVA_HOME", str(world.java_home))
    monkeypatch.setenv("SPARK_HOME", str(world.path / "spark"))
    monkeypatch.setenv("PATH", str(world.path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(world.path / "cache"))
    monkeypatch.setattr(mounts, "_MOUNTS", world.path / "mountinfo")
    monkeypatch.setattr(doctor_memory, "_CONTAINER", world.path / "memory.max")
    world.limit()
    world.mounts("ext4")
    world.free(100 * 1024 * MIB)
    return world


def remove(name: str) -> Callable[[World], None]:
    """Return what takes a file or a folder away from the checkpoint."""

    def change(world: World) -> None:
        path = world.checkpoint / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def skip_where_line_differs(name: str) -> None:
    """Leave a kind of finding out that this line of Spark gives no reason for."""
    if name == "state-lacks" and not REPAIRS:
        pytest.skip(WITHOUT_REPAIR)
    if name == "format-differs" and IS_FROM_43:
        pytest.skip("Spark 4.3 goes on in the checkpoint's format")
