"""Run Nexmark's stateful queries on each provider, into bench/results/nexmark.json.

For each query every provider has a fresh process, which runs it over a short input a few times to
warm up, beside the others. Then they take turns, in the opposite order each round, and one runs at
a time. What every such run emitted is compared with the query in batch; a difference ends the
benchmark. A look (--quick) is small, has one process of a provider for all queries, and neither
warms up nor takes turns.

Queries that the file has already and that are not asked for stay in it as they are: it is filled in
parts, and says of each query what it was measured on.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from measured import measured

from nexmark import runs
from nexmark.events import Input
from nexmark.page import BASE
from nexmark.providers import HEAP_MB, PROVIDERS, SHARED
from nexmark.queries import LEFT_OUT, QUERIES, Query
from nexmark.workers import Worker, started

OURS = "statemark"
#: Before the timed ones. A process got faster for three or four runs of q16's.
WARM_UP_RUNS = 4
WARM_UP_BATCHES = 2
#: Even, so that each provider is as often early as it is late in a round.
ROUNDS = 4
_QUERIES = {query.name: query for query in QUERIES}
_CACHE = Path(__file__).resolve().parents[2] / "target/nexmark"


def main() -> None:
    """Measure, and write what was measured."""
    parser = argparse.ArgumentParser(prog="nexmark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a look: small, and one round")
    parser.add_argument("--queries", nargs="+", choices=_QUERIES, default=list(_QUERIES))
    parser.add_argument("--providers", nargs="+", choices=PROVIDERS, help="--quick has two of them")
    parser.add_argument("--batches", type=int, help="timed micro-batches; one more comes first")
    parser.add_argument("--events", type=int, help="of each micro-batch")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--out", type=Path, default=Path("bench/results/nexmark.json"))
    options = parser.parse_args()
    quick = options.quick
    providers = options.providers or ([BASE, OURS] if quick else list(PROVIDERS))
    wanted = Input(
        batches=runs.WARM + (options.batches or (2 if quick else 3)),
        events=options.events or (20_000 if quick else 100_000),
    )
    rounds = options.rounds or (1 if quick else ROUNDS)
    start = time.monotonic()
    log = _Log(start)
    _CACHE.mkdir(parents=True, exist_ok=True)
    queries = [_QUERIES[name] for name in options.queries]
    others = _others(options.out, options.queries, providers)
    figures = []
    with tempfile.TemporaryDirectory(prefix="bench-nexmark-") as folder:
        scratch = Path(folder)
        bench = _Bench(wanted, wanted.write(_CACHE), scratch, log)
        log(f"input: {wanted.batches} batches of {wanted.events:,} events")
        bench.write_twins(queries)
        for group in [queries] if quick else [[query] for query in queries]:
            with started(providers, scratch) as workers:
                for query in group:
                    if not quick:
                        bench.warm_up(query, workers)
                    figures.append(_figure(query, bench.rounds(query, workers, rounds)))
    results = {
        "command": "make bench-nexmark" + " QUICK=1" * quick,
        "environment": {
            "cores": os.cpu_count(),
            "heap MB": HEAP_MB,
            "os": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
            "spark": pyspark.__version__,
        },
        "input": {"batches": wanted.batches, "events": wanted.events, "seed": wanted.seed},
        "warm-up runs": 0 if quick else WARM_UP_RUNS,
        "rounds": rounds,
        "settings": SHARED,
        "providers": {
            name: {"settings": PROVIDERS[name].settings, "note": PROVIDERS[name].note}
            for name in providers
        },
        "figures": (merged := _merged(others, figures, round(time.monotonic() - start))),
        "geometric mean": _geometric_means(merged),
        "left out": LEFT_OUT,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=1) + "\n")
    _print(results)


def _others(file: Path, names: list[str], providers: list[str]) -> list[dict[str, Any]]:
    """Read what an earlier part has measured of other queries, on the same providers."""
    found = json.loads(file.read_text()) if file.is_file() else {"providers": {}, "figures": []}
    is_alike = list(found["providers"]) == providers
    return [f for f in found["figures"] if is_alike and f["query"] not in names]


def _merged(
    others: list[dict[str, Any]], figures: list[dict[str, Any]], seconds: int
) -> list[dict[str, Any]]:
    """Put figures in the order of queries; `seconds` is of all that were measured together."""
    now = {**measured(), "seconds": seconds}
    order = list(_QUERIES)
    found = [*others, *(figure | {"measured": now} for figure in figures)]
    return sorted(found, key=lambda figure: order.index(figure["query"]))


class _Log:
    """Progress, with the seconds since the start."""

    def __init__(self, start: float) -> None:
        self._start = start

    def __call__(self, line: str) -> None:
        print(f"[{time.monotonic() - self._start:5.0f} s] {line}", flush=True)


@dataclass(frozen=True)
class _Bench:
    """What all queries have in common."""

    wanted: Input
    events: Path
    scratch: Path
    log: _Log

    def write_twins(self, queries: list[Query]) -> None:
        with started([None], self.scratch) as (worker,):
            for query in queries:
                worker.do(query, self.wanted, self.events, self._twin(query))
        self.log("batch twins")

    def warm_up(self, query: Query, workers: list[Worker]) -> None:
        short = Input(WARM_UP_BATCHES, self.wanted.events)
        events = short.write(_CACHE)

        def warm_up(worker: Worker) -> None:
            work = self.scratch / f"warm-up/{worker.provider}"
            for _ in range(WARM_UP_RUNS):
                worker.do(query, short, events, work)
                shutil.rmtree(work)

        with ThreadPoolExecutor(len(workers)) as pool:
            list(pool.map(warm_up, workers))
        self.log(f"{query.name:4} warm-up")

    def rounds(
        self, query: Query, workers: list[Worker], rounds: int
    ) -> dict[str, list[dict[str, float]]]:
        """Let the providers take turns; return what each of their runs measured."""
        samples: dict[str, list[dict[str, float]]] = {str(w.provider): [] for w in workers}
        for turn in range(rounds):
            for worker in reversed(workers) if turn % 2 else workers:
                work = self.scratch / "run"
                measured = worker.do(query, self.wanted, self.events, work)
                try:
                    rows = runs.check(query, work, self._twin(query))
                except runs.MismatchError as mismatch:
                    problem = f"{worker.provider}: {mismatch}"
                    raise SystemExit(problem) from mismatch
                shutil.rmtree(work)
                samples[str(worker.provider)].append(measured | {"rows": rows})
                self.log(
                    f"{query.name:4} round {turn + 1} of {rounds}  {worker.provider:20}"
                    f" {measured['events/s']:10,.0f} events/s, {rows:,} rows as in batch"
                )
        return samples

    def _twin(self, query: Query) -> Path:
        return self.scratch / "twins" / query.name


def _figure(query: Query, samples: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    median = {
        provider: {figure: statistics.median(s[figure] for s in measured) for figure in measured[0]}
        for provider, measured in samples.items()
    }
    speed = {provider: figures["events/s"] for provider, figures in median.items()}
    ratios = {name: speed[OURS] / speed[name] for name in speed if OURS in speed and name != OURS}
    return {
        "query": query.name,
        "title": query.title,
        "mode": query.mode,
        "differs": query.differs,
        "rows": next(iter(samples.values()))[0]["rows"],
        "median": median,
        "ratio": ratios,
        "samples": {p: [s["events/s"] for s in measured] for p, measured in samples.items()},
    }


def _geometric_means(figures: list[dict[str, Any]]) -> dict[str, float]:
    return {
        name: statistics.geometric_mean(f["ratio"][name] for f in figures)
        for name in figures[0]["ratio"]
    }


def _print(results: dict[str, Any]) -> None:
    names, ratios = list(results["providers"]), list(results["geometric mean"])
    print("".join(f"{cell:>22}" for cell in ["events/s", *names, *(f"÷ {r}" for r in ratios)]))
    for figure in results["figures"]:
        speeds = [f"{figure['median'][name]['events/s']:,.0f}" for name in names]
        cells = [figure["query"], *speeds, *(f"{figure['ratio'][r]:.2f}" for r in ratios)]
        print("".join(f"{cell:>22}" for cell in cells))
    means = [f"{results['geometric mean'][r]:.2f}" for r in ratios]
    print("".join(f"{cell:>22}" for cell in ["geometric mean", *[""] * len(names), *means]))


if __name__ == "__main__":
    main()
