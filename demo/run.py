"""Real flights through three stateful queries on two providers, with one injected failure.

Runs the same job on Spark's RocksDB provider and on Statemark, one after the other, each in a
process of its own, then compares both with the same queries in batch. And reads a query while it
runs. Exit code 1 when a result differs, when the failure did not happen, or when Statemark's retry
opened a checkpoint file.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
from flights.data import write_inputs
from flights.report import opened, table, verdict
from flights.session import SPARK_PROVIDER, STATEMARK_PROVIDER

_HERE = Path(__file__).resolve().parent
_WORK = _HERE.parent / ".demo"
_FLIGHT_FILES = 12
_SEED_FILES = 4
#: Share of the machine that others may use before times are called into question.
_QUIET = 0.1

_NOTES = """\
Spark's provider runs with changelog checkpointing, its faster setting; both sides take snapshots
in the background every 2 s where the default is 60 s. Medians are over all batches of a query;
commit is the time per partition, of all operators together: Spark's provider reads and writes its
database while rows are processed, Statemark at the commit, so compare batches. From the failure to
the next commit counts the new attempt too: scheduling, loading, computing. Files are counted below
the state directory of the failed operator, by the wrapped file system; nothing is left out there.
Elsewhere in the checkpoint meanwhile: {elsewhere}.
{load}

Next:
  make bench-providers                                  more workloads, side by side
  spark-submit $(.venv/bin/statemark conf) job.py       your own job
  .venv/bin/python demo/run.py --seed-keys 5000000      more state, more to reload
Logs and measures are in .demo/."""


def main() -> int:
    """Run the demo."""
    options = _options()
    start = time.monotonic()
    shutil.rmtree(_WORK, ignore_errors=True)
    inputs = _WORK / "inputs"
    _prepare(inputs, options.seed_keys)

    sides = {"spark": "Spark RocksDB", "statemark": "Statemark"}
    providers = {"spark": SPARK_PROVIDER, "statemark": options.provider}
    measures = {}
    for side, title in sides.items():
        measures[side] = _run_side(title, providers[side], inputs, _WORK / side)

    _python(
        "flights.live", ["--inputs", str(inputs), "--work", str(_WORK / "live")], _WORK / "live"
    )
    live = json.loads((_WORK / "live/live.json").read_text())

    print("batch          the same queries on the same files", flush=True)
    batch = _WORK / "batch"
    works = [str(_WORK / side) for side in sides]
    _python("flights.compare", ["--inputs", str(inputs), "--work", str(batch), *works], batch)
    verdicts = json.loads((batch / "verdicts.json").read_text())

    left, right = measures["spark"], measures["statemark"]
    print("\n" + table(left, right, (sides["spark"], sides["statemark"])) + "\n")
    wanted = pd.read_parquet(inputs / "flights")["carrier"].value_counts().to_dict()
    live_differs = any(counts != wanted for counts in live["last"])
    print("\n".join(verdict(verdicts, sides)))
    print(
        f"{'live':<14} {'Statemark':<14} {'differs' if live_differs else 'equal'}, "
        f"{live['dirty']} reads saw what was not committed\n"
    )
    print(_NOTES.format(elsewhere=_elsewhere(measures, sides), load=_load(measures, sides)))
    print(f"\n{time.monotonic() - start:.0f} s in all")
    return _exit_code(verdicts, right, live_differs=live_differs)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--seed-keys",
        type=int,
        default=2_000_000,
        help="synthetic keys that fill the state of the deduplication first",
    )
    parser.add_argument(
        "--provider",
        default=STATEMARK_PROVIDER,
        help="class of the second side, instead of Statemark's",
    )
    return parser.parse_args()


def _prepare(inputs: Path, seed_keys: int) -> None:
    start = time.monotonic()
    inputs.mkdir(parents=True)
    delivered = write_inputs(
        inputs, flight_files=_FLIGHT_FILES, seed_keys=seed_keys, seed_files=_SEED_FILES
    )
    print(
        f"{'input':<14} {delivered:,} deliveries of 336,776 flights in {_FLIGHT_FILES} files, "
        f"{seed_keys:,} seed keys in {_SEED_FILES} files, {time.monotonic() - start:.1f} s",
        flush=True,
    )


def _run_side(title: str, provider: str, inputs: Path, work: Path) -> dict[str, Any]:
    arguments = ["--name", title, "--provider", provider]
    _python("flights.side", [*arguments, "--inputs", str(inputs), "--work", str(work)], work)
    measures: dict[str, Any] = json.loads((work / "measures.json").read_text())
    return measures


def _python(module: str, arguments: list[str], work: Path) -> None:
    """Run a module in a process of its own; its standard error goes to a file."""
    work.mkdir(parents=True, exist_ok=True)
    errors = work / "stderr"
    with errors.open("w") as stream:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            check=False,
            stderr=stream,
            env=os.environ | {"PYTHONPATH": str(_HERE)},
        )
    if done.returncode != 0:
        tail = "\n".join(errors.read_text().splitlines()[-30:])
        sys.exit(f"{tail}\n\n{module} failed; see {errors} and {work / 'log'}")


def _elsewhere(measures: dict[str, Any], sides: dict[str, str]) -> str:
    return ", ".join(
        f"{title} {measures[side]['dedup']['recovery']['opened_elsewhere']}"
        for side, title in sides.items()
    )


def _load(measures: dict[str, Any], sides: dict[str, str]) -> str:
    shares = [measures[side]["others"] for side in sides]
    each = ", ".join(f"{t} {s:.0%}" for t, s in zip(sides.values(), shares, strict=True))
    line = f"Processor time that other processes took meanwhile: {each}."
    if max(shares) <= _QUIET:
        return line
    return f"{line}\nWITH SO MUCH ELSE RUNNING, TIMES AND RATIOS SAY LITTLE; counts are exact."


def _exit_code(
    verdicts: dict[str, dict[str, Any]], ours: dict[str, Any], *, live_differs: bool
) -> int:
    # A fault that did not fire has ended the run before.
    differs = any(found[side] for found in verdicts.values() for side in ("spark", "statemark"))
    if differs:
        print("FAILED: a stream's result differs from the batch result", file=sys.stderr)
    if live_differs:
        print("FAILED: the last live read differs from the batch result", file=sys.stderr)
    files = opened(ours)
    if files:
        print(f"FAILED: the retry opened checkpoint files: {', '.join(files)}", file=sys.stderr)
    return 1 if differs or live_differs or files else 0


if __name__ == "__main__":
    sys.exit(main())
