"""Tell where the processor time of a query goes, by samples of all threads, native code included.

The query runs once, in a process with async-profiler. Each sample counts for the first row of
`ROWS` that names a part of its stack; those of the compiler are told apart.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tables import table

from queries.one import CONTENDERS
from queries.operators import OPERATORS

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
    parser.add_argument("operator", choices=OPERATORS)
    parser.add_argument("contenders", nargs="+", choices=CONTENDERS)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--keep", type=Path, help="folder for the stacks, to look closer")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-profile-") as folder:
        source = Path(folder) / "input"
        OPERATORS[options.operator].write(source, options.batches)
        found = {}
        for contender in options.contenders:
            stacks = (options.keep or Path(folder)) / f"{options.operator}-{contender}.collapsed"
            _run(options.profiler, options.operator, contender, source, stacks)
            found[contender] = shares(stacks.read_text().splitlines())
    print("\n".join(text(found)))


def _run(profiler: Path, operator: str, contender: str, source: Path, stacks: Path) -> None:
    # By timer: perf events are forbidden in most containers.
    agent = f"-agentpath:{profiler}=start,event=itimer,interval=2ms,file={stacks},collapsed,threads"
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


def shares(stacks: list[str]) -> dict[str, float]:
    """
    Return the share of each row of `ROWS` in all samples, and of what none of them names.

    Examples
    --------
    >>> shares(["[GC Thread#0;mark 1", "[Executor;statemark/staging/StagedTable.find 3"])
    {'collector (GC)': 0.25, 'staging': 0.75}
    """
    counts: Counter[str] = Counter()
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        row = next((n for n, parts in ROWS.items() if any(p in stack for p in parts)), "other")
        counts[row] += int(count)
    total = sum(counts.values())
    return {row: counts[row] / total for row in (*ROWS, "other") if counts[row]}


def text(found: dict[str, dict[str, float]]) -> list[str]:
    r"""
    Render shares by contender: of all samples, those of the compiler left out.

    Examples
    --------
    >>> print("\n".join(text({"a": {"compiler (JIT)": 0.5, "staging": 0.2, "other": 0.3}})))
    | share of samples, % | a |
    |---|---:|
    | compiler (JIT), of all | 50.0 |
    | staging | 40.0 |
    | other | 60.0 |
    """
    jit = "compiler (JIT)"
    rows = [[f"{jit}, of all", *(f"{100 * s.get(jit, 0):.1f}" for s in found.values())]]
    for row in (*(r for r in ROWS if r != jit), "other"):
        cells = [100 * s.get(row, 0) / (1 - s.get(jit, 0)) for s in found.values()]
        if any(cells):
            rows.append([row, *(f"{cell:.1f}" for cell in cells)])
    return table(["share of samples, %", *found], rows)


if __name__ == "__main__":
    main()
