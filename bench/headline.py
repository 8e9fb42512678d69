"""The figures that the page of benchmarks opens with, and the README shows: wins and losses."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from measured import text as measured
from tables import table, wrapped

if TYPE_CHECKING:
    from pathlib import Path

SPARK, OURS = "spark-rocksdb", "statemark"
HEADER = ["median", "Spark's RocksDB provider", "Statemark", "command"]
#: What is drawn below whole queries: the words beside a bar, the results, the figure.
BARS = [
    ("abort of 1,000,000 rows", "micro", "abort of 1,000,000 rows until the next get, ms"),
    (
        "restart, one partition of 30,000,000 keys",
        "restart",
        "one partition, first row, 30,000,000 keys, slow",
    ),
    (
        "restart, query of 64 partitions",
        "restart",
        "query of 64 partitions, first batch, 10,000,000 keys, slow",
    ),
    ("calls of a batch of 10,000 rows", "micro", "whole batch of 10,000, ns a row"),
    ("calls of a batch of 500,000 rows", "micro", "whole batch of 500,000, ns a row"),
    ("of that, the commit", "micro", "commit of 500,000, ms"),
]
TEXT = """\
A micro-batch of a stateful query takes {cold:.0%} of the time that it takes with Spark's RocksDB
provider as an expert sets it, {warm:.0%} once a process has run for some twenty batches (geometric
means of {operators} operators), and the process {query_memory:.2f} times the memory.

