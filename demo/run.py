"""Real flights through three stateful queries on two providers, with one injected failure.

Runs the same job on Spark's RocksDB provider and on Statemark, one after the other, each in a
process of its own, restarts it in another, then compares both with the same queries in batch. And
reads a query while it runs. Ends in a verdict of five lines. Exit code 1 when a result differs,
when the failure did not happen, when Statemark's retry opened a checkpoint file, or when a live
read saw a part of a batch.
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
from flights.report import TITLES, Found, opened_by_retry, tables, verdict
from flights.session import SPARK_PROVIDER, STATEMARK_PROVIDER

_HERE = Path(__file__).resolve().parent
_WORK = _HERE.parent / ".demo"
_FLIGHT_FILES = 12
_SEED_FILES = 4
#: Share of the machine that others may use before times are called into question.
_QUIET = 0.1

_NEXT = """\
Spark's provider runs with changelog checkpointing, its faster setting. Logs and measures: .demo/
Next:
  .venv/bin/statemark demo                              a minute, on rows that it makes itself
  make bench-restart                                    restarts of large state, on slow stores too
  spark-submit $(.venv/bin/statemark conf) job.py       your own job"""


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
    wanted = pd.read_parquet(inputs / "flights")["carrier"].value_counts().to_dict()
    found = Found(
        spark=measures["spark"],
        statemark=measures["statemark"],
        verdicts=json.loads((batch / "verdicts.json").read_text()),
        live=live,
        live_differs=any(counts != wanted for counts in live["last"]),
    )
    print(f"\n{verdict(found)}\n{_load(measures, sides)}\n\n{tables(found)}\n")
    print(f"{_NEXT}\n\n{time.monotonic() - start:.0f} s in all")
    return _exit_code(found)


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
    # A fresh process comes back to the checkpoint of the one before, as after a crash.
    _python("flights.restart", [*arguments, "--inputs", str(inputs), "--work", str(work)], work)
    measures: dict[str, Any] = json.loads((work / "measures.json").read_text())
    return measures | {"restart": json.loads((work / "restart.json").read_text())}


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


def _load(measures: dict[str, Any], sides: dict[str, str]) -> str:
    shares = [measures[side]["others"] for side in sides]
    each = ", ".join(f"{t} {s:.0%}" for t, s in zip(sides.values(), shares, strict=True))
    if max(shares) <= _QUIET:
        return "Counts are exact. Times are of one run on an otherwise idle machine."
    return (
        f"Counts are exact. TIMES SAY LITTLE: other processes took {each} of the processors "
        "meanwhile."
    )


def _exit_code(found: Found) -> int:
    # A fault that did not fire has ended the run before.
    problems = [
        f"{TITLES[query]}, {side}: {of[side]}"
        for query, of in found.verdicts.items()
        for side in ("spark", "statemark")
        if of[side]
    ]
    if found.live_differs:
        problems.append("the last live reads differ from the batch result")
    if found.live["torn"]:
        problems.append(f"{found.live['torn']} live reads at READ_COMMITTED saw a batch in part")
    if files := opened_by_retry(found.statemark):
        problems.append(f"the retry opened checkpoint files: {', '.join(files)}")
    for problem in problems:
        print(f"FAILED: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
