"""Tell where the processor time of a query goes, by samples of all threads, native code included.

The query runs once, in a process with async-profiler. Each sample counts for the first row of
`ROWS` that names a part of its stack. The start of the process counts, too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tables import table

from queries.matrix import ALL
from queries.one import CONTENDERS

#: Processor time between two samples.
_INTERVAL_MS = 2
#: What takes the time, and parts of names in a stack that tell so. The first that fits counts.
ROWS: dict[str, tuple[str, ...]] = {
    "compiler (JIT)": ("CompileBroker", "C2Compiler", "C1 Comp", "C2 Comp"),
    "collector (GC)": ("GC Thread", "G1 ", "G1Conc", "GangWorker", "WorkerThread::run"),
    "RocksDB: C++ exceptions": ("__cxa_throw", "_Unwind_", "__gxx_personality"),
    "RocksDB: background": ("rocksdb::ThreadPoolImpl", "BackgroundFlush", "BGThread"),
    "RocksDB: memtable of a lookup": ("MemTable::Get",),
    "RocksDB: lookups": ("RocksDB.get", "keyMayExist", "KeyMayExist", "multiGet"),
    "RocksDB: writes": ("RocksDB.write", "WriteBatch", "RocksDB.put", "RocksDB.merge"),
    "RocksDB: scans": ("RocksIterator", "newIterator"),
    "row cache": ("statemark/transaction/RowCache", "statemark/transaction/RowTable"),
    "hash of keys": ("statemark/common/KeyHash",),
    "sort": ("EntrySort", "EntryIndex"),
    "serialize": ("BatchWriter", "HeapBatch"),
    "changelog": ("Changelog", "changelog"),
    "count": ("RowCounter", "resolveExistence"),
    "staging": ("statemark/staging",),
    "keys and values to bytes": ("keyBytes", "decodeKey", "RocksDBStateEncoder", "RowEncoders"),
    "the rest of Statemark": ("statemark/",),
    "Spark: state": ("execution/streaming",),
    "Spark: input": ("parquet", "Parquet"),
    "Spark: shuffle": ("shuffle", "UnsafeRowSerializer"),
    "Spark: generated code": ("GeneratedIterator", "GeneratedClass", "codegen"),
    "Spark: start and plans": ("[Thread-", "[main", "[stream execution"),
}


def main() -> None:
    """Run a query with a profiler, and print the table."""
    parser = argparse.ArgumentParser(prog="queries.stacks", description=__doc__)
    parser.add_argument("profiler", type=Path, help="libasyncProfiler.so")
    parser.add_argument("operator", choices=[name for name, of in ALL.items() if not of.topics])
    parser.add_argument("contenders", nargs="+", choices=CONTENDERS)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--keep", type=Path, help="folder for the stacks, to look closer")
    options = parser.parse_args()
    operator = ALL[options.operator]
    with tempfile.TemporaryDirectory(prefix="bench-profile-") as folder:
        source = Path(folder) / "input"
        operator.write(source, options.batches)
        found = {}
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
        for contender in options.contenders:
            stacks = (options.keep or Path(folder)) / f"{options.operator}-{contender}.collapsed"
            _run(options.profiler, options.operator, contender, source, stacks)
            found[contender] = samples(stacks.read_text().splitlines())
    rows = sum(map(operator.rows_of, range(options.batches)))
    print("\n".join(text(found, rows)))


def _run(profiler: Path, operator: str, contender: str, source: Path, stacks: Path) -> None:
    # By timer: perf events are forbidden in most containers.
    how = f"event=itimer,interval={_INTERVAL_MS}ms,file={stacks},collapsed,threads"
    agent = f"-agentpath:{profiler}=start,{how}"
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "queries.one",
                operator,
                contender,
                str(source),
                result.name,
                f"spark.driver.extraJavaOptions={agent}",
            ],
            check=True,
        )


def samples(stacks: list[str]) -> dict[str, int]:
    """
    Return how many samples belong to each row of `ROWS`, and to none of them.

    Examples
    --------
    >>> samples(["[GC Thread#0;mark 1", "[Executor;statemark/staging/StagedTable.find 3"])
    {'collector (GC)': 1, 'staging': 3}
    """
    counts: Counter[str] = Counter()
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        row = next((n for n, parts in ROWS.items() if any(p in stack for p in parts)), "other")
        counts[row] += int(count)
    return {row: counts[row] for row in (*ROWS, "other") if counts[row]}


def text(found: dict[str, dict[str, int]], rows: int) -> list[str]:
    r"""
    Render samples by contender, as microseconds of a processor for each row of the input.

    Examples
    --------
    >>> print("\n".join(text({"a": {"staging": 200, "other": 300}}, rows=1_000_000)))
    | processor time of a row, µs | a |
    |---|---:|
    | staging | 0.40 |
    | other | 0.60 |
    | all | 1.00 |
    """
    each = 1000 * _INTERVAL_MS / rows
    cells = [
        [row, *(f"{each * of.get(row, 0):.2f}" for of in found.values())]
        for row in (*ROWS, "other")
        if any(row in of for of in found.values())
    ]
    total = ["all", *(f"{each * sum(of.values()):.2f}" for of in found.values())]
    return table(["processor time of a row, µs", *found], [*cells, total])


if __name__ == "__main__":
    main()