Beside the same provider with changelog checkpointing, Statemark drops an aborted task of a
million rows in {abort} instead of {abort_spark}, takes {batch:.0%} of the time for the calls of a
batch of 500,000 rows, and restarts: one partition in {first} to {last} with 1 to 30 million keys
(Spark's provider: {first_spark} to {last_spark}), a whole query of 64 partitions in
{query_slow:.0%} of the time on a slow store and {query_local:.0%} on a local disk. The commit of
that large batch takes
{commit:.1f} times as long, as work moves from the puts to the commit. With the defaults of
both, Statemark takes {memory:.2f} times the memory at 10 million keys."""
WRITTEN = """\
This page is written by `make bench-page` from the newest result of each benchmark; do not edit it.
Each section says which commit it was measured on, and when: one that nothing has changed is not
measured again."""
UNDER_IT = """\
*Slow* stands for an object store: 20 ms a call, 100 MB/s a stream. Restarts are those where the
local directories are still there; without them see [Restarts](#restarts). Goals that were missed
are marked in [Goals](#goals)."""


def rows(results: dict[str, Any]) -> list[list[str]]:
    """Return the five rows, each with the command that measured it."""
    abort = _medians(results, "micro", "abort of 1,000,000 rows until the next get, ms")
    one = _medians(results, "restart", "one partition, first row, 30,000,000 keys, slow")
    query = "query of 64 partitions, first batch, 10,000,000 keys, slow"
    slow = _medians(results, "restart", query)
    providers, restart = "`make bench-providers`", "`make bench-restart`"
    return [
        [
            f"a micro-batch, mean of {len(_warm(results, OURS))} stateful operators, beside "
            "Spark's provider tuned",
            *(_time(statistics.geometric_mean(_warm(results, p))) for p in ("tuned", OURS)),
            "`make bench-queries`",
        ],
        [
            "a task that wrote 1,000,000 rows is aborted; until the next read",
            *(_time(abort[p]) for p in (SPARK, OURS)),
            providers,
        ],
        [
            "one partition of 30,000,000 keys is restarted on a slow store; until its first row",
            *(_time(one[p]) for p in (SPARK, OURS)),
            restart,
        ],
        [
            "a whole query of 64 partitions and 10,000,000 keys is restarted on a slow store; "
            "until its first batch has ended",
            *(_time(slow[p]) for p in (SPARK, OURS)),
            restart,
        ],
        [
            "one key of a running query is looked up, in local mode",
            "n/a",
            _time(results["live"]["masters"]["local"]["get, ms, p50"]),
            "`make bench-live`",
        ],
    ]


def section(results: dict[str, Any], image: str) -> str:
    """Render the headline, the five rows and the picture."""
    ones = [
        _medians(results, "restart", f"one partition, first row, {keys} keys, slow")
        for keys in ("1,000,000", "30,000,000")  # as the text says
    ]
    abort = _medians(results, "micro", "abort of 1,000,000 rows until the next get, ms")
    query = "query of 64 partitions, first batch, 10,000,000 keys"
    text = TEXT.format(
        cold=_mean(results, "cold ms"),
        warm=_mean(results, "warm ms"),
        query_memory=_mean(results, "peak MB"),
        operators=len(results["queries"]["figures"]),
        abort=_time(abort[OURS]),
        abort_spark=_time(abort[SPARK]),
        batch=_ratio(results, "micro", "whole batch of 500,000, ns a row"),
        first=_time(min(one[OURS] for one in ones)),
        last=_time(max(one[OURS] for one in ones)),
        first_spark=_time(min(one[SPARK] for one in ones)),
        last_spark=_time(max(one[SPARK] for one in ones)),
        query_slow=_ratio(results, "restart", f"{query}, slow"),
        query_local=_ratio(results, "restart", f"{query}, local"),
        commit=_ratio(results, "micro", "commit of 500,000, ms"),
        memory=_ratio(results, "scale", "memory, heap and outside, MB, 10,000,000 keys"),
    )
    when = {
        measured(results[name]): results[name]["environment"]["cores"]
        for name in ("queries", "micro", "restart", "scale", "live")
    }
    said = "; ".join(f"{one}, {cores} cores" for one, cores in when.items())
    return "\n".join(
        [
            "# Benchmarks",
            "",
            *(line for part in text.split("\n\n") for line in [*wrapped(part), ""]),
            *wrapped(WRITTEN),
            "",
            *table(HEADER, rows(results)),
            "",
            *wrapped(f"Measured {said}. {UNDER_IT}"),
            "",
            f"![How many times as fast as Spark's RocksDB provider]({image})",
            "",
        ]
    )


def draw(results: dict[str, Any], file: Path, colors: dict[str, str]) -> None:
    """Draw how many times as fast each is, on a logarithmic axis around 1."""
    import matplotlib.pyplot as plt

    labels = [f"micro-batch of {figure['title']}" for figure in results["queries"]["figures"]]
    times = [1 / ratio for ratio in _to_tuned(results, "warm ms")]
    labels += [label for label, *_ in BARS]
    times += [1 / _ratio(results, name, figure) for _, name, figure in BARS]
    fig, ax = plt.subplots(figsize=(8, 0.6 + 0.4 * len(labels)))
    for place, value in enumerate(times):
        color = colors[OURS] if value >= 1 else colors[SPARK]
        ax.barh(place, value - 1, left=1, height=0.6, color=color)
        ax.annotate(
            f"{value:.2g}x" if value < 10 else f"{value:.0f}x",
            (value, place),
            (4 if value >= 1 else -4, 0),
            textcoords="offset points",
            va="center",
            ha="left" if value >= 1 else "right",
            fontsize=8,
        )
    ax.axvline(1, color="#333333", linewidth=0.8)
    ax.set_xscale("log")
    ax.set_xlim(min(times) / 2, max(times) * 2)
    ax.set_xticks([0.1, 1, 10, 100], ["10x slower", "the same", "10x faster", "100x faster"])
    ax.minorticks_off()
    ax.set_yticks(range(len(labels)), [label.replace("`", "") for label in labels], fontsize=8)
    ax.invert_yaxis()
    ax.tick_params(axis="x", labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    fig.savefig(file, bbox_inches="tight", metadata={"Date": None})
    plt.close(fig)


def _medians(results: dict[str, Any], name: str, figure: str) -> dict[str, float]:
    found: dict[str, float] = next(
        f["median"] for f in results[name]["figures"] if f["figure"] == figure
    )
    return found


def _warm(results: dict[str, Any], contender: str) -> list[float]:
    """Return how long a warm batch of each query takes with a provider, in ms."""
    return [figure["median"][contender]["warm ms"] for figure in results["queries"]["figures"]]


def _mean(results: dict[str, Any], what: str) -> float:
    """Return the geometric mean over all queries of Statemark's figure ÷ tuned's."""
    return statistics.geometric_mean(_to_tuned(results, what))


def _to_tuned(results: dict[str, Any], what: str) -> list[float]:
    """Return Statemark's figure ÷ tuned's of each query."""
    return [figure["ratio"]["tuned"][what] for figure in results["queries"]["figures"]]


def _ratio(results: dict[str, Any], name: str, figure: str) -> float:
    medians = _medians(results, name, figure)
    return medians[OURS] / medians[SPARK]


def _time(ms: float) -> str:
    """Say a time with two or three digits, in the unit that fits."""
    if ms < 10:
        return f"{ms:.1f} ms"
    if ms < 1000 and round(ms / 1000, 1) < 1:
        return f"{ms:.0f} ms"
    return f"{ms / 1000:.1f} s"
