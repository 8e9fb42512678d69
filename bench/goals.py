"""The goals that the benchmarks are held against, beside what was reached."""

from __future__ import annotations

import operator
import statistics
from typing import Any

from nexmark.page import BASE, LEAST_GOAL, MEAN_GOAL
from tables import table, wrapped

#: Measure, results, figure, ratio of it (None: Statemark's own figure), most that is wanted (None:
#: for information).
GOALS: list[tuple[str, str, str, str | None, float | None]] = [
    ("put 10,000 rows, tracked", "micro", "put 10,000, ns a row", "÷ rocksdb", 0.25),
    ("the same ÷ in-memory provider", "micro", "put 10,000, ns a row", "÷ hdfs", 1.0),
    (
        "put and commit 500,000 rows, untracked",
        "micro",
        "put and commit 500,000, ns a row",
        "untracked ÷ untracked",
        0.5,
    ),
    ("remove and commit", "micro", "remove and commit, ns a row", "÷ rocksdb", 0.5),
    (
        "merge 10 values and commit",
        "micro",
        "merge 10 values a key and commit, ns a value",
        "÷ rocksdb",
        0.5,
    ),
    (
        "evict by scan and commit",
        "micro",
        "evict half by scan and commit, ns a row",
        "÷ rocksdb",
        0.5,
    ),
    ("commit of 10,000 rows, p50", "micro", "commit of 10,000, ms", "÷ rocksdb", 0.7),
    ("commit of 10,000 rows, p99", "micro", "commit of 10,000, ms, p99", "÷ rocksdb", 0.7),
    (
        "abort after 1,000,000 rows, ms",
        "micro",
        "abort of 1,000,000 rows until the next get, ms",
        None,
        10.0,
    ),
    (
        "get then put, 10,000,000 keys, defaults",
        "scale",
        "get then put, ns a row, 10,000,000 keys",
        "÷ rocksdb, defaults",
        0.3,
    ),
    (
        "get then put, 10,000,000 keys, same memory",
        "scale",
        "get then put, ns a row, 10,000,000 keys",
        "÷ rocksdb, 256 MB",
        0.7,
    ),
    (
        "memory, heap and outside, 10,000,000 keys, same bound",
        "scale",
        "memory, heap and outside, MB, 10,000,000 keys",
        "÷ rocksdb, 256 MB",
        1.0,
    ),
    (
        "of that, outside the heap",
        "scale",
        "memory outside the heap, MB, 10,000,000 keys",
        "÷ rocksdb, 256 MB",
        None,
    ),
    (
        "of that, live heap",
        "scale",
        "live heap, MB, 10,000,000 keys",
        "÷ rocksdb, 256 MB",
        None,
    ),
]

SLOWEST_QUERY = "Nexmark, slowest query"
NEXMARK_MEMORY = "Nexmark, memory, heap and outside, geometric mean"
#: By measure, where it is missed: what it goes to, and what was tried.
ACCOUNTS = {
    "evict by scan and commit": """\
The scan is RocksDB's in both: it passes over every version of a row in memtables and young files
(docs/adr/0012). The removals, which are staged, take 0.2 µs a row.""",
    "get then put, 10,000,000 keys, defaults": """\
It is one lookup; Spark's two, of which the second finds the block that the first brought in. The
half of memory overhead that all stores share, 205 MiB here, holds less than half of the blocks. A
profile (async-profiler, CPU, 256 MB) of the calls has 91 % in the one lookup: 16 % reading blocks
from files, 11 finding them in the cache, 5 decompressing them, 7 searching them, 10 in indexes, 9
in filters, 8 in memtables, 19 in JNI. By RocksDB's own counters it takes 14 µs with them on, 6.5 of
them finding, reading and decompressing blocks; 9.5 and 2.1 with 1,000,000 keys, which fit. Tried: a
hash index in blocks, filters in parts, filters outside the cache, files mapped to memory (slower),
files that are not compressed (0.7 to 0.9 of the time, and 2.6 times the files:
`rocksdb.compression=none`) (docs/adr/0011). Not tried: a filter for each memtable; RocksDB makes it
for a full memtable at once, 1.3 MB in each store at 2 %.""",
    "get then put, 10,000,000 keys, same memory": """\
A process varies by a fifth: six of each in turn, on a quiet machine, had medians of 6.1 and 8.8 µs,
0.69, with no difference where freed memory is kept (docs/adr/0015). What a lookup goes to is as
with the defaults.""",
    SLOWEST_QUERY: """\
q16: a profile (JFR) has 3 % of its time in the store; its sketches of 3 KB a row are merged by
Spark. Its commits take a tenth of the time of Spark's, which is 0.2 of 1.7 s for each batch. Three
rounds do not show that: a process gets faster for three or four runs, from 36,000 to 70,000
events/s. Ten rounds of two providers: 1.04 from the fourth on. Processes of eight or nine runs, one
after the other, three times: 0.9 (under JFR), 1.1 and 1.6. Four providers and four rounds, after
two, three and four short runs to warm up: 1.03, 1.34 and 1.24.""",
    NEXMARK_MEMORY: """\
Up to 5 MB of classes and threads, the prepared version on the heap, and memtables of up to five
versions, where Spark's provider flushes with each. Tried: smaller pools, and earlier flushes by the
size of a store or of all (docs/adr/0014).""",
}


