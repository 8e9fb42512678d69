"""`statemark doctor`: every kind of finding, on a machine and a checkpoint made by hand."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.doctor_world import (
    CLUSTER,
    MIB,
    ROCKSDB,
    STORE,
    World,
    remove,
    skip_where_line_differs,
)

import statemark
from statemark import (
    doctor_disk,
    doctor_kinds,
    jars,
)
from statemark.checkpoint_logs import Log
from statemark.settings import PREFIX, PROVIDER_CLASS, PROVIDER_CLASS_KEY


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
    return lambda world: [remove(f"commits/{batch}")(world) for batch in batches] and None


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
    ("metadata-gone", remove("metadata")),
    ("metadata-gone", _damage("metadata")),
    ("entry-damaged", _damage("offsets/11")),
    ("entry-damaged", _damage("offsets/11", "v1\n{half")),
    ("entry-damaged", _damage("offsets/10", "v1\n[1]")),
    ("entry-damaged", _damage("commits/11", "{}")),
    ("entry-missing", remove("offsets/10")),
    ("entry-missing", remove("offsets/11")),
    ("entry-missing", remove("offsets")),
    ("commit-missing", _gone_commits(10, 11)),
    ("state-missing", remove("state/0/0/11.changelog")),
    ("state-missing", _too_old(remove("state/0/1/SSTs/1-x.sst"))),
    ("state-missing", remove("state/0/1")),
    ("state-damaged", _too_old(_damage("state/0/1/SSTs/1-x.sst", "short"))),
    ("state-damaged", _too_old(_damage("state/0/1/10.zip", "no zip"))),
    ("state-lacks", remove("state/0/1/SSTs/1-x.sst")),
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
    skip_where_line_differs(name)
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


def test_a_line_whose_queries_keep_their_format(world: World) -> None:
    """Spark 4.3 goes on in the checkpoint's format, whatever the session says."""
    _real_time(world)
    world.conf |= {f"{PREFIX}allowRealTime": "true", f"{STORE}checkpointFormatVersion": "2"}
    assert world.diagnose().findings == ()


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
        # Damage inside these is for `verify` to find.
        _damage("state/0/0/11.changelog", "cut"),
        lambda world: (world.checkpoint / "state/0/1/SSTs/1-x.sst").write_bytes(b"?" * 5000),
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
        remove(name)(world)
        os.mkfifo(world.checkpoint / name)

    return change


def _endless(name: str) -> Callable[[World], None]:
    def change(world: World) -> None:
        remove(name)(world)
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
    skip_where_line_differs(name)
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
