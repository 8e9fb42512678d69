"""Measure whole queries with each contender, in turn, into bench/results/queries.json.

With `--full` the matrix, into matrix.json: other sizes, keys and kinds of writes.

Each run is a process of its own, so that memory and compilers begin anew: the operator's query over
its input, a file for each micro-batch. Contenders take turns within a round, in the opposite order
in every other one. What they emit has to be equal, batch for batch.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import statemark
from measured import environment, measured

from queries import topics
from queries.matrix import ALL, MATRIX
from queries.one import CONTENDERS, SHARED, TUNED
from queries.operators import OPERATORS, Operator
from queries.page import text

#: Batches by number: the first of a process, behind two in which Spark makes its plans; and those
#: in which most code is compiled.
COLD, WARM = range(2, 12), range(20, 28)
_ROOT = Path(__file__).resolve().parents[2]
_CACHE = _ROOT / "target/queries"
Run = dict[str, Any]
#: What is compared, by name: of which batches, and the figure of a run.
FIGURES: dict[str, Callable[[Run], float]] = {
    "cold ms": lambda run: _ms(run, COLD),
    "warm ms": lambda run: _ms(run, WARM),
    "cold p99 ms": lambda run: max(_of(run, COLD, "ms"), default=math.nan),
    "warm p99 ms": lambda run: max(_of(run, WARM, "ms"), default=math.nan),
    "cold CPU s": lambda run: _used(run, COLD, "cpu s"),
    "warm CPU s": lambda run: _used(run, WARM, "cpu s"),
    "commit ms": lambda run: statistics.median(_of(run, WARM, "commit ms") or [math.nan]),
    "GC s": lambda run: run["batches"][-1]["used"]["gc s"],
    "JIT s": lambda run: run["batches"][-1]["used"]["jit s"],
    "peak MB": lambda run: run["peak MB"],
    "heap MB": lambda run: run["heap MB"],
}


def main() -> None:
    """Measure, write, and print the table."""
    parser = argparse.ArgumentParser(prog="queries", description=__doc__)
    parser.add_argument("--operators", nargs="+", choices=ALL, default=[])
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=CONTENDERS[:2])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a look: a tenth of the rows")
    parser.add_argument("--full", action="store_true", help="the matrix")
    parser.add_argument("--out", type=Path, default=Path("bench/results/queries.json"))
    options = parser.parse_args()
    _check_jar()
    names = options.operators or list(MATRIX if options.full else OPERATORS)
    start = time.monotonic()
    runs: dict[str, dict[str, list[Run]]] = {}
    for name in names:
        operator = ALL[name].of_size(0.1 if options.quick else 1.0)
        contenders = [c for c in options.contenders if operator.takes(c)]
        runs[name] = {contender: [] for contender in contenders}
        for turn in range(options.rounds):
            order = contenders[::-1] if turn % 2 else contenders
            for contender in order:
                run = _run(operator, contender)
                runs[name][contender].append(run)
                print(
                    f"[{time.monotonic() - start:5.0f} s] {name:8} {contender:10}"
                    f" {_ms(run, COLD):6.0f} ms cold {_ms(run, WARM):6.0f} ms warm"
                    f" {run['peak MB']:6.0f} MB",
                    flush=True,
                )
        _compare(name, runs[name])
        results = {
            "command": "make bench-queries" + " FULL=1" * options.full,
            "measured": measured(),
            "environment": environment(),
            "settings": SHARED,
            "tuned": TUNED.read_text(),
            "rounds": options.rounds,
            "seconds": round(time.monotonic() - start),
            "figures": [_figure(ALL[name], of) for name, of in runs.items()],
        }
        # What was measured stays where a later operator fails.
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    print("\n".join(text(results)))


def _check_jar() -> None:
    """Fail where make would build the package's jar anew."""
    jar = statemark.jar_path().relative_to(_ROOT)
    if subprocess.run(["make", "--question", "--silent", str(jar)], cwd=_ROOT).returncode != 0:
        problem = (
            f"{jar} would be measured, which is older than its sources; run make bench-queries"
        )
        raise SystemExit(problem)


def _run(operator: Operator, contender: str) -> Run:
    # Spark's in-memory provider is for states that fit the heap.
    batches = COLD.stop if contender == "memory" and operator.grows else WARM.stop
    source = _CACHE / f"{operator.name}-{operator.rows}-{batches}"
    operator.write(source, batches)
    with _input(operator, source) as given, tempfile.NamedTemporaryFile(suffix=".json") as result:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "queries.one",
                operator.name,
                contender,
                given,
                result.name,
            ],
            check=True,
        )
        run: Run = json.loads(Path(result.name).read_text())
    return run


def _input(operator: Operator, source: Path) -> contextlib.AbstractContextManager[str]:
    if operator.topics:
        return topics.broker(source, operator.rows)
    return contextlib.nullcontext(str(source))


def _of(run: Run, numbers: range, what: str) -> list[float]:
    return [b[what] for b in run["batches"] if b["id"] in numbers]


def _ms(run: Run, numbers: range) -> float:
    return statistics.median(_of(run, numbers, "ms") or [math.nan])


def _used(run: Run, numbers: range, what: str) -> float:
    """Return what the process has used in a batch, on average."""
    at = {b["id"]: b["used"][what] for b in run["batches"]}
    if numbers[-1] not in at:
        return math.nan
    return (at[numbers[-1]] - at[numbers[0] - 1]) / len(numbers)


def _compare(name: str, runs: dict[str, list[Run]]) -> None:
    """Fail where contenders have emitted different rows in a batch."""
    answers = {
        contender: [[b["answer"] for b in run["batches"]] for run in of]
        for contender, of in runs.items()
        if contender != "floor"
    }
    first = next(iter(answers.values()), [[]])[0]
    for contender, of in answers.items():
        for answer in of:
            if answer != first[: len(answer)]:
                problem = f"{name}: {contender} has emitted other rows: {answer} and {first}"
                raise SystemExit(problem)


def _ratios(runs: dict[str, list[Run]]) -> dict[str, dict[str, float]]:
    """Return Statemark's figures ÷ those of each other contender: the median of the rounds'.

    Within a round they follow one another; from one to the next, a machine may become slower.
    """
    ours = runs.get("statemark", [])
    return {
        contender: {
            name: statistics.median(figure(a) / figure(b) for a, b in zip(ours, of, strict=True))
            for name, figure in FIGURES.items()
            if all(map(figure, of))
        }
        for contender, of in runs.items()
        if ours and contender != "statemark"
    }


def _figure(operator: Operator, runs: dict[str, list[Run]]) -> dict[str, Any]:
    def over(summary: Callable[[list[float]], Any]) -> dict[str, dict[str, Any]]:
        return {
            contender: {
                name: summary([figure(run) for run in of]) for name, figure in FIGURES.items()
            }
            for contender, of in runs.items()
        }

    last = next(iter(runs.values()))[0]["batches"][-1]
    return {
        "operator": operator.name,
        "title": operator.title,
        "rows": operator.rows,
        "state": max(run["batches"][-1]["state"] for of in runs.values() for run in of),
        "batches": last["id"] + 1,
        "ratio": _ratios(runs),
        "median": over(statistics.median),
        "range": over(lambda values: [min(values), max(values)]),
    }


if __name__ == "__main__":
    main()
