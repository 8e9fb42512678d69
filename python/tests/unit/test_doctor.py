"""`statemark doctor`: every kind of finding, on a machine and a checkpoint made by hand."""

from __future__ import annotations

import fcntl
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

import statemark
from statemark import (
    checkpoint_files,
    doctor_disk,
    doctor_kinds,
    doctor_memory,
    doctor_session,
    jars,
    mounts,
)
from statemark.checkpoint_logs import Log
from statemark.checkpoint_snapshots import older
from statemark.cli import main
from statemark.settings import PLUGIN, PREFIX, PROVIDER_CLASS, PROVIDER_CLASS_KEY

STORE = "spark.sql.streaming.stateStore."
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
QUERY = "7f49e65f-4379-4f48-8c18-95cfc99399be"
MIB = 1024 * 1024
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
        self.spark = SimpleNamespace(conf=conf, version=pyspark.__version__)

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


@pytest.fixture
def world(tmp_path: Path, bundled: str, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path / "world", monkeypatch)
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


# ---- every kind, provoked


def _no_spark(world: World) -> None:
    world.monkeypatch.delenv("SPARK_HOME")
    world.monkeypatch.setattr(jars, "_pyspark", lambda: None)


def _other_spark(world: World, version: str) -> None:
    for core in (world.path / "spark/jars").iterdir():
        core.rename(core.with_name(f"spark-core_2.13-{version}.jar"))


def _two_sparks(world: World) -> None:
    _other_spark(world, "4.9.0")
    (jars.JARS_DIR / f"statemark-spark_4.9_2.13-{statemark.__version__}.jar").touch()


def _real_time(world: World) -> None:
    world.conf |= CLUSTER | {f"{PREFIX}allowRealTime": "false"}
    _other_spark(world, "4.9.0")
    jar = jars.JARS_DIR / f"statemark-spark_4.9_2.13-{statemark.__version__}.jar"
    jar.touch()
    world.monkeypatch.setattr("statemark.doctor_software._installed", lambda: "4.9.0")


def _jar_of_an_image(world: World) -> None:
    world.conf |= {PROVIDER_CLASS_KEY: PROVIDER_CLASS}
    (world.path / "spark/jars/statemark-spark_4.2_2.13-0.1.0.jar").touch()


def _set(**values: str) -> Callable[[World], None]:
    """Return what makes settings in a session on Statemark; two underscores stand for a point."""

    def change(world: World) -> None:
        world.conf |= {PROVIDER_CLASS_KEY: PROVIDER_CLASS, "spark.jars": "/lib/statemark.jar"}
        world.conf |= {key.replace("__", "."): value for key, value in values.items()}

    return change


def _cluster(**values: str) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.conf |= CLUSTER | {key.replace("__", "."): value for key, value in values.items()}

    return change


def _store(name: str, value: str) -> Callable[[World], None]:
    return _set(**{STORE + name: value})


def _own(name: str, value: str) -> Callable[[World], None]:
    return _set(**{PREFIX + name: value})


def _remove(name: str) -> Callable[[World], None]:
    def change(world: World) -> None:
        path = world.checkpoint / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def _damage(name: str, text: str = "") -> Callable[[World], None]:
    return lambda world: (world.checkpoint / name).write_text(text) and None


def _session_on_rocksdb(world: World) -> None:
    world.session(conf={PROVIDER_CLASS_KEY: ROCKSDB})
    world.has_checkpoint = False


def _session_that_names_it_late(world: World) -> None:
    world.session(conf={PROVIDER_CLASS_KEY: None})
    world.has_checkpoint = False


def _many_keys(world: World) -> None:
    world.snapshot(world.checkpoint / "state/0/0/10.zip", rows=10**9)


def _large_writes(world: World) -> None:
    for version in (11, 12):
        for partition in (0, 1):
            path = world.checkpoint / f"state/0/{partition}/{version}.changelog"
            os.truncate(path, 1024 * MIB)


def _not_writable(world: World) -> None:
    world.local.rmdir()
    world.local.touch()


def _cache_not_writable(world: World) -> None:
    del world.conf[f"{PREFIX}localDir"]
    (world.path / "cache").touch()


def _homeless(world: World) -> None:
    del world.conf[f"{PREFIX}localDir"]
    world.monkeypatch.delenv("XDG_CACHE_HOME")

    def unknown() -> Path:
        problem = "Could not determine home directory."
        raise RuntimeError(problem)

    world.monkeypatch.setattr(Path, "home", unknown)


