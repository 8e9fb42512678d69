"""`make test-full`: everything at full size, in parts, each with a stamp of when it passed last.

A stamp is a promise about its commit. `--status` shows each beside what has changed since in the
files that the part covers; an issue that touches them is not resolved before it has run again.

A part of half an hour that fails by one suite need not run whole again: `AGAIN=1` runs the suites
that failed. The stamp names the commit of the whole run, and what ran again at which other.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.jobs import FAILED_SUITES, OUT, ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STAMPS = ROOT / "tests/stamps.json"
#: By part: the stamp that its last run would have got, and the suites that failed.
UNFINISHED = ROOT / "target/unfinished.json"
#: A part that takes longer is to be cut in two.
LIMIT_MIN = 60

_STORE = ("jvm/core/src", "jvm/spark/src")


@dataclass(frozen=True, kw_only=True)
class Part:
    """
    Some of the tests at full size.

    Attributes
    ----------
    what
        For people.
    command
        For a shell, in the project's folder.
    covers
        Paths whose changes make a stamp old.
    """

    what: str
    command: str
    covers: tuple[str, ...] = _STORE


_CONFORMANCE = "make conformance JOBS=2 COMPARE=needed"
PARTS = {
    "conformance-joins": Part(
        what="Spark's own suites of stream-stream joins",
        command=f"{_CONFORMANCE} SUITES=Join",
        covers=(*_STORE, "jvm/conformance"),
    ),
    "conformance-store": Part(
        what="Spark's own suite of its RocksDB store, of 1,338 tests",
        command=f"{_CONFORMANCE} SUITES=RocksDBStateStoreSuite",
        covers=(*_STORE, "jvm/conformance"),
    ),
    "conformance-rest": Part(
        what="all other suites of Spark's",
        command=f"{_CONFORMANCE} WITHOUT='Join RocksDBStateStoreSuite'",
        covers=(*_STORE, "jvm/conformance"),
    ),
    "crash": Part(what="500 kills of a query", command="make crash"),
    "model": Part(
        what="3,000 histories of the model, 100,000 schedules of readers beside a writer",
        command="STATEMARK_HISTORIES=3000 STATEMARK_SCHEDULES=100000 "
        "make test ONLY='StatemarkModelSuite IsolationSuite'",
    ),
    "modes-state": Part(
        what="every combination of the interchange matrix, imports of a million keys, 200 damaged "
        "histories of both providers",
        command="STATEMARK_MATRIX=all STATEMARK_IMPORT_KEYS=1000000 STATEMARK_MIXED=100 "
        "make test ONLY='MatrixSuite ImportSuite RestorableSuite'",
    ),
    "modes-queries": Part(
        what="repartition in both formats, 200 pairs of commands at once in each test of them, "
        "end-to-end tests in every combination of modes and at full size",
        command="STATEMARK_REPARTITION=all STATEMARK_INTERLEAVINGS=200 STATEMARK_MODES=all "
        "make test ONLY='Repartition SwitchBesideSuite test_recovery test_switch test_s3 "
        "test_nexmark test_checkpoint_commands'",
    ),
    "cluster": Part(
        what="20 kills of executors and hosts that come back, in each format; live reads of every "
        "operator on executors",
        command="STATEMARK_MODES=all STATEMARK_CLUSTER_KILLS=20 make test ONLY=tests/cluster",
        covers=(*_STORE, "tests/cluster", "tests/support"),
    ),
    "kafka": Part(
        what="three brokers of Kafka of which one after the other is killed; suites of the sink's "
        "core with 200 random deaths, and 100 starts and stops in one process",
        command="STATEMARK_MODES=all STATEMARK_KAFKA_KILLS=200 STATEMARK_KAFKA_STARTS=100 "
        "make test ONLY='tests/kafka statemark.kafka.'",
        covers=("build.sbt", "jvm/kafka/src", "jvm/sink/src", "tests/kafka", "tests/support"),
    ),
    "crash-kafka": Part(
        what="200 kills of driver, executor and broker of the Kafka sink, on three brokers",
        command="make crash-kafka PARTS=kills",
        covers=("build.sbt", "jvm/kafka/src", "tests/support"),
    ),
    "crash-kafka-rest": Part(
        what="outages of three transaction timeouts at each phase, and transfers under deaths",
        command="make crash-kafka PARTS='outages transfers'",
        covers=("build.sbt", "jvm/kafka/src", "tests/support"),
    ),
    "release": Part(
        what="a release rehearsed: wheel and jars of every line, each Python, upgrade, same bytes",
        command="make release-rehearsal",
        covers=(*_STORE, "build.sbt", "project", "python", "tests/rehearsal", "README.md"),
    ),
    **{
        f"spark-{line}": Part(
            what=f"the suites on Spark {line}",
            command=f"make test SPARK={line}",
            covers=(*_STORE, "python/src", "project"),
        )
        for line in ("4.0", "4.1", "4.3")
    },
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run parts, and stamp those that pass."""
    parser = argparse.ArgumentParser(prog="make test-full", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="default: all of them")
    parser.add_argument("--again", action="store_true", help="only suites that failed last")
    parser.add_argument("--status", action="store_true", help="show the stamps, run nothing")
    options = parser.parse_args(arguments)
    if options.status:
        print("\n".join(status()))
        return 0
    names = options.parts or (read(UNFINISHED) if options.again else PARTS)
    return max((run(name, again=options.again) for name in names), default=0)


