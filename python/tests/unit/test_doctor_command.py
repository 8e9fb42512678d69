"""`statemark doctor`: the command, the keys for programs, and what no kind of finding tests."""

from __future__ import annotations

import json
import os
import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from support.doctor_world import CLUSTER, MIB, QUERY, STORE, World

from statemark import checkpoint_files, jars
from statemark.cli import main
from statemark.settings import PREFIX, PROVIDER_CLASS, PROVIDER_CLASS_KEY


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
    setting = f"{PREFIX}maxUncommittedBytes=lots"
    assert main(["doctor", where, "--conf", setting, "--master", "local[3]"]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("1 problem\nproblem  settings-refused: "), shown
    assert "master local[3]" in shown


def test_options_that_python_will_give_to_spark(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = f"--master local[3] --conf {PROVIDER_CLASS_KEY}={PROVIDER_CLASS}"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{submit} --jars /statemark.jar pyspark-shell")
    assert "master local[3]" in str(world.diagnose())
    assert world.diagnose().findings == ()
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{submit} pyspark-shell")
    assert [finding.name for finding in world.diagnose().findings] == ["jar-not-named"]


def test_a_machine_without_spark(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing says then where Spark's own settings are."""
    for name in ("SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(jars, "_pyspark", lambda: None)
    assert [finding.name for finding in world.diagnose().findings] == ["spark-missing"]


def test_usage_and_errors(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["doctor", "/c", "--kafka", "b:1"])
    assert caught.value.code == 2
    assert "--kafka: not allowed with argument CHECKPOINT" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["doctor", "--topic", "t"])
    assert "--topic: means nothing without --kafka" in capsys.readouterr().err
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
        {"schema": 1, "checkpoint": "s3a://b/c", "queryId": QUERY, "provider": PROVIDER_CLASS,
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
        assert "\nstatemark: `statemark inspect` has failed\n" in err
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
    # Sizes by hand take the bound away, however their keys are written.
    world.conf[f"{STORE}rocksdb.BLOCKCACHESIZEMB"] = "8"
    assert json.loads(world.diagnose().to_json())["memory"].get("nativeBytes") is None
