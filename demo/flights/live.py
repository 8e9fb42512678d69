"""A query on Statemark that is read while it runs, at both isolation levels."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import statemark
from pyspark.sql import functions as sf
from statemark import IsolationLevel

from flights import queries
from flights.session import STATEMARK_PROVIDER, streaming_session

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

#: A task rests so long after each row that it has staged: there is a batch to look into.
_REST_MS = 60
_LEVELS = tuple(level.name for level in IsolationLevel)
_EVERY_S = 0.5


def counts(query: StreamingQuery, level: str) -> Counter[str]:
    """Return deliveries by carrier, as the state has them now."""
    rows = statemark.live(query, isolation_level=level, timeout=60).select("key", "value")
    return Counter({row.key.carrier: row.value[0] for row in rows.collect()})


def main() -> None:
    """Count deliveries by carrier, and write what the last read has shown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", required=True, type=Path)
    parser.add_argument("--work", required=True, type=Path)
    options = parser.parse_args()
    spark = streaming_session(STATEMARK_PROVIDER, options.work)
    flights = queries.read(
        spark, options.inputs / "flights", queries.FLIGHT_SCHEMA, files_per_batch=1
    )
    rest = sf.expr(f"coalesce(java_method('java.lang.Thread', 'sleep', {_REST_MS}L), '') <> 'no'")
    query = (
        flights.groupBy("carrier")
        .count()
        .where(rest)
        .writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", str(options.work / "checkpoint"))
        .start()
    )
    files = sorted((options.inputs / "flights").glob("*.parquet"))
    # Each file is a batch: between two batches the state holds as many deliveries as whole files.
    whole = set(accumulate((pq.read_metadata(file).num_rows for file in files), initial=0))
    reads = torn = ahead_of_commit = 0
    print(f"{'live':<14} {_LEVELS[0]:>18} {_LEVELS[1]:>18}   not committed", flush=True)
    while statemark.position(query).batch_id < len(files) - 1:
        committed, uncommitted = (counts(query, level) for level in _LEVELS)
        ahead = uncommitted - committed
        reads += 1
        torn += committed.total() not in whole
        ahead_of_commit += bool(ahead)
        names = ", ".join(f"{carrier} +{n:,}" for carrier, n in ahead.most_common(3))
        totals = f"{committed.total():>18,} {uncommitted.total():>18,}"
        print(f"{'live':<14} {totals}   {names}", flush=True)
        time.sleep(_EVERY_S)
    last = [counts(query, level) for level in _LEVELS]
    found = {"reads": reads, "torn": torn, "ahead": ahead_of_commit, "last": last}
    (options.work / "live.json").write_text(json.dumps(found))
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
