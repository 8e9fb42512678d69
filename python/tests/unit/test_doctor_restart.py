"""`statemark doctor`: what it says that a restart reads."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import struct
import subprocess
import sys
import zipfile
from typing import Any

import pytest
from support.doctor_world import (
    CLUSTER,
    QUERY,
    REPAIRS,
    ROCKSDB,
    STORE,
    WITHOUT_REPAIR,
    World,
    remove,
)

import statemark
from statemark import (
    checkpoint_files,
)
from statemark.checkpoint_snapshots import older
from statemark.settings import PREFIX, PROVIDER_CLASS


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
    why = f"no local directory in {world.local}"
    assert [store["why"] for store in restart["stores"]] == [why, why]
    assert f"2 from the checkpoint: {why}" in str(found)
    # A job may name it in its code, which these settings know nothing of.
    del world.conf[f"{PREFIX}localDir"]
    unset = f"no local directory in {world.path / 'cache/statemark'}, and localDir is not set"
    assert [store["why"] for store in _loads(world.diagnose())["stores"]] == [unset, unset]


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


def test_a_local_directory_from_before_a_switch_is_of_no_use(world: World) -> None:
    homes = [world.home(partition, 12) for partition in (0, 1)]
    mark = world.checkpoint / "_statemark/mark"
    mark.parent.mkdir(exist_ok=True)
    mark.write_text("v1\n0a1b\n")
    for home, seconds in zip(homes, (99, 101), strict=True):
        os.utime(home / "owner.lock", (seconds, seconds))
    os.utime(mark, (100, 100))
    first, second = _loads(world.diagnose())["stores"]
    assert first["why"] == "the local directory is older than the last switch of providers"
    assert second["localVersion"] == 12


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


@pytest.mark.parametrize("place", ["home", "base", "store", "query"])
def test_nothing_of_another_user_is_opened(world: World, place: str) -> None:
    if os.geteuid():
        pytest.skip("only root can give a directory to another user")
    home = world.home(0, 12)
    world.home(1, 12)
    given = {"home": home, "base": home / "base", "store": home.parent, "query": home.parent.parent}
    os.chown(given[place], 65534, -1)
    store = _loads(world.diagnose())["stores"][0]
    assert store["why"] == "the local directory is another user's"


@pytest.mark.parametrize("name", ["owner.lock", "base/CURRENT"])
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_nothing_but_regular_files_is_opened(world: World, name: str, kind: str) -> None:
    file = world.home(0, 12) / name
    world.home(1, 12)
    kept = file.rename(file.with_name("kept"))
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(kept)
    store = _loads(world.diagnose())["stores"][0]
    assert "localVersion" not in store
    assert "local directory" in store["why"]


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


@pytest.mark.skipif(not REPAIRS, reason=WITHOUT_REPAIR)
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


def _signature(version: int, before: int) -> bytes:
    """Return the end of a changelog of Statemark's."""
    return struct.pack(">4sbqbi", b"SMcl", 1, version, before, 0)


def test_no_repair_goes_over_a_changelog_of_another_history(world: World) -> None:
    """Spark's provider wrote versions 11 and 12 as snapshots, and left Statemark's changelogs."""
    store = world.checkpoint / "state/0/0"
    world.home(1, 12)
    for version in (11, 12):
        (store / f"{version}.changelog").write_bytes(b"c" * 82 + _signature(version, 1))
        world.snapshot(store / f"{version}.zip", rows=1000)
        with zipfile.ZipFile(store / f"{version}.zip", "a") as image:
            image.writestr("OPTIONS-000007", "o")

    def names() -> list[str]:
        world.conf[f"{STORE}autoSnapshotRepair.enabled"] = "true"
        return [finding.name for finding in world.diagnose().findings]

    assert names() == []
    (store / "12.zip").write_bytes((store / "12.zip").read_bytes()[:-30])
    assert names() == ["state-damaged"]
    (store / "12.zip").unlink()
    assert names() == ["state-damaged"]
    # One that Statemark wrote on the snapshot leads on.
    (store / "12.changelog").write_bytes(b"c" * 82 + _signature(12, 2))
    assert names() == []


def test_a_snapshot_whose_changelog_was_written_anew_is_none(world: World) -> None:
    store = world.checkpoint / "state/0/0"
    unsigned = b"c" * 79 + b"LZ4Block" + bytes(13)
    signed = b"c" * 82 + _signature(7, 1)
    names_unsigned = struct.pack(">bbqi", 1, 1, 100, 0)
    for changelog, names, version in (
        (unsigned, names_unsigned, 10),
        (b"c" + unsigned, names_unsigned, 0),
        (signed, names_unsigned, 0),
        (signed, struct.pack(">bbq", 1, 2, 7), 10),
        # Another attempt of the same run has written over it.
        (signed, struct.pack(">bbq", 1, 2, 8), 10),
        (signed, struct.pack(">bbq", 1, 2, 7 + (1 << 32)), 0),
        (unsigned, struct.pack(">bbq", 1, 2, 7), 0),
        # A changelog that was cut says nothing against the snapshot.
        (signed[:50], struct.pack(">bbq", 1, 2, 7), 10),
    ):
        (store / "10.changelog").write_bytes(changelog)
        world.snapshot(store / "10.zip", rows=1000)
        with zipfile.ZipFile(store / "10.zip", "a") as image:
            image.writestr("statemark", names)
        assert _loads(world.diagnose())["stores"][0]["snapshotVersion"] == version


def test_a_commit_log_that_is_gone(world: World) -> None:
    """Checkpoint format v2 needs it: it says which files count."""
    for version, name in ((1, "commit-missing"), (2, "entry-missing")):
        world.write(checkpoint_format=version)
        remove("commits")(world)
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
    world.write(checkpoint_format=2)
    shutil.rmtree(world.checkpoint / "state")
    # The commit log of this format names operators.
    assert [finding.name for finding in world.diagnose().findings] == ["state-missing"]
    world.write()
    shutil.rmtree(world.checkpoint / "state")
    assert world.diagnose().findings == ()
    assert "restart" not in json.loads(world.diagnose().to_json())
    for batch in range(1, 12):
        (world.checkpoint / f"offsets/{batch}").unlink()
    shutil.rmtree(world.checkpoint / "commits")
    assert world.diagnose().findings == ()