def _foreign(kind: str) -> Callable[[World], None]:
    def change(world: World) -> None:
        home = world.home(0, 12)
        if kind == "link":
            shutil.move(home, world.path / "elsewhere")
            home.symlink_to(world.path / "elsewhere")
        elif kind == "file":
            shutil.rmtree(home.parent)
            home.parent.touch()
        else:
            shutil.rmtree(home)
            world.monkeypatch.setattr(doctor_disk.os, "geteuid", lambda: 4711)

    return change


def _full(world: World) -> None:
    world.free(50 * MIB)


def _large_snapshot(world: World) -> None:
    """More to download than the room that is always asked for, and less room than that."""
    zipped = world.checkpoint / "state/0/0/10.zip"
    file = {"localFileName": "1", "dfsSstFileName": "2-y.sst", "sizeBytes": 3 << 30}
    zipped.unlink()
    with zipfile.ZipFile(zipped, "w") as image:
        image.writestr("metadata", "v1\n" + json.dumps({"sstFiles": [file], "numKeys": 5}))
    world.grow(0, 3 << 30)
    world.grow(1, 3 << 30)
    world.free(2 << 30)


def _switch(world: World) -> None:
    done, begun = (world.checkpoint / f"_statemark/switch-{n}" for n in (1, 2))
    for directory in (done, begun):
        directory.mkdir(parents=True)
        (directory / "manifest.json").write_text("{}")
    (done / "finished").touch()


def _owner(world: World) -> None:
    (world.checkpoint / "_statemark/owner-1").mkdir(parents=True)


def _repartition(world: World) -> None:
    world.entry("offsets", 12, {"conf": world.pinned(PROVIDER_CLASS, 4)})


def _gone_commits(*batches: int) -> Callable[[World], None]:
    return lambda world: [_remove(f"commits/{batch}")(world) for batch in batches] and None


def _too_old(change: Callable[[World], None]) -> Callable[[World], None]:
    """Return a change, after which no older snapshot and no empty store lead to the last batch."""

    def with_it(world: World) -> None:
        (world.checkpoint / "state/0/1/1.changelog").unlink()
        change(world)

    return with_it


def _lagging(world: World) -> None:
    """No snapshot, and a minute from one batch to the next."""
    for batch in range(12):
        os.utime(world.checkpoint / f"commits/{batch}", (batch * 60, batch * 60))
    for partition in (0, 1):
        (world.checkpoint / f"state/0/{partition}/10.zip").unlink()
    world.conf[f"{STORE}minDeltasForSnapshot"] = "2"