def section(results: dict[str, dict[str, Any]]) -> str:
    """
    Render the section.

    Parameters
    ----------
    results
        By benchmark, `micro`, `scale` and `nexmark`; those that have not run may be missing.
    """
    rows = [_row(goal, results) for goal in GOALS]
    nexmark = results.get("nexmark", {"figures": [], "geometric mean": {BASE: None}})
    ratios = [f["ratio"][BASE] for f in nexmark["figures"]]
    rows += [
        _judged(
            "Nexmark, geometric mean of throughput",
            nexmark["geometric mean"][BASE],
            MEAN_GOAL,
            least=True,
        ),
        _judged(SLOWEST_QUERY, min(ratios, default=None), LEAST_GOAL, least=True),
        _judged(NEXMARK_MEMORY, _mean(_memory(nexmark, heap=1, native=1)), 1.0, least=False),
        _judged(
            "of that, outside the heap",
            _mean(_memory(nexmark, heap=0, native=1)),
            None,
            least=False,
        ),
        _judged("of that, live heap", _mean(_memory(nexmark, heap=1, native=0)), None, least=False),
    ]
    header = ["Statemark ÷ Spark's provider", "goal", "reached", ""]
    accounts = [
        line
        for measure, *_, verdict in rows
        if verdict and measure in ACCOUNTS
        for line in wrapped(f"- *{measure}*: {ACCOUNTS[measure]}", "  ")
    ]
    return "\n".join(["## Goals", "", *table(header, rows), "", *accounts, ""])


def _memory(nexmark: dict[str, Any], *, heap: int, native: int) -> list[float]:
    """Ratio for each query: of the live heap, of what lies beside the heap, or of both."""

    def held(figures: dict[str, float]) -> float:
        beside = figures["peak MB"] - nexmark["environment"]["heap MB"]
        return heap * figures["heap MB"] + native * beside

    medians = [f["median"] for f in nexmark["figures"]]
    return [held(m["statemark"]) / held(m[BASE]) for m in medians]


def _mean(ratios: list[float]) -> float | None:
    return statistics.geometric_mean(ratios) if ratios else None


def _row(
    goal: tuple[str, str, str, str | None, float | None], results: dict[str, dict[str, Any]]
) -> list[str]:
    measure, benchmark, figure, ratio, most = goal
    found = [f for f in results.get(benchmark, {}).get("figures", []) if f["figure"] == figure]
    value = None
    if found:
        value = found[0]["ratio"].get(ratio) if ratio else found[0]["median"].get("statemark")
    return _judged(measure, value, most, least=False)


def _judged(measure: str, value: float | None, goal: float | None, *, least: bool) -> list[str]:
    sign, holds = ("≥", operator.ge) if least else ("≤", operator.le)
    wanted = "" if goal is None else f"{sign} {goal:g}"
    if value is None:
        return [measure, wanted, "not measured", ""]
    is_missed = goal is not None and not holds(value, goal)
    return [measure, wanted, f"{value:.3g}", "missed" if is_missed else ""]
