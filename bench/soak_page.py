"""The section of the page of figures on memory over time, and its picture."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
from measured import text as measured
from tables import wrapped

if TYPE_CHECKING:
    from pathlib import Path

PICTURE = "soak.svg"
TEXT = """\
`{command}`, {measured}. A query counts rows by key in {partitions} partitions, {rows:,} rows of
{keys:,} keys in {minutes:.0f} minutes, in an executor that may have {limit} MB, as its container
would: a heap of {heap} MB, and {bound} MB each for uncommitted rows and native memory. Its process
had {peak:,} MB resident at most; in the last quarter of the time {last:,.0f} MB on average, in the
second quarter {second:,.0f} MB. Every row was counted."""


def section(results: dict[str, Any]) -> str:
    """Render the section."""
    second, last = (_mean(results, *quarter) for quarter in ((0.25, 0.5), (0.75, 1.0)))
    text = TEXT.format(
        command=results["command"],
        measured=measured(results),
        partitions=results["partitions"],
        rows=results["rows"],
        keys=results["keys"],
        minutes=results["minutes"],
        limit=results["limit MB"],
        heap=results["heap MB"],
        bound=results["bound MB"],
        peak=results["peak resident MB"],
        last=last,
        second=second,
    )
    lines = ["## Memory over time", "", *wrapped(text), ""]
    return "\n".join(
        [*lines, f"![Resident memory of the executor, minute by minute]({PICTURE})", ""]
    )


def _mean(results: dict[str, Any], begin: float, end: float) -> float:
    whole = results["minutes"]
    return statistics.mean(
        mb for minute, mb in results["resident MB"] if begin * whole <= minute <= end * whole
    )


def draw(results: dict[str, Any], file: Path) -> None:
    """Draw what the process had, from zero to what it may have."""
    fig, ax = plt.subplots(figsize=(9, 3))
    minutes, resident = zip(*results["resident MB"], strict=True)
    ax.plot(minutes, resident, color="#1f5fa8", linewidth=1)
    ax.axhline(results["limit MB"], color="#b0413e", linewidth=0.8)
    ax.annotate("what it may have", (0, results["limit MB"]), (2, -10), textcoords="offset points")
    ax.set_ylim(0, results["limit MB"] * 1.05)
    ax.set_xlim(0, results["minutes"])
    ax.set_xlabel("minutes")
    ax.set_ylabel("resident, MB")
    ax.spines[["top", "right"]].set_visible(False)
    fig.savefig(file, bbox_inches="tight", metadata={"Date": None})
    plt.close(fig)
