"""Turn bench/results into docs/benchmarks: SVGs and a page."""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
# Stable ids and no date: the same results give the same file.
matplotlib.rcParams["svg.hashsalt"] = "statemark"
matplotlib.rcParams["svg.fonttype"] = "none"
import matplotlib.pyplot as plt  # noqa: E402
from goals import section as goals  # noqa: E402
from headline import draw  # noqa: E402
from headline import section as headline  # noqa: E402
from measured import text as measured  # noqa: E402
from nexmark.page import section as nexmark  # noqa: E402
from queries.page import details, matrix  # noqa: E402
from queries.page import section as queries  # noqa: E402
from soak_page import PICTURE as SOAK  # noqa: E402
from soak_page import draw as draw_soak  # noqa: E402
from soak_page import section as soak  # noqa: E402
from tables import table, wrapped  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
COLORS = {
    "spark-rocksdb": "#b0413e",
    "spark-rocksdb-untracked": "#e0a09e",
    "spark-hdfs": "#9a9a9a",
    "statemark": "#1f5fa8",
    "statemark-untracked": "#93b9e0",
}
GROUPS = {
    "rows.svg": ("ns a row", "ns a value", "ns a scan", "ns a pair"),
    "milliseconds.svg": ("ms", "ms, p99"),
}
NOTES = """\
`untracked` runs with `trackTotalNumberOfRows=false`. A ratio is Statemark's figure divided by the
other's: below 1, Statemark takes less. Providers take turns within each round and the median of
the rounds is shown, so ratios mean more than absolute figures. A turn leaves the state as it
found it and ends in a commit. `whole batch` is `getStore`, every put and the commit; `abort` is
from `abort()` until the same version answers its first `get`; p99 is of 60 commits. n/a: Spark's
in-memory provider has no column families, hence no merge."""
RESTART = """\
Each restart has a fresh process. `slow` stands for an object store: 20 ms a call, 100 MB/s a
stream. One partition is measured from `getStore` to the first row, a query from `start()` to the
end of its first batch (`Trigger.AvailableNow`), after a session that has run a small job. `nothing
local` begins each restart with an empty local directory. A ratio is divided by Spark's provider."""

SCALE = """\
One partition, 10,000 random keys a batch, each figure in a process of its own on the checkpoint
that the same provider wrote; 20 batches to warm up, 40 that count. `256 MB`: Spark's provider with
a block cache of that size and memtables, indexes and filters on top; Statemark with
`rocksdb.maxMemoryUsageMB`, which is all of them. Memory outside the heap is the most that the
process has held, less its heap, which is touched from the start; it has the virtual machine's own
in it. The live heap is what is left after a collection, the version that waits for its confirm
included."""

LIVE = """\
A query counts the rows of 100,000 keys, 50,000 rows a batch, in four partitions; `cluster` is
executors of one core beside the driver, all on the same machine. Lookups and scans are timed while
it has a second between its batches. The scan by format `statestore` reads the same query's
checkpoint. Batch times are medians of a query that runs without a pause on one core of the
machine, some seconds with readers and some without in turn, after {gets:,} gets and
{scans} scans. Goals: `get` p50 below 2 ms local and 5 ms on the cluster, scan throughput not below
1, batch time not above 1.1. Driver, executors and readers share the machine's cores."""

SINK = """\
Rows of a kilobyte go to a topic of a broker on the same machine; so many tasks write as the topic
has partitions. A batch has as many rows as Spark's own sink writes in the interval of a trigger,
or one row a task where that is more. The sinks take turns, batches run without a pause, and the
ratio is of rows a second: above 1, Statemark's sink takes more. `decision` is until the decision of
a batch was durable, `commit` from then until readers saw all of it; in local mode both are the one
transaction. Goals: at least 0.97 at 1 s and more, 0.8 at 100 ms. The ratio of one case varies by a
tenth from run to run; the geometric mean of those of 1 s and more is {mean:.2f}."""


COMPACTION = """\
A compacted topic has a record for each of {keys:,} keys, and late losers for one in a hundred.
`topic compact` is a process of its own, whose start counts; its memory is all that it has had at
most, keys lie on the disk. `latest` reads the topic's first records in a session with two cores,
with Statemark's store where it streams; beside it, the highest offset of each key by `max_by`,
which is right in one partition and by offsets alone. The ratio is of records a second."""