def run(name: str, *, again: bool = False) -> int:
    """Run one part, or what failed of it; 0 where all of it has passed, and has a stamp now."""
    part, unfinished = PARTS[name], read(UNFINISHED)
    command = part.command
    if again:
        if name not in unfinished:
            print(f"== {name}: no run of `make test` failed by suites that can run again")
            return 1
        command += f" ONLY='{' '.join(unfinished[name]['failed'])}'"
    print(f"== {name}: {part.what}\n{command}", flush=True)
    if _git("status", "--porcelain", "--", *part.covers):
        print("Files that it covers differ from the commit: commit them first.", flush=True)
        return 1
    commit = _git("rev-parse", "--short=9", "HEAD")
    started = time.monotonic()
    # A busy machine may take twice as long: the part's own time says whether it is to be cut.
    env = os.environ | {"STATEMARK_SUITE_LIMIT_MIN": str(2 * LIMIT_MIN)}
    (OUT / FAILED_SUITES).unlink(missing_ok=True)
    done = subprocess.run(command, shell=True, cwd=ROOT, env=env, check=False)  # our own text
    minutes = round((time.monotonic() - started) / 60)
    now = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    stamp: dict[str, Any] = {"commit": commit, "date": now, "minutes": minutes}
    if again:
        suites = unfinished[name].pop("failed")
        stamp = unfinished[name] | {"again": {"commit": commit, "date": now, "suites": suites}}
    elif done.returncode != 0 and (OUT / FAILED_SUITES).is_file():
        failed = (OUT / FAILED_SUITES).read_text().split()
        _write(UNFINISHED, unfinished | {name: stamp | {"failed": failed}})
    if done.returncode == 0:
        _write(STAMPS, read(STAMPS) | {name: stamp})
        _write(UNFINISHED, {part: left for part, left in unfinished.items() if part != name})
    print(f"== {name}: {'passed' if done.returncode == 0 else 'FAILED'} in {minutes} minutes")
    return done.returncode


def read(file: Path) -> dict[str, dict[str, Any]]:
    """Read stamps by name of the part."""
    return json.loads(file.read_text()) if file.is_file() else {}


def _write(file: Path, found: Mapping[str, Any]) -> None:
    text = json.dumps({part: found[part] for part in PARTS if part in found}, indent=1)
    file.parent.mkdir(exist_ok=True)
    file.write_text(text + "\n")


def status() -> list[str]:
    """Make a line for each part: its stamp, and how many commits have changed what it covers."""
    stamps = read(STAMPS)
    lines = []
    for name, part in PARTS.items():
        stamp = stamps.get(name)
        if stamp is None:
            lines.append(f"{name:18} never passed")
            continue
        since = _git("log", "--oneline", f"{stamp['commit']}..HEAD", "--", *part.covers)
        count = len(since.splitlines())
        again = stamp.get("again")
        lines.append(
            f"{name:18} {stamp['date']}  {stamp['commit']}  {stamp['minutes']:3} minutes  "
            f"{f'{count} commits since touch what it covers' if count else 'up to date'}"
            + (f"; {len(again['suites'])} suites again at {again['commit']}" if again else "")
        )
    return lines


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], check=True, capture_output=True, text=True, cwd=ROOT)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