CASES: list[tuple[str, Callable[[World], None]]] = [
    ("java-missing", lambda world: (world.java_home / "bin/java").unlink()),
    ("java-missing", lambda world: world.monkeypatch.delenv("JAVA_HOME")),
    ("java-old", lambda world: world.java(world.java_home, "11.0.2")),
    ("java-old", lambda world: world.java(world.java_home, "1.8.0_292")),
    ("java-two", lambda world: world.java(world.path, "21.0.1")),
    ("spark-missing", _no_spark),
    ("spark-missing", lambda world: world.monkeypatch.setenv("SPARK_HOME", str(world.path))),
    ("spark-two", _two_sparks),
    ("jar-missing", lambda world: shutil.rmtree(jars.JARS_DIR)),
    ("spark-unsupported", lambda world: _other_spark(world, "3.5.1")),
    ("session-without-jar", lambda world: world.session(plugin=None)),
    ("jar-versions", lambda world: world.session(version="0.0.1")),
    ("session-lacks", lambda world: world.session(extension=False)),
    ("session-lacks", lambda world: world.session(plugin=False)),
    ("provider-not-set", _session_on_rocksdb),
    ("settings-refused", _own("localDirs", "/x")),
    ("settings-refused", _own("maxUncommittedBytes", "lots")),
    ("settings-refused", _own("LOCALDIR", "/x")),
    ("jar-not-named", lambda world: world.conf.update({PROVIDER_CLASS_KEY: PROVIDER_CLASS})),
    ("jar-not-on-executors", _cluster(spark__jars="", spark__driver__extraClassPath="/a.jar")),
    ("plugin-not-set", _cluster(spark__plugins="com.example.Plugin")),
    ("encrypted-local-dir", _set(spark__io__encryption__enabled="true")),
    ("real-time-refused", _real_time),
    ("changelogs-anyway", _store("rocksdb.changelogCheckpointing.enabled", "false")),
    ("native-unbounded", _store("rocksdb.blockCacheSizeMB", "64")),
    ("native-unbounded", _store("rocksdb.boundedMemoryUsage", "false")),
    ("native-over-overhead", _cluster(**{f"{STORE}rocksdb.maxMemoryUsageMB": "400"})),
    ("uncommitted-over-heap", _own("maxUncommittedBytes", "513m")),
    ("snapshots-rare", _store("minDeltasForSnapshot", "101")),
    ("snapshots-rare", _store("maintenanceInterval", "11m")),
    ("locality-off", _cluster(spark__locality__wait="0s")),
    ("memory-over-machine", lambda world: world.limit(memory=1400 * MIB)),
    ("batches-spill", _large_writes),
    ("native-small", _many_keys),
    ("local-dir-refused", _not_writable),
    ("local-dir-foreign", _foreign("link")),
    ("local-dir-foreign", _foreign("file")),
    ("local-dir-foreign", _foreign("other user")),
    ("local-dir-open", lambda world: world.local.chmod(0o777)),
    ("local-dir-in-memory", lambda world: world.mounts("tmpfs")),
    ("local-dir-on-network", lambda world: world.mounts("nfs4")),
    ("local-dir-full", _full),
    ("local-dir-full", _large_snapshot),
    ("handles-few", lambda world: world.write(partitions=8) or world.limit(handles=127)),
    ("local-limit-small", _own("localDirMaxBytes", "9k")),
    ("cache-dir-unusable", _cache_not_writable),
    ("cache-dir-unusable", _homeless),
    ("metadata-gone", _remove("metadata")),
    ("metadata-gone", _damage("metadata")),
    ("entry-damaged", _damage("offsets/11")),
    ("entry-damaged", _damage("offsets/11", "v1\n{half")),
    ("entry-damaged", _damage("offsets/10", "v1\n[1]")),
    ("entry-damaged", _damage("commits/11", "{}")),
    ("entry-missing", _remove("offsets/10")),
    ("entry-missing", _remove("offsets/11")),
    ("entry-missing", _remove("offsets")),
    ("commit-missing", _gone_commits(10, 11)),
    ("state-missing", _remove("state/0/0/11.changelog")),
    ("state-missing", _too_old(_remove("state/0/1/SSTs/1-x.sst"))),
    ("state-missing", _remove("state/0/1")),
    ("state-damaged", _too_old(_damage("state/0/1/SSTs/1-x.sst", "short"))),
    ("state-damaged", _too_old(_damage("state/0/1/10.zip", "no zip"))),
    ("state-lacks", _remove("state/0/1/SSTs/1-x.sst")),
    ("state-lacks", _damage("state/0/1/10.zip", "no zip")),
    ("switch-unfinished", _switch),
    ("repartition-unfinished", _repartition),
    ("command-at-work", _owner),
    ("provider-differs", lambda world: world.conf.update(CLUSTER) or world.write(provider=ROCKSDB)),
    ("format-differs", _store("checkpointFormatVersion", "2")),
    ("partitions-differ", _set(spark__sql__shuffle__partitions="4")),
    ("snapshots-lag", _lagging),
    ("skew", lambda world: world.write(partitions=8) or world.grow(7, 100 * MIB)),
]  # fmt: skip


def test_a_world_in_which_all_is_well(world: World) -> None:
    found = world.diagnose()
    assert (found.findings, found.ok, found.verdict) == ((), True, "ok: nothing odd")
    world.conf |= CLUSTER
    assert world.diagnose().findings == ()
    world.write(checkpoint_format=2)
    assert world.diagnose().findings == ()


@pytest.mark.parametrize(("name", "change"), CASES, ids=[name for name, _ in CASES])
def test_a_finding(name: str, change: Callable[[World], None], world: World) -> None:
    change(world)
    found = world.diagnose()
    assert [finding.name for finding in found.findings] == [name]
    (finding,) = found.findings
    (kind,) = (kind for kind in doctor_kinds.KINDS if kind.name == name)
    assert finding.severity == kind.severity
    assert all((finding.problem, finding.reason, finding.remedy))
    assert found.verdict == f"1 {kind.severity}"
    # A program gets the same.
    (written,) = json.loads(found.to_json())["findings"]
    assert (written["name"], written["values"]) == (name, finding.values)


def test_every_kind_is_provoked() -> None:
    assert {name for name, _ in CASES} == {kind.name for kind in doctor_kinds.KINDS}


