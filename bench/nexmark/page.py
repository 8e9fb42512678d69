"""The section on Nexmark in docs/benchmarks."""

from __future__ import annotations

from typing import Any

from measured import text
from tables import table, wrapped

#: Of the throughput over Spark's RocksDB provider with its defaults.
BASE, MEAN_GOAL, LEAST_GOAL = "spark-rocksdb", 1.3, 1.0
HOW = """\
Persons, auctions and bids in proportion 1 : 3 : 46, as the generator of
[nexmark-flink](https://github.com/nexmark/nexmark) distributes them, 10,000 events a second of
event time. Figures are events of all kinds, divided by the durations of the micro-batches between
the first and the one that closes all windows; a ratio is Statemark's throughput divided by the
other's: above 1, Statemark is faster. Each provider has a fresh process for each query, which warms
up with short runs of it; then they take turns, one at a time, in the opposite order each round
(`QUICK=1` has one process of each, and no warm-up). Medians of the rounds. Results of every timed
run have been compared with the query in batch, row for row. Runs are shorter than
`maintenanceInterval`: what providers upload in the background is not in the figures, what Spark's
uploads in its commits is. All sessions have the plugin's jar, as they would a connector's."""
MEMORY = """\
MiB, medians: the most that the process had in memory during a run, its heap of {heap:,} MB
included, which is there from the start; and what lives on the heap after the last batch."""


def section(results: dict[str, Any]) -> str:
    """
    Render the section.

    Parameters
    ----------
    results
        What `python -m nexmark` has written.
    """
    providers, ratios = list(results["providers"]), list(results["geometric mean"])
    given, environment = results["input"], results["environment"]
    described = ", ".join(f"{k} {v}" for k, v in sorted(environment.items()))
    lines = [
        "## Nexmark",
        "",
        *table(
            ["events/s", *providers, *(f"÷ {name}" for name in ratios)],
            [*_speeds(results, providers, ratios)],
        ),
        "",
        *_goals(results),
        "",
        *_parts(results),
        *wrapped(
            f"Short runs to warm up: {results['warm-up runs']}, rounds: {results['rounds']},"
            f" {given['batches']} micro-batches of {given['events']:,} events; {described}."
        ),
        *HOW.splitlines(),
        "",
        *_settings(results),
        "",
        *table(
            ["peak / heap", *providers],
            [
                [f["query"], *(_memory(f["median"][p]) for p in providers)]
                for f in results["figures"]
            ],
        ),
        "",
        *MEMORY.format(heap=environment["heap MB"]).splitlines(),
        "",
        "| query | output mode | result, rows | state, rows | as published? |",
        "|---|---|---:|---:|---|",
        *(
            f"| {f['query']} {f['title']} | {f['mode']} | {f['rows']:,}"
            # A provider that does not count rows has none.
            f" | {max(m['state rows'] for m in f['median'].values()):,.0f}"
            f" | {'no: ' + f['differs'] if f['differs'] else 'yes'} |"
            for f in results["figures"]
        ),
        "",
        "Left out: " + results["left out"],
        "",
    ]
    return "\n".join(lines)


def _parts(results: dict[str, Any]) -> list[str]:
    """Say which queries were measured together, and when."""
    parts: dict[str, list[str]] = {}
    for figure in results["figures"]:
        how = figure["measured"]
        took = f" in {how['seconds']} s" if "seconds" in how else ""
        parts.setdefault(f"{text(figure)}{took}", []).append(figure["query"])
    command = results["command"]
    return [f"`{command} QUERIES='{' '.join(n)}'`, {how}." for how, n in parts.items()]


def _speeds(results: dict[str, Any], providers: list[str], ratios: list[str]) -> list[list[str]]:
    rows = [
        [
            f["query"],
            *(f"{f['median'][p]['events/s']:,.0f}" for p in providers),
            *(f"{f['ratio'][r]:.2f}" for r in ratios),
        ]
        for f in results["figures"]
    ]
    means = [f"{results['geometric mean'][r]:.2f}" for r in ratios]
    return [*rows, ["geometric mean", *[""] * len(providers), *means]]


def _goals(results: dict[str, Any]) -> list[str]:
    """Say which goals are reached, by the figures themselves."""
    if BASE not in results["geometric mean"]:
        return [f"Without {BASE} there is nothing to hold the goals against."]
    mean = results["geometric mean"][BASE]
    below = [f["query"] for f in results["figures"] if f["ratio"][BASE] < LEAST_GOAL]
    return [
        f"Goals, over {BASE}: geometric mean at least {MEAN_GOAL}: "
        f"{'reached' if mean >= MEAN_GOAL else 'not reached'} ({mean:.2f}). No query below "
        f"{LEAST_GOAL}: {'not reached (' + ', '.join(below) + ')' if below else 'reached'}."
    ]


def _settings(results: dict[str, Any]) -> list[str]:
    def listed(settings: dict[str, str]) -> str:
        # A setting's name says what a class is; its package does not fit a line.
        short = {k: v.rsplit(".", 1)[-1] if k.endswith("Class") else v for k, v in settings.items()}
        return ", ".join(f"`{k}={v}`" for k, v in sorted(short.items()))

    lines = [*wrapped(f"Settings of all: {listed(results['settings'])}."), ""]
    for name, provider in results["providers"].items():
        settings = f": {listed(provider['settings'])}" if provider["settings"] else ""
        lines += wrapped(f"- {name}, {provider['note']}{settings}", "  ")
    return lines


def _memory(median: dict[str, float]) -> str:
    peak = median.get("peak MB")
    return f"{f'{peak:,.0f}' if peak else 'n/a'} / {median['heap MB']:,.0f}"
