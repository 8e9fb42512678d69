"""
Requests to an object store, counted by the server: Statemark's beside those of Spark's provider.

A cluster of one executor, so that each store stays where it is. Maintenance runs when the test says
so, at moments when the same version is due in both providers. What is counted lies in the
directories of stores.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import object_store
from support.modes import IS_WHOLE
from support.processes import SMALL_JVM
from support.session import (
    LINE,
    ROOT,
    SPARK_PROVIDER,
    STATE_STORE,
    STATEMARK_PROVIDER,
    built,
    class_path_with_testkit,
    statemark_jar,
)

if TYPE_CHECKING:
    from support.object_store import Request, Server

pytestmark = pytest.mark.skipif(
    LINE != "4.2", reason="its jars are those of the default line's Hadoop"
)

PARTITIONS = 4 if IS_WHOLE else 1
FORMATS = ("1", "2")
#: Statemark with directories that go with the executor, and with ones that stay.
VARIANTS = {"spark": SPARK_PROVIDER, "statemark": STATEMARK_PROVIDER, "local": STATEMARK_PROVIDER}
#: After versions 4 and 7 a snapshot is due, of version 3 and 6 with either provider.
MAINTENANCE = (3, 6)
FIRST, AGAIN = range(5), range(5, 8)
#: Batches whose version is due for a snapshot, so that in format v1 its fingerprint is taken.
DUE = (2, 3, 5, 6)
#: Batches that begin neither with a new store nor with a restored one.
STEADY = (*FIRST[1:], *AGAIN[1:])
_JOB = Path(__file__).with_name("s3_job.py")
_TIMEOUT_S = 900
#: Below a store's directory, but for the schema that the driver keeps there.
_IN_STORE = re.compile(r"([^/]+)/state/0/\d+(?!/_metadata)(/|$)")


@dataclass(frozen=True)
class Runs:
    """
    What the queries did.

    Attributes
    ----------
    requests
        By query, phase (`first` or `again`) and mark (`batch/3`), in order.
    results
        By phase and query, as the job wrote them.
    """

    requests: dict[tuple[str, str, str], list[Request]]
    results: dict[str, dict[str, Any]]

    def kinds(self, query: str, phase: str, mark: str) -> Counter[str]:
        """Count by kind what a query asked for after a mark."""
        return Counter(request.kind for request in self.requests.get((query, phase, mark), []))

    def files(self, query: str, kind: str, phase: str, mark: str) -> Counter[str]:
        """Count requests of a kind after a mark by what comes after the last dot of the file."""
        return Counter(
            request.key.rsplit(".", 1)[-1]
            for request in self.requests.get((query, phase, mark), [])
            if request.kind == kind
        )

    def snapshots(self, query: str) -> list[str]:
        """Return the names of uploaded snapshots, without ids."""
        return sorted(
            re.sub(r"_[0-9a-f-]{36}", "", request.key.removeprefix(f"{query}/state/0/"))
            for (name, _, _), requests in self.requests.items()
            if name == query
            for request in requests
            if request.kind == "COPY" and request.key.endswith(".zip")
        )


def _name(variant: str, checkpoint_format: str) -> str:
    return f"{variant}-v{checkpoint_format}"


def _class_path() -> dict[str, str]:
    """
    Environment of a job that has the testkit and the object store's client.

    A class that is asked for by name is looked for in each jar of `spark.jars`, each time.
    """
    jars = built(ROOT / f"jvm/s3/target/spark-{LINE}/jars", "make test").read_text().split()
    return {name: ":".join([value, *jars]) for name, value in class_path_with_testkit().items()}


def _plan(server: Server, local: Path, batches: range) -> dict[str, Any]:
    settings = {
        "spark.master": "local-cluster[1,2,1024]",
        "spark.executor.memory": "1g",
        "spark.executor.extraJavaOptions": SMALL_JVM,
        # Plans of a few rows are done before Java code of them is compiled.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.ui.enabled": "false",
        "spark.plugins": "statemark.spark.StatemarkPlugin",
        "spark.jars": str(statemark_jar()),
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.sql.streaming.minBatchesToRetain": "1",
        f"{STATE_STORE}.maintenanceInterval": "1000h",
        f"{STATE_STORE}.minDeltasForSnapshot": "3",
        f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.hadoop.fs.s3a.endpoint": server.url,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": "key",
        "spark.hadoop.fs.s3a.secret.key": "secret",
    }
    queries = {}
    # Settings stay for later queries: those with a directory of their own are the last.
    for variant, provider in VARIANTS.items():
        for checkpoint_format in FORMATS:
            name = _name(variant, checkpoint_format)
            conf = {
                f"{STATE_STORE}.providerClass": provider,
                f"{STATE_STORE}.checkpointFormatVersion": checkpoint_format,
            }
            if variant == "local":
                conf[f"{STATE_STORE}.statemark.localDir"] = str(local / "state")
            queries[name] = {
                "events": str(local / name),
                "checkpoint": f"s3a://{object_store.BUCKET}/{name}",
                "settings": conf,
            }
    return {
        "settings": settings,
        "endpoint": server.url,
        "queries": queries,
        "batches": list(batches),
        "maintenance": MAINTENANCE,
    }


def _job(server: Server, local: Path, phase: str, batches: range) -> dict[str, Any]:
    plan, results = local / f"{phase}.plan.json", local / f"{phase}.json"
    plan.write_text(json.dumps(_plan(server, local, batches)))
    with (local / f"{phase}.log").open("w") as log:
        done = subprocess.run(
            [sys.executable, str(_JOB), str(plan), str(results)],
            check=False,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=_TIMEOUT_S,
            cwd=local,
            env=os.environ | {"PYSPARK_PYTHON": sys.executable} | _class_path(),
        )
    assert done.returncode == 0, (local / f"{phase}.log").read_text()[-4000:]
    return json.loads(results.read_text())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """All queries, run, stopped, and run again by another process."""
    local = tmp_path_factory.mktemp("s3")
    requests: dict[tuple[str, str, str], list[Request]] = {}
    results = {}
    with object_store.serve(local) as server:
        for phase, batches in (("first", FIRST), ("again", AGAIN)):
            before = len(server.log())
            results[phase] = _job(server, local, phase, batches)
            mark = "start"
            for entry in server.log()[before:]:
                if isinstance(entry, str):
                    _, mark = entry.split("/", 1)
                elif store := _IN_STORE.match(entry.key):
                    requests.setdefault((store[1], phase, mark), []).append(entry)
    return Runs(requests, results)


@pytest.mark.parametrize("phase", ["first", "again"])
def test_results_are_those_of_a_batch_query(runs: Runs, phase: str) -> None:
    assert len(runs.results[phase]) == len(FORMATS) * len(VARIANTS)
    for name, result in runs.results[phase].items():
        assert len(result["wanted"]) > 1000
        assert result["got"] == result["wanted"], name
        assert set(result["maintained"]) == {PARTITIONS}, name


@pytest.mark.parametrize("checkpoint_format", FORMATS)
@pytest.mark.parametrize("batch", STEADY)
def test_a_batch_asks_for_what_sparks_does(runs: Runs, checkpoint_format: str, batch: int) -> None:
    spark = _of_batch(runs, "spark", checkpoint_format, batch)
    assert spark["PUT"] >= PARTITIONS
    assert spark["GET"] == 0
    looks = PARTITIONS if checkpoint_format == "1" and batch in DUE else 0
    statemark = _of_batch(runs, "statemark", checkpoint_format, batch)
    assert statemark == spark + Counter(HEAD=looks)


@pytest.mark.parametrize("checkpoint_format", FORMATS)
@pytest.mark.parametrize("batch", STEADY)
def test_commits_add_a_status_call_where_local_state_stays(
    runs: Runs, checkpoint_format: str, batch: int
) -> None:
    """In format v1 they learn the time of the file that they wrote; flushes ask for nothing."""
    local = _of_batch(runs, "local", checkpoint_format, batch)
    statemark = _of_batch(runs, "statemark", checkpoint_format, batch)
    assert not statemark - local
    looks = PARTITIONS if checkpoint_format == "1" and batch not in DUE else 0
    assert local - statemark == Counter(HEAD=looks)


@pytest.mark.parametrize("checkpoint_format", FORMATS)
def test_a_new_store_writes_what_sparks_does(runs: Runs, checkpoint_format: str) -> None:
    """Who finds which parent directory missing is a race between tasks: other kinds may differ."""
    spark = _of_batch(runs, "spark", checkpoint_format, FIRST[0])
    for variant in ("statemark", "local"):
        ours = _of_batch(runs, variant, checkpoint_format, FIRST[0])
        for kind in ("PUT", "COPY", "GET", "DELETE", "POST"):
            assert ours[kind] == spark[kind], (variant, kind)


@pytest.mark.parametrize("checkpoint_format", FORMATS)
def test_maintenance_asks_for_what_sparks_does(runs: Runs, checkpoint_format: str) -> None:
    for batch in MAINTENANCE:
        spark, statemark = (
            runs.kinds(_name(variant, checkpoint_format), _phase(batch), f"maintenance/{batch}")
            for variant in ("spark", "statemark")
        )
        assert spark["PUT"] >= 2 * PARTITIONS, "an SST file and a snapshot for each store"
        # A first one, as these are, looks once for snapshots above what is committed; in format v1
        # the file of the version is compared before and after the upload.
        looks = 2 * PARTITIONS if checkpoint_format == "1" else 0
        assert statemark == spark + Counter(LIST=PARTITIONS, HEAD=looks, GET=looks)
    last = runs.kinds(_name("spark", checkpoint_format), "again", f"maintenance/{MAINTENANCE[-1]}")
    assert last["DELETE"] > 2 * PARTITIONS, "retention has something to delete"
    snapshots = {variant: runs.snapshots(_name(variant, checkpoint_format)) for variant in VARIANTS}
    wanted = [f"{p}/{v}.zip" for p in range(PARTITIONS) for v in (3, 6)]
    assert snapshots == dict.fromkeys(VARIANTS, wanted)


@pytest.mark.parametrize("checkpoint_format", FORMATS)
def test_a_restart_elsewhere_reads_what_sparks_does(runs: Runs, checkpoint_format: str) -> None:
    assert runs.results["again"][_name("statemark", checkpoint_format)]["loads"].items() >= {
        ("statemarkLoadCheckpointCount", PARTITIONS)
    }
    spark = _of_batch(runs, "spark", checkpoint_format, AGAIN[0])
    statemark = _of_batch(runs, "statemark", checkpoint_format, AGAIN[0])
    read = runs.files(_name("spark", checkpoint_format), "GET", "again", f"batch/{AGAIN[0]}")
    assert read["sst"] == read["zip"] == PARTITIONS
    assert read["changelog"] == 2 * PARTITIONS
    # In format v1 it looks for a snapshot that a lost attempt has left, its version is due for one,
    # and the end of the changelog beside the snapshot says whether both are of one history.
    looks = PARTITIONS if checkpoint_format == "1" else 0
    assert not statemark - spark - Counter(HEAD=2 * looks, LIST=looks, GET=looks)


@pytest.mark.parametrize("checkpoint_format", FORMATS)
def test_a_restart_where_its_directories_are_reads_changelogs_only(
    runs: Runs, checkpoint_format: str
) -> None:
    assert runs.results["again"][_name("local", checkpoint_format)]["loads"].items() >= {
        ("statemarkLoadLocalCount", PARTITIONS)
    }
    mark = f"batch/{AGAIN[0]}"
    read = runs.files(_name("local", checkpoint_format), "GET", "again", mark)
    spark = runs.files(_name("spark", checkpoint_format), "GET", "again", mark)
    assert set(read) == {"changelog", "crc"} if checkpoint_format == "2" else {"changelog"}
    # In format v1 the file of its version is compared, and the one before it.
    compared = 2 * PARTITIONS if checkpoint_format == "1" else 0
    assert read["changelog"] <= spark["changelog"] + compared


def test_print_the_table(runs: Runs) -> None:
    """The table of docs/object-stores.md, requests for each store: `pytest -s`."""
    for what, marks in {
        "batch": [("first", f"batch/{FIRST[4]}")],
        "maintenance with a snapshot": [("first", f"maintenance/{MAINTENANCE[0]}")],
        "first batch after a restart": [("again", f"batch/{AGAIN[0]}")],
    }.items():
        for checkpoint_format in FORMATS:
            for variant in VARIANTS:
                name = _name(variant, checkpoint_format)
                counts = sum((runs.kinds(name, *mark) for mark in marks), Counter())
                assert counts, (what, name)
                cells = [counts[kind] / PARTITIONS for kind in object_store.KINDS]
                print(what, name, " | ".join(f"{cell:g}" for cell in cells), sep=" | ")


def _phase(batch: int) -> str:
    return "first" if batch in FIRST else "again"


def _of_batch(runs: Runs, variant: str, checkpoint_format: str, batch: int) -> Counter[str]:
    return runs.kinds(_name(variant, checkpoint_format), _phase(batch), f"batch/{batch}")