@pytest.mark.parametrize(
    "change",
    [
        _store("rocksdb.boundedMemoryUsage", "true"),
        _store("rocksdb.maxMemoryUsageMB", "400"),
        _store("checkpointFormatVersion", "1"),
        _set(spark__sql__shuffle__partitions="2"),
        _own("maxUncommittedBytes", "-1"),
        _own("maxUncommittedBytes", "512m"),
        _cluster(spark__jars="", **{"spark.jars.packages": "g:statemark-spark_4.2_2.13:1"}),
        _jar_of_an_image,
        lambda world: world.local.chmod(0o1777),
        lambda world: shutil.rmtree(world.local),
        lambda world: world.write(partitions=8) or world.grow(1, 60 * MIB),
        lambda world: world.write(partitions=4) or world.grow(1, 100 * MIB),
        lambda world: world.session(),
        # The plugin names itself for each query as it starts.
        _session_that_names_it_late,
        lambda world: world.limit(memory=1500 * MIB, handles=128),
        lambda world: (world.path / "memory.max").write_text("max\n"),
        # Directories of a larger number of partitions stay for older batches.
        lambda world: (world.checkpoint / "state/0/2").mkdir(),
        # A file that a running query deletes between its listing and a look at it.
        lambda world: (world.checkpoint / "state/0/0/3.zip").symlink_to("/nowhere"),
        # A batch that was killed runs again.
        lambda world: world.entry("offsets", 12, {"conf": world.pinned(PROVIDER_CLASS, 2)}),
        # Another attempt at a version, and one that nobody has committed.
        lambda world: (world.checkpoint / "state/0/0/13.zip").touch(),
    ],
)  # fmt: skip
def test_what_is_no_finding(change: Callable[[World], None], world: World) -> None:
    change(world)
    assert world.diagnose().findings == ()


DEEP = "[" * 100_000


def _pipe(name: str) -> Callable[[World], None]:
    def change(world: World) -> None:
        _remove(name)(world)
        os.mkfifo(world.checkpoint / name)

    return change


def _endless(name: str) -> Callable[[World], None]:
    def change(world: World) -> None:
        _remove(name)(world)
        (world.checkpoint / name).symlink_to("/dev/zero")

    return change


def _metadata(value: object) -> Callable[[World], None]:
    def change(world: World) -> None:
        with zipfile.ZipFile(world.checkpoint / "state/0/1/10.zip", "w") as image:
            image.writestr("metadata", "v1\n" + (DEEP if value is None else json.dumps(value)))

    return change


def _ids(value: object) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.write(checkpoint_format=2)
        world.entry("commits", 11, {"stateUniqueIds": value})

    return change


def _far_commit(world: World) -> None:
    world.entry("commits", 10**15, {})


def _partitions(text: str) -> Callable[[World], None]:
    pinned = {PROVIDER_CLASS_KEY: PROVIDER_CLASS, "spark.sql.shuffle.partitions": text}
    return lambda world: world.entry("offsets", 11, {"conf": pinned})


