"""Draw the state of a running query, at both isolation levels, while it runs.

    python examples/live_queries.py [--seconds 20] [--out live.svg]

Needs a built checkout (`make build`), or `pip install 'statemark[pyspark,plots]'` with its jar. A
query counts the visits of pages; each half second one SQL statement reads all of its state. The
picture has what was committed, and above it what tasks had staged at that moment.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import statemark
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from statemark import IsolationLevel

PAGES = ("start", "search", "basket", "checkout", "help")
LEVELS = tuple(level.name for level in IsolationLevel)
EVERY_S = 0.5


def main() -> None:
    """Run the query, read it, draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--out", type=Path, default=Path("live.svg"))
    options = parser.parse_args()

    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = statemark.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    # More visits fall on the first pages. A task rests a while after each page that it has counted.
    visits = spark.readStream.format("rate").option("rowsPerSecond", 2000).load()
    page = sf.element_at(
        sf.array(*map(sf.lit, PAGES)), sf.floor(sf.pow(sf.rand(1), 2) * len(PAGES)).cast("int") + 1
    )
    counts = visits.withColumn("page", page).groupBy("page").count()
    rest = sf.expr("coalesce(java_method('java.lang.Thread', 'sleep', 150L), '') <> 'no'")
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            counts.where(rest)
            .writeStream.outputMode("update")
            .format("noop")
            .option("checkpointLocation", checkpoint)
            .start()
        )
        samples = read(spark, query, seconds=options.seconds)
        query.stop()
    draw(samples, options.out)
    print(f"{len(samples)} reads, drawn in {options.out}")
    spark.stop()


def read(spark: SparkSession, query: object, *, seconds: float) -> list[dict[str, object]]:
    """Sample the state of the query: seconds since the start, and counts by level and page."""
    for level in LEVELS:
        # A view is planned anew, and so at the newest batch, by each statement on it.
        statemark.live(query, isolation_level=level, timeout=60).createOrReplaceTempView(level)
    sql = " UNION ALL ".join(
        f"SELECT '{level}' AS level, key.page AS page, value.count AS n FROM {level}"
        for level in LEVELS
    )
    samples = []
    start = time.monotonic()
    while (now := time.monotonic() - start) < seconds:
        found = {(row.level, row.page): row.n for row in spark.sql(sql).collect()}
        samples.append({"at": now, "counts": found})
        print("  ".join(f"{p} {found.get((LEVELS[0], p), 0):,}" for p in PAGES), flush=True)
        time.sleep(EVERY_S)
    return samples


def draw(samples: list[dict[str, object]], out: Path) -> None:
    """Draw a line for each page: committed as steps, staged as dots."""
    fig, ax = plt.subplots(figsize=(8, 4.5))
    times = [sample["at"] for sample in samples]
    for i, page in enumerate(PAGES):
        committed, staged = (
            [sample["counts"].get((level, page), 0) for sample in samples] for level in LEVELS
        )
        ax.step(times, committed, where="post", color=f"C{i}", label=page)
        ax.plot(times, staged, ".", color=f"C{i}", markersize=4)
    ax.set_xlabel("seconds")
    ax.set_ylabel("visits")
    ax.set_title("lines: READ_COMMITTED; dots: READ_UNCOMMITTED", fontsize=9)
    ax.legend(frameon=False, fontsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    fig.savefig(out, bbox_inches="tight")


if __name__ == "__main__":
    main()
