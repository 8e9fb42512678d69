"""`make stress REVERT=1`: whether random histories still find what was mended.

The tree goes into a temporary folder, and the patches in `jvm/spark/src/test/reverted` whose names
begin with the number take the mending back there. A patch changes main code only, and no signature:
the tests of what it takes back have to compile. Then the stress runs, with the actions that lead
there, until it finds the fault or the minutes are over.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runner.jobs import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = "jvm/spark/src/test/reverted"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """
    What comes back with a patch.

    Attributes
    ----------
    what
        For people.
    actions
        Of the stress, by the names of their objects.
    says
        A pattern that the report of this fault has, and that of no other.
    """

    what: str
    actions: str
    says: str


FAULTS = {
    "1": Fault(
        what="rows of a history that was left, where Spark's provider went on",
        actions="Batch AbortedBatch RepeatedBatch Maintenance Restart OtherDisk RollBack "
        "FreshReader SparksVersions SparksDamage",
        says=r"Disagreement: expected .*#\d",
    ),
    "2": Fault(
        what="a heap that whole values fill when only their existence is asked",
        actions="Batch LongRows",
        says="OutOfMemoryError",
    ),
    "3": Fault(
        what="jobs that end at once and never leave a snapshot",
        actions="Batch Maintenance RollBack ShortJobs",
        says="changelogs replayed",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Look for one fault; 0 where it was found, and no other."""
    parser = argparse.ArgumentParser(prog="make stress REVERT=…", description=__doc__)
    parser.add_argument("number", choices=FAULTS)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--minutes", default="20")
    parser.add_argument("--only", default="", help="other actions than those that lead there")
    options = parser.parse_args(arguments)
    fault = FAULTS[options.number]
    undo = patches(ROOT).get(options.number)
    if not undo:
        print(f"no {FOLDER}/{options.number}-….patch takes it back: {fault.what}")
        return 2
    with tempfile.TemporaryDirectory(prefix="statemark-reverted-") as folder:
        tree = Path(folder)
        copy(ROOT, tree)
        subprocess.run(["git", "apply", *undo], cwd=tree, check=True)
        log = build_and_run(
            tree,
            seed=options.seed,
            minutes=options.minutes,
            only=options.only or fault.actions,
        )
    return verdict(fault, log)


def patches(root: Path) -> dict[str, list[Path]]:
    """By number, the patches that take its mending back, in the order that they apply in."""
    found: dict[str, list[Path]] = {}
    for path in sorted((root / FOLDER).glob("*.patch")):
        found.setdefault(path.name.split("-")[0], []).append(path)
    return found


def copy(root: Path, tree: Path) -> None:
    """Copy what git knows, or would know, and sbt's launcher."""
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
    launcher = "project/target/launcher"
    if (root / launcher).is_dir():
        shutil.copytree(root / launcher, tree / launcher)


def build_and_run(tree: Path, *, seed: str, minutes: str, only: str) -> str:
    """Run the stress of a tree; what it printed."""
    subprocess.run(["bin/sbt", "provider/testProcess"], cwd=tree, check=True)
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as files:
        command = [
            "java",
            f"@jvm/spark/target/spark-{os.environ['SPARK']}/tests/options",
            "-Xmx512m",
            f"-Djava.io.tmpdir={files}",
            f"-Dstatemark.stress.seed={seed}",
            f"-Dstatemark.stress.minutes={minutes}",
            f"-Dstatemark.stress.only={only}",
            "statemark.spark.stress.Stress",
        ]
        ran = subprocess.run(command, cwd=tree, check=False, stdout=subprocess.PIPE, text=True)
    return ran.stdout


def verdict(fault: Fault, log: str) -> int:
    """Say what the stress has found; 0 for the fault, 1 for nothing, 2 for another one."""
    seed = re.search(r"^FAULT, seed (\d+)", log, re.MULTILINE)
    if seed is None:
        print(f"{log}\nnot found: {fault.what}")
        return 1
    if re.search(fault.says, log) is None:
        print(f"{log}\nanother fault than {fault.what}")
        return 2
    minutes = re.search(r"found after ([\d.]+) minutes", log)
    print(f"found {fault.what}: seed {seed[1]}, {minutes[1] if minutes else '?'} minutes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