JUNK: list[tuple[str, Callable[[World], None]]] = [
    *(
        (kind, change(name))
        for kind, name in (("entry-damaged", "offsets/11"), ("metadata-gone", "metadata"))
        for change in (lambda name: _damage(name, f"v1\n{DEEP}"), _pipe, _endless)
    ),
    ("local-dir-refused", _own("localDir", "/a" * 3000)),
    ("entry-damaged", _pipe("commits")),
    ("entry-missing", _far_commit),
    ("entry-damaged", _partitions("9" * 12)),
    *(("entry-damaged", _ids(value)) for value in (7, {"0": 7}, {"0": [None]})),
    ("state-missing", _pipe("state")),
    ("state-missing", _pipe("state/0")),
    ("state-missing", _pipe("state/0/0/11.changelog")),
    ("state-missing", lambda world: (world.checkpoint / "state/2").mkdir()),
    *(
        ("state-lacks", _metadata(value))
        for value in (None, [], {"sstFiles": 7}, {"sstFiles": [{}]}, {"sstFiles": [{"a": 1}]})
    ),
    *(
        ("settings-refused", _set(**{key: value}))
        for key, value in (
            ("spark.driver.memoryOverheadFactor", "inf"),
            ("spark.driver.memory", "much"),
            (f"{PREFIX}maxUncommittedBytes", "9" * 5000),
            (f"{STORE}minDeltasForSnapshot", "9" * 5000),
            (f"{PREFIX}localDir", "file://[x/"),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change"), JUNK)
def test_junk_is_a_finding(name: str, change: Callable[[World], None], world: World) -> None:
    change(world)
    assert name in [finding.name for finding in world.diagnose().findings]


@pytest.mark.parametrize("location", ["", " ", "x" * 300])
def test_a_location_that_is_none(
    location: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.checkpoint)
    with pytest.raises(statemark.SettingsError):
        statemark.doctor(location)


def test_files_that_vanish_while_they_are_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that runs commits, and deletes what an older version needed."""
    real, pending = Log.entry, [12]

    def entry(log: Log, batch: int) -> dict[str, Any]:
        if pending and (log.folder.name, batch) == ("offsets", 10):
            committed = pending.pop()
            for name in ("offsets", "commits"):
                world.entry(name, committed, {"conf": world.pinned(PROVIDER_CLASS, 2)})
            for partition in (0, 1):
                changelog = f"state/0/{partition}/{committed + 1}.changelog"
                (world.checkpoint / changelog).write_bytes(b"c")
            (world.checkpoint / "offsets/10").unlink()
        return real(log, batch)

    monkeypatch.setattr(Log, "entry", entry)
    assert world.diagnose().findings == ()
    assert not pending


def test_problems_come_first(world: World) -> None:
    world.local.chmod(0o777)
    (world.checkpoint / "metadata").unlink()
    found = world.diagnose()
    assert [finding.name for finding in found.findings] == ["metadata-gone", "local-dir-open"]
    lines = str(found).splitlines()
    assert lines[0] == found.verdict == "1 problem, 1 warning"
    assert lines[1].startswith("problem  metadata-gone: ")
    assert [line.split(":")[0] for line in lines[2:4]] == ["  reason", "  remedy"]


# ---- what a restart costs


def _loads(found: statemark.Diagnosis) -> dict[str, Any]:
    return dict(json.loads(found.to_json())["restart"])


def test_a_restart_without_local_directories(world: World) -> None:
    found = world.diagnose()
    zipped = sum((world.checkpoint / f"state/0/{p}/10.zip").stat().st_size for p in (0, 1))
    restart = _loads(found)
    assert restart["version"] == 12
    assert restart["snapshotBytes"] == zipped + 2 * 5000
    assert (restart["changelogs"], restart["changelogBytes"]) == (4, 400)
    assert (restart["localStores"], restart["inUse"]) == (0, False)
    why = "no local directory on this machine"
    assert [store["why"] for store in restart["stores"]] == [why, why]
    assert f"2 from the checkpoint: {why}" in str(found)


@pytest.mark.parametrize(
    ("version", "why"),
    [
        (12, None),
        (2, None),
        (1, "the local directory is more than 10 versions behind"),
        (13, "the local directory is ahead of the checkpoint"),
    ],
)
def test_which_local_directories_are_used(world: World, version: int, why: str | None) -> None:
    world.home(0, version)
    first = _loads(world.diagnose())["stores"][0]
    assert first.get("why") == why
    if why is None:
        assert (first["localVersion"], first["changelogs"]) == (version, 12 - version)
        assert (first["snapshotBytes"], first["changelogBytes"]) == (0, 100 * (12 - version))


def test_the_newest_local_directory_counts(world: World) -> None:
    world.home(0, 9, "nine")
    world.home(0, 11, "eleven")
    world.home(0, 12, "temporary-1")
    (world.home(0, 12, "empty") / "base/CURRENT").unlink()
    (world.home(0, 12, "unused") / "owner.lock").write_text("")
    world.home(1, 0)
    first, second = _loads(world.diagnose())["stores"]
    assert first["localVersion"] == 11
    assert second["why"] == "the local directory has no version on disk"
    # Changelogs after it are needed, whatever the snapshot is.
    (world.checkpoint / "state/0/0/10.changelog").unlink()
    assert _loads(world.diagnose())["stores"][0]["localVersion"] == 11
    shutil.rmtree(world.local / QUERY / "0-0-default/eleven")
    gone = "a changelog after the local directory's version is gone"
    assert _loads(world.diagnose())["stores"][0]["why"] == gone


def test_a_store_in_use_is_seen_and_not_disturbed(world: World) -> None:
    lock = world.home(0, 12) / "owner.lock"
    code = (
        "import fcntl, sys\n"
        f"file = open({str(lock)!r}, 'r+b')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX, 1, 1)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"held\n"
        found = world.diagnose()
        assert owner.stdin is not None
        owner.stdin.close()
    assert _loads(found)["inUse"]
    assert "the query seems to run" in str(found)
    with lock.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 1)


def test_files_that_only_a_local_directory_makes_up_for(world: World) -> None:
    for partition in (0, 1):
        (world.checkpoint / f"state/0/{partition}/SSTs/1-x.sst").unlink()
        (world.checkpoint / f"state/0/{partition}/1.changelog").unlink()
    gone = "cannot be loaded: files of the checkpoint are gone or damaged"
    assert f"2 {gone}" in str(world.diagnose())
    world.home(0, 11)
    found = world.diagnose()
    assert [finding.name for finding in found.findings] == ["state-missing", "state-lacks"]
    assert f"1 {gone}" in str(found)
    assert "1 of 2 stores from the local directory" in str(found)
    assert "3 changelogs to replay (300 B)" in str(found)


def test_a_start_that_repairs_itself(world: World) -> None:
    """As `RestoreRules` of the JVM does it."""
    store = world.checkpoint / "state/0/0"
    world.snapshot(store / "6.zip", rows=5)
    (store / "10.zip").write_text("no zip")

    def names(**conf: str) -> list[str]:
        world.conf |= {f"{STORE}autoSnapshotRepair.{key}": value for key, value in conf.items()}
        return [finding.name for finding in world.diagnose().findings]

    assert names() == ["state-lacks"]
    load = _loads(world.diagnose())["stores"][0]
    assert (load["snapshotVersion"], load["changelogs"]) == (6, 6)
    assert "1 from an older snapshot, as the newest is of no use" in str(world.diagnose())
    assert names(maxChangeFileReplay="5") == ["state-damaged"]
    assert names(maxChangeFileReplay="6") == ["state-lacks"]
    assert names(enabled="false") == ["state-damaged"]
    assert names(enabled="true") == ["state-lacks"]
    # A load that begins with this one does not look for another.
    (store / "8.changelog").unlink()
    assert names() == ["state-damaged"]


def test_a_commit_log_that_is_gone(world: World) -> None:
    """Checkpoint format v2 needs it: it says which files count."""
    for version, name in ((1, "commit-missing"), (2, "entry-missing")):
        world.write(checkpoint_format=version)
        _remove("commits")(world)
        assert [finding.name for finding in world.diagnose().findings] == [name]


def test_changelogs_do_not_lead_past_new_column_families(world: World) -> None:
    store = world.checkpoint / "state/0/0"
    for version, families in ((6, {"a": 0}), (8, {"a": 0, "b": 1}), (10, {"a": 0, "b": 1})):
        with zipfile.ZipFile(store / f"{version}.zip", "w") as image:
            image.writestr("metadata", "v1\n" + json.dumps({"columnFamilyMapping": families}))
    files = [store / f"{version}.zip" for version in (6, 8, 10)]
    snapshots = {int(file.stem): file for file in files}
    assert [one[0] for one in older(snapshots, world.checkpoint)] == [8]
    del snapshots[8], snapshots[10]
    assert [one[0] for one in older(snapshots, world.checkpoint)] == [0]


def test_why_no_local_directory_counts(world: World) -> None:
    del world.conf[f"{PREFIX}localDir"]
    world.conf |= CLUSTER
    assert _loads(world.diagnose())["stores"][0]["why"] == "localDir is not set"
    (world.checkpoint / "metadata").unlink()
    assert _loads(world.diagnose())["stores"][0]["why"] == "the query's id is not known"
    world.write(provider=ROCKSDB)
    why = "the pinned provider keeps no local directory"
    assert _loads(world.diagnose())["stores"][0]["why"] == why


def test_a_batch_that_runs_again(world: World) -> None:
    world.entry("offsets", 12, {"conf": world.pinned(PROVIDER_CLASS, 2)})
    found = world.diagnose()
    assert (_loads(found)["version"], _loads(found)["repeatedBatch"]) == (12, 12)
    assert "batch 12 was planned and is not committed: it runs again" in str(found)


def test_attempts_that_lost_do_not_count(world: World) -> None:
    world.write(checkpoint_format=2)
    store = world.checkpoint / "state/0/0"
    world.snapshot(store / "12_dead.zip", rows=5)
    (store / "12_dead.changelog").write_bytes(b"x" * 9999)
    first = checkpoint_files.read(world.checkpoint).stores[0]
    assert (first.snapshot, first.rows, first.after(10)) == (10, 1000, {11: 100, 12: 100})
    (store / "12_a011.changelog").unlink()
    assert [finding.name for finding in world.diagnose().findings] == ["state-missing"]


def test_stores_of_a_join_and_of_the_hdfs_backed_provider(world: World) -> None:
    for partition in (0, 1):
        store = world.checkpoint / f"state/0/{partition}"
        shutil.rmtree(store)
        for name in ("left", "right"):
            (store / name).mkdir(parents=True)
            for version in range(1, 13):
                (store / name / f"{version}.delta").write_bytes(b"d" * 10)
            (store / name / "11.snapshot").write_bytes(b"m" * 70)
    found = checkpoint_files.read(world.checkpoint)
    assert [store.text for store in found.stores] == [
        "0-0-left", "0-0-right", "0-1-left", "0-1-right",
    ]  # fmt: skip
    assert {store.snapshot_bytes for store in found.stores} == {70}
    (world.checkpoint / "state/0/1/left/12.delta").unlink()
    (finding,) = world.diagnose().findings
    assert finding.values["files"] == ["state/0/1/left/12.delta"]
    shutil.rmtree(world.checkpoint / "state/0/1/right")
    assert "state/0/1/right" in str(world.diagnose().findings[0].values["files"])


def test_an_operator_with_one_partition(world: World) -> None:
    """A limit keeps all in one, whatever the number of partitions is."""
    shutil.rmtree(world.checkpoint / "state/0/1")
    schema = world.checkpoint / "state/0/0/_metadata/schema"
    schema.parent.mkdir()
    text = '\x00\x02v2{"type":"struct","fields":[{"name":"key","type":"%s"}]}\x00{"type":"struct"}'
    for kind, wanted in (("void", []), ("long", ["state-missing"])):
        schema.write_text(text % kind)
        assert [finding.name for finding in world.diagnose().findings] == wanted
    # In checkpoint format v2 the commit log says it.
    world.write(checkpoint_format=2)
    shutil.rmtree(world.checkpoint / "state/0/1")
    assert [finding.name for finding in world.diagnose().findings] == ["state-missing"]
    world.entry("commits", 11, {"stateUniqueIds": {"0": [["a011"]]}})
    assert world.diagnose().findings == ()


def test_a_query_without_a_commit_or_without_state(world: World) -> None:
    shutil.rmtree(world.checkpoint / "state")
    assert world.diagnose().findings == ()
    assert "restart" not in json.loads(world.diagnose().to_json())
    for batch in range(1, 12):
        (world.checkpoint / f"offsets/{batch}").unlink()
    shutil.rmtree(world.checkpoint / "commits")
    assert world.diagnose().findings == ()


# ---- the command


@pytest.fixture
def in_file(world: World) -> World:
    """The world's settings in a file of Spark's."""
    conf = Path(os.environ["SPARK_CONF_DIR"]) / "spark-defaults.conf"
    conf.write_text("".join(f"{key} {value}\n" for key, value in world.conf.items()))
    return world


def test_the_command(in_file: World, capsys: pytest.CaptureFixture[str]) -> None:
    where = str(in_file.checkpoint)
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("ok: nothing odd\njava        17.0.9 (")
    assert len(shown.splitlines()) == 6
    assert main(["doctor", f"file://{where}", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["ok"], found["findings"]) == (1, True, [])
    assert found["localDir"]["path"] == str(in_file.local)
    # Options count before the file; --master too.
    setting = f"{STORE}checkpointFormatVersion=2"
    assert main(["doctor", where, "--conf", setting, "--master", "local[3]"]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("1 problem\nproblem  format-differs: ")
    assert "master local[3]" in shown


def test_usage_and_errors(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["doctor", "/c", "--kafka", "b:1"])
    assert caught.value.code == 2
    assert "--kafka: not allowed with argument CHECKPOINT" in capsys.readouterr().err
    assert main(["doctor", "--topic", "t"]) == 2
    assert "--topic was given, and no --kafka" in capsys.readouterr().err
    assert main(["doctor", str(world.path / "nowhere")]) == 2
    assert "nowhere does not exist\n  reason: nothing is at" in capsys.readouterr().err
    assert main(["doctor", str(world.local)]) == 2
    assert "is not the checkpoint of a query\n  reason: it has no" in capsys.readouterr().err

    def refused(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(checkpoint_files, "read", refused)
    assert main(["doctor", str(world.checkpoint)]) == 2
    assert "cannot be read\n  reason: [Errno 13] Permission denied" in capsys.readouterr().err


_SUBMIT = """#!{python}
import json, pathlib, sys
pathlib.Path({seen!r}).write_text(json.dumps(sys.argv[1:]))
print({text!r})
sys.exit({code})
"""


@pytest.mark.parametrize("code", [0, 2])
def test_a_checkpoint_elsewhere_is_inspected(
    world: World, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    partitions = [
        {"partition": p, "oldestVersion": 3, "newestVersion": version, "snapshots": 1,
         "newestSnapshotVersion": 10, "rows": 7, "changelogBytes": 100, "snapshotBytes": 10,
         "sstBytes": 1000}
        for p, version in ((0, 12), (1, 11), (2, 4))
    ]  # fmt: skip
    text = json.dumps(
        {"checkpoint": "s3a://b/c", "queryId": QUERY, "provider": PROVIDER_CLASS,
         "checkpointFormatVersion": 1, "partitions": 2, "lastPlannedBatch": 11,
         "lastCommittedBatch": 11,
         "operators": [{"id": 0, "stores": [{"name": "default", "partitions": partitions}]}]}
    )  # fmt: skip
    seen, submit = world.path / "seen", world.path / "spark/bin/spark-submit"
    submit.parent.mkdir()
    script = _SUBMIT.format(python=sys.executable, seen=str(seen), text=text, code=code)
    submit.write_text(script)
    submit.chmod(0o755)
    world.home(0, 11)
    local = f"{PREFIX}localDir={world.local}"
    command = ["doctor", "s3a://b/c", "--packages", "g:a:1", "--conf", local, "--json"]
    assert main(command) == (1 if code == 0 else 2)
    words = json.loads(seen.read_text())
    assert ("--packages", "g:a:1") in pairwise(words)
    asked = json.loads(words[-1])
    assert (asked["command"], asked["checkpoint"], asked["json"]) == ("inspect", "s3a://b/c", True)
    out, err = capsys.readouterr()
    if code != 0:
        assert err.startswith("statemark: s3a://b/c could not be inspected\n")
        return
    found = json.loads(out)
    # The third partition is of a larger number, which older batches had.
    assert [finding["name"] for finding in found["findings"]] == ["state-missing"]
    first, second = found["restart"]["stores"]
    assert (first["localVersion"], first["changelogs"]) == (11, 1)
    assert (second["snapshotVersion"], second["changelogs"]) == (10, 2)
    # Sizes of one version are not known there.
    assert "snapshotBytes" not in second
    assert "snapshotBytes" not in found["restart"]


def test_a_stand_in_for_java_is_asked_where_no_file_tells(world: World) -> None:
    (world.java_home / "release").unlink()
    java = world.java_home / "bin/java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.4\" 2024' >&2\n")
    found = json.loads(world.diagnose().to_json())
    assert found["java"] == {"version": "21.0.4", "path": str(java)}


def _keys(value: object) -> set[str]:
    """Return all keys within a value, but for those of `values`, which each finding has its own."""
    if isinstance(value, list):
        return set().union(*map(_keys, value))
    if not isinstance(value, dict):
        return set()
    return set(value).union(*(_keys(one) for key, one in value.items() if key != "values"))


def test_every_key_for_programs_is_documented(world: World) -> None:
    world.conf |= CLUSTER
    world.home(0, 12)
    world.local.chmod(0o777)
    world.entry("offsets", 12, {"conf": world.pinned(PROVIDER_CLASS, 2)})
    page = (Path(__file__).parents[3] / "docs/doctor.md").read_text().partition("## For prog")[2]
    keys = _keys(json.loads(world.diagnose().to_json())) | {"keysBytes"}
    assert keys == set(re.findall(r"`([A-Za-z]+)(?:\[\])?`", page))


def test_memory_by_the_formula(world: World) -> None:
    """4 tasks at once and 2 stores: two of them staged and serialized, and two prepared."""
    world.conf |= {"spark.master": "local[4]", "spark.driver.memory": "4g"}
    memory = json.loads(world.diagnose().to_json())["memory"]
    assert memory["heapBytes"] == 4096 * MIB
    assert memory["uncommittedLimitBytes"] == 4096 * MIB // 10
    assert memory["nativeBytes"] == 409 * MIB // 2
    assert memory["batchBytes"] == 2 * 2 * 100 + 2 * 100
    assert memory["keysBytes"] == 2000 * 2
    world.conf |= CLUSTER | {"spark.executor.instances": "2", "spark.executor.memoryOverhead": "1g"}
    memory = json.loads(world.diagnose().to_json())["memory"]
    assert (memory["role"], memory["heapBytes"]) == ("executor", 1024 * MIB)
    assert memory["nativeBytes"] == 512 * MIB
    assert memory["batchBytes"] == 2 * 100 + 100
    assert memory["keysBytes"] == 2000
