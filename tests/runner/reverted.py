"""`make stress REVERT=1` and `make stress-kafka REVERT=1`: whether these find what was mended.

The tree goes into a temporary folder, and the patches in the folder of the stress whose names begin
with the number take the mending back there. A patch changes main code only, and no signature: the
tests of what it takes back have to compile. Then the stress runs, until it finds the fault or its
histories or minutes are over.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runner.jobs import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, kw_only=True)
class Stress:
    """
    Random histories, as a command runs them.

    Attributes
    ----------
    jvm
        The folder of its tests, below `jvm`.
    project
        The same, for sbt.
    main
        Its class.
    heap
        For Java.
    """

    jvm: str
    project: str
    main: str
    heap: str


STORE = Stress(jvm="spark", project="provider", main="statemark.spark.stress.Stress", heap="512m")
CORE = Stress(jvm="kafka", project="kafka", main="statemark.kafka.stress.Stress", heap="1g")
QUERIES = Stress(
    jvm="sink", project="sink", main="statemark.kafka.sink.stress.SparkStress", heap="1g"
)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """
    What comes back with a patch.

    Attributes
    ----------
    what
        For people.
    of
        The stress that finds it.
    says
        A pattern that the report of this fault has, and that of no other.
    options
        What leads there, or bounds the search: properties of the stress.
    """

    what: str
    of: Stress
    says: str
    options: Mapping[str, str]


_HUNDRED = {"runs": "100", "parallel": "4"}
FAULTS = {
    "stress": {
        "1": Fault(
            what="rows of a history that was left, where Spark's provider went on",
            of=STORE,
            says=r"Disagreement: expected .*#\d",
            options={
                "only": "Batch AbortedBatch RepeatedBatch Maintenance Restart OtherDisk RollBack "
                "FreshReader SparksVersions SparksDamage",
            },
        ),
        "2": Fault(
            what="a heap that whole values fill when only their existence is asked",
            of=STORE,
            says="OutOfMemoryError",
            options={"only": "Batch LongRows"},
        ),
        "3": Fault(
            what="jobs that end at once and never leave a snapshot",
            of=STORE,
            says="changelogs replayed",
            options={"only": "Batch Maintenance RollBack ShortJobs"},
        ),
    },
    "stress-kafka": {
        "1": Fault(
            what="a rerun of lost rows that places them elsewhere",
            of=CORE,
            says="DOUBLED: row|LOST: batch",
            options=_HUNDRED,
        ),
        "2": Fault(
            what="rows that are called lost, and are with the readers in a copy",
            of=CORE,
            says=r"shows no reason[\s\S]*caused by \S*LostRows",
            options=_HUNDRED,
        ),
        "3": Fault(
            what="an executor of a run that is over, which takes its id back",
            of=CORE,
            says=r"shows no reason[\s\S]*caused by \S*ProducerFencedException",
            options=_HUNDRED,
        ),
        "4": Fault(
            what="a batch that was planned anew, and is taken for the one that was decided",
            of=QUERIES,
            says="LOST: of",
            options=_HUNDRED,
        ),
        "5": Fault(
            what="a decided batch in foreachBatch that never commits its state",
            of=QUERIES,
            says="FAILED:|LOST: of",
            options=_HUNDRED,
        ),
    },
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Look for one fault; 0 where it was found, and no other."""
    parser = argparse.ArgumentParser(prog="make stress REVERT=…", description=__doc__)
    parser.add_argument("stress", choices=FAULTS)
    parser.add_argument("number")
    parser.add_argument("option", nargs="*", help="properties of the stress, as seed=7")
    options = parser.parse_args(arguments)
    fault = FAULTS[options.stress].get(options.number)
    undo = patches(ROOT, options.stress).get(options.number)
    if fault is None or not undo:
        what = fault.what if fault else f"one of {', '.join(FAULTS[options.stress])}"
        print(f"no {folder(options.stress)}/{options.number}-….patch takes it back: {what}")
        return 2
    with tempfile.TemporaryDirectory(prefix="statemark-reverted-") as temporary:
        tree = Path(temporary)
        copy(ROOT, tree)
        subprocess.run(["git", "apply", *undo], cwd=tree, check=True)
        given = dict(option.split("=", 1) for option in options.option)
        log, seconds = build_and_run(tree, fault.of, {**fault.options, **given})
    return verdict(fault, log, seconds)


def folder(stress: str) -> str:
    """Where the patches of a stress lie."""
    return f"jvm/{next(iter(FAULTS[stress].values())).of.jvm}/src/test/reverted"


def patches(root: Path, stress: str) -> dict[str, list[Path]]:
    """By number, the patches that take its mending back, in the order that they apply in."""
    found: dict[str, list[Path]] = {}
    for path in sorted((root / folder(stress)).glob("*.patch")):
        found.setdefault(path.name.split("-")[0], []).append(path)
    return found


def copy(root: Path, tree: Path) -> None:
    """Copy what git knows, or would know, and sbt's launcher; share Python's environment."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in listed.split("\0"):
        if name and (root / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, tree / name)
    (tree / ".venv").symlink_to(root / ".venv")
    launcher = "project/target/launcher"
    if (root / launcher).is_dir():
        shutil.copytree(root / launcher, tree / launcher)


def build_and_run(tree: Path, stress: Stress, options: Mapping[str, str]) -> tuple[str, float]:
    """Run the stress of a tree until it has found a fault; what it printed, and the seconds."""
    subprocess.run(["bin/sbt", f"{stress.project}/testProcess"], cwd=tree, check=True)
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as files:
        command = [
            "java",
            f"@jvm/{stress.jvm}/target/spark-{os.environ['SPARK']}/tests/options",
            f"-Xmx{stress.heap}",
            f"-Djava.io.tmpdir={files}",
            *(f"-Dstatemark.stress.{name}={value}" for name, value in options.items()),
            stress.main,
        ]
        begin = time.monotonic()
        log = []
        with subprocess.Popen(command, cwd=tree, stdout=subprocess.PIPE, text=True) as ran:
            assert ran.stdout is not None
            for line in ran.stdout:
                log.append(line)
                # The last line of a fault. Histories beside it may go on for minutes.
                if line.startswith("Again: "):
                    ran.kill()
        return "".join(log), time.monotonic() - begin


def verdict(fault: Fault, log: str, seconds: float) -> int:
    """Say what the stress has found; 0 for the fault, 1 for nothing, 2 for another one."""
    seed = re.search(r"^FAULT, seed (\d+)", log, re.MULTILINE)
    if seed is None:
        print(f"{log}\nnot found: {fault.what}")
        return 1
    if re.search(fault.says, log) is None:
        print(f"{log}\nanother fault than {fault.what}")
        return 2
    print(f"found {fault.what}: seed {seed[1]}, {seconds / 60:.1f} minutes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
