"""The verdict at the end, and the tables behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from statemark.comparison import Line, layout, timed

Measures = dict[str, Any]

#: Queries by the name that they have in files.
TITLES = {"dedup": "deduplication", "delays": "aggregation", "weather": "join"}
_SECOND_MS = 1000
_HEADINGS = ("Spark RocksDB", "Statemark", "")


@dataclass(frozen=True, kw_only=True)
class Found:
    """
    All that the demo has seen.

    Attributes
    ----------
    spark, statemark
        What `flights.side` measured, with what `flights.restart` did as ``restart``.
    verdicts
        What `flights.compare` wrote, by query.
    live
        What `flights.live` wrote.
    live_differs
        Whether the last live reads had other counts than the input.
    """

    spark: Measures
    statemark: Measures
    verdicts: dict[str, dict[str, Any]]
    live: dict[str, Any]
    live_differs: bool


def verdict(found: Found) -> str:
    """Lay out the five lines that the demo is run for: counts, then times."""

    def equal(side: str) -> str:
        return f"{sum(not v[side] for v in found.verdicts.values())} of {len(found.verdicts)}"

    def opened(side: Measures) -> str:
        return str(len(opened_by_retry(side)))

    def to_commit(side: Measures) -> float:
        return float(side["dedup"]["recovery"]["to_commit_ms"])

    def restart(side: Measures) -> float:
        return float(side["restart"]["to_commit_ms"])

    both = (found.spark, found.statemark)
    reads, torn, ahead = (found.live[key] for key in ("reads", "torn", "ahead"))
    lines = [
        ("queries with the same answers as a batch job", equal("spark"), equal("statemark"), ""),
        (
            "checkpoint files that the failed task's retry opened",
            opened(found.spark),
            opened(found.statemark),
            "",
        ),
        (
            "live reads, of which saw a batch in part",
            "-",
            f"{torn} of {reads}",
            f"at READ_UNCOMMITTED, which is to: {ahead}",
        ),
        timed("from the failure to the next commit", *map(to_commit, both)),
        timed("restart of the query, to its first commit", *map(restart, both)),
    ]
    return layout([("VERDICT", *_HEADINGS), *lines])


def tables(found: Found) -> str:
    """Lay out the counts, and apart from them the times, query by query."""
    both = (found.spark, found.statemark)
    counts: list[Line] = [("COUNTS", *_HEADINGS)]
    times: list[Line] = [("TIMES, one run on this machine", *_HEADINGS)]
    for query, title in TITLES.items():
        for name, key in (
            ("input rows", "rows"),
            ("batches", "batches"),
            ("state rows, at most", "state_rows"),
        ):
            counts.append((f"{title}: {name}", *(f"{side[query][key]:,.0f}" for side in both), ""))
        for name, key, scale in (
            ("processor time", "cpu_s", _SECOND_MS),
            ("batch, median", "batch_ms", 1),
        ):
            theirs, ours = (float(side[query][key]) * scale for side in both)
            line = timed(f"{title}: {name}", theirs, ours)
            times.append(
                line if ours <= theirs else (*line[:3], f"{line[3]}: {_compiler(both, query)}")
            )
    for title, key, scale in (
        ("restart: files of the state opened", "opened", 1),
        ("restart: their size, MB", "opened_bytes", 1e-6),
    ):
        counts.append((title, *(f"{side['restart'][key] * scale:,.0f}" for side in both), ""))
    return f"{layout(counts)}\n\n{layout(times)}"


def _compiler(both: tuple[Measures, Measures], query: str) -> str:
    """Say why a short run may take longer: Statemark has more code for Java's compiler."""
    theirs, ours = (100 * side[query]["jit_s"] / side[query]["cpu_s"] for side in both)
    return f"the compiler (JIT) takes {theirs:.0f} % and {ours:.0f} % of so short a run"


def opened_by_retry(side: Measures) -> list[str]:
    """Files that the retry opened below the operator's state directory, each once."""
    return sorted(set(side["dedup"]["recovery"]["opened"]))