def unit_of(figure: str) -> str:
    """Return what stands behind the name of a figure: 'put 10,000, ns a row' has 'ns a row'."""
    parts = figure.rsplit(", ", 2)
    return ", ".join(parts[-2:]) if parts[-1] == "p99" else parts[-1]


def three_digits(value: float | None) -> str:
    """Format with three significant digits; medians of a few rounds carry no more."""
    if value is None:
        return "n/a"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 0.1 else 4
    return f"{value:,.{digits}f}"


def rounded(rows: dict[str, list[float | None]]) -> list[list[str]]:
    """Render the name of each row, then its values."""
    return [[name, *map(three_digits, values)] for name, values in rows.items()]


def medians(
    figures: list[dict[str, Any]], variants: list[str], ratios: list[str]
) -> dict[str, list[float | None]]:
    """Collect the medians of each figure, then its ratios."""
    return {
        f["figure"]: [*map(f["median"].get, variants), *map(f["ratio"].get, ratios)]
        for f in figures
    }


def plot(figures: list[dict[str, Any]], providers: list[str], file: Path) -> None:
    """Draw a dot per provider on a logarithmic axis; bars would suggest a zero to start from."""
    step = 0.8 / len(providers)
    fig, ax = plt.subplots(figsize=(9, 0.8 + 0.16 * len(figures) * (len(providers) + 1)))
    for row in range(1, len(figures)):
        ax.axhline(row - 0.1 - step / 2, color="#dddddd", linewidth=0.6)
    for i, provider in enumerate(providers):
        places = [
            (f["median"][provider], row + i * step)
            for row, f in enumerate(figures)
            if provider in f["median"]
        ]
        xs, ys = [x for x, _ in places], [y for _, y in places]
        ax.plot(xs, ys, "o", markersize=5, label=provider, color=COLORS.get(provider))
        for x, y in places:
            ax.annotate(
                three_digits(x), (x, y), (6, 0), textcoords="offset points", va="center", fontsize=6
            )
    middle = 0.4 - step / 2
    names = [f["figure"] for f in figures]
    ax.set_yticks([row + middle for row in range(len(figures))], names, fontsize=8)
    ax.set_ylim(len(figures) - 0.1 - step / 2, -0.1 - step / 2)
    ax.set_xscale("log")
    ax.margins(x=0.08)
    ax.set_xlabel("median, lower is better (logarithmic)")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize=7, frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=5)
    fig.savefig(file, bbox_inches="tight", metadata={"Date": None})
    plt.close(fig)


def readme(results: dict[str, Any], providers: list[str], images: list[str]) -> str:
    """Render the table, the way it was measured and the pictures."""
    ratios = list(dict.fromkeys(r for f in results["figures"] for r in f["ratio"]))
    lines = [
        "## Calls of the store, by provider",
        "",
        *table(
            ["median", *providers, *ratios],
            rounded(medians(results["figures"], providers, ratios)),
        ),
        "",
        *origin(results),
    ]
    if results["left out"]:
        lines.append(f"Left out, as absent from the class path: {', '.join(results['left out'])}.")
    settings = ", ".join(f"`{k}={v}`" for k, v in sorted(results["settings"].items()))
    lines += [
        "",
        *wrapped(f"Settings of all: {settings}."),
        *NOTES.splitlines(),
        "",
        *(f"![{name}]({name})" for name in images),
        "",
    ]
    return "\n".join(lines)


def origin(results: dict[str, Any]) -> list[str]:
    """Say how and when results came about, and on what."""
    return wrapped(
        f"`{results['command']}` in {results['seconds']} s, {measured(results)};"
        f" {environment_of(results)}."
    )


def environment_of(results: dict[str, Any]) -> str:
    """Render what the results were measured on."""
    return ", ".join(f"{k} {v}" for k, v in sorted(results["environment"].items()))


def restart(results: dict[str, Any]) -> str:
    """Render the table of restarts."""
    variants = results["variants"]
    ratios = list(results["figures"][0]["ratio"])
    header = ["median, ms", *variants, *(f"÷ {r}" for r in ratios)]
    lines = [
        "## Restarts",
        "",
        *table(header, rounded(medians(results["figures"], variants, ratios))),
        "",
        *wrapped(
            f"`make bench-restart` in {results['seconds']} s, medians of {results['rounds']}"
            f" rounds, {measured(results)}; {environment_of(results)}."
        ),
        *RESTART.splitlines(),
        "",
    ]
    return "\n".join(lines)


def scale(results: dict[str, Any]) -> str:
    """Render the table of costs by size of the state."""
    providers = results["providers"]
    ratios = list(results["figures"][0]["ratio"])
    lines = [
        "## By size of the state",
        "",
        *table(
            ["median", *providers, *ratios],
            rounded(medians(results["figures"], providers, ratios)),
        ),
        "",
        *wrapped(
            f"`make bench-scale` in {results['seconds']} s, {results['rounds']} rounds,"
            f" {measured(results)}; {environment_of(results)}."
        ),
        *SCALE.splitlines(),
        "",
    ]
    return "\n".join(lines)


def live(results: dict[str, Any]) -> str:
    """Render the table of live reads."""
    masters = results["masters"]
    rows = {
        figure: [figures[figure] for figures in masters.values()]
        for figure in next(iter(masters.values()))
    }
    lines = [
        "## Live reads",
        "",
        *table(["", *masters], rounded(rows)),
        "",
        *origin(results),
        *LIVE.format(**results["warm-up"]).splitlines(),
        "",
    ]
    return "\n".join(lines)


def sink(results: dict[str, Any]) -> str:
    """Render the table of the sink for Kafka beside Spark's own."""
    long = [case["throughput_ratio"] for case in results["cases"] if case["interval_s"] >= 1]
    mean = statistics.geometric_mean(long)
    header = [
        *("master, partitions, trigger", "rows a batch", "rows a second", "Spark's sink", "ratio"),
        *("batch, ms", "Spark's sink", "decision, ms", "commit, ms"),
    ]
    rows = {
        f"{case['master']}, {case['partitions']}, {case['interval_s']:g} s": [
            *(case["rows"], case["ours_rows_a_second"], case["sparks_rows_a_second"]),
            *(case["throughput_ratio"], case["ours_ms"], case["sparks_ms"]),
            *(case["decision_ms"], case["commit_ms"]),
        ]
        for case in results["cases"]
    }
    lines = [
        "## Rows to Kafka",
        "",
        *table(header, rounded(rows)),
        "",
        *origin(results),
        *SINK.format(mean=mean).splitlines(),
        "",
    ]
    return "\n".join(lines)


def compaction(results: dict[str, Any]) -> str:
    """Render the table of `latest` and `topic compact`."""
    header = ["", "records", "seconds", "records a second", "`max_by`", "ratio", "memory, MB"]
    names = (
        *("records", "seconds", "records_a_second", "max_by_records_a_second", "ratio"),
        "memory_mb",
    )
    rows = {case["what"]: [case.get(name) for name in names] for case in results["cases"]}
    lines = [
        "## The right record of each key",
        "",
        *table(header, rounded(rows)),
        "",
        *origin(results),
        *COMPACTION.format(keys=results["keys"]).splitlines(),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Read the results, write the pictures and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/benchmarks")
    options = parser.parse_args()
    results = json.loads((options.results / "providers.json").read_text())
    providers = [p for p in COLORS if p in results["providers"]]
    providers += [p for p in results["providers"] if p not in COLORS]
    options.out.mkdir(parents=True, exist_ok=True)
    images = []
    for name, units in GROUPS.items():
        figures = [f for f in results["figures"] if unit_of(f["figure"]) in units]
        if figures:
            plot(figures, providers, options.out / name)
            images.append(name)
    parts = {
        "queries": queries,
        "matrix": matrix,
        "restart": restart,
        "scale": scale,
        "live": live,
        "nexmark": nexmark,
        "sink": sink,
        "compaction": compaction,
        "soak": soak,
    }
    others = {
        name: json.loads(file.read_text())
        for name in parts
        if (file := options.results / f"{name}.json").exists()
    }
    known = {"micro": results, **others}
    goal_table = goals(known)
    draw(known, options.out / "headline.svg", COLORS)
    if "soak" in others:
        draw_soak(others["soak"], options.out / SOAK)
    rendered = {name: render(others[name]) for name, render in parts.items() if name in others}
    whole = [rendered.pop("queries")] if "queries" in rendered else []
    titles = {"queries": "Whole queries", "matrix": "Other sizes, keys and writes"}
    behind = {title: others[name] for name, title in titles.items() if name in others}
    (options.out / "queries.md").write_text(details(behind))
    calls = [readme(results, providers, images), goal_table]
    sections = [headline(known, "headline.svg"), *whole, *calls, *rendered.values()]
    (options.out / "README.md").write_text("\n".join(sections))
    print(goal_table)


if __name__ == "__main__":
    main()
