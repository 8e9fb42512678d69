"""Records a second of `statemark.latest` and `topic compact`, into bench/results/compaction.json.

A compacted topic on a broker of this machine gets one record for each key, and late losers for some
of the keys. `topic compact` reads it without and with repair, as a process whose memory is looked
at while it runs. `statemark.latest` finds the winners of the first records of the topic in a batch
query and in a streaming one, beside a plain aggregate of the same session that has no more to do
than to find the highest offset of each key.
"""

from __future__ import annotations

import argparse
import json
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import statemark
from confluent_kafka import Producer
from measured import environment
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from support import topics
from support.brokers import Brokers, jars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    Find = Callable[[DataFrame], DataFrame]

TOPIC, PARTITIONS = "compacted", 4
#: Keys of the topic, and how many records of it Spark reads.
KEYS, QUICK_KEYS = 10_000_000, 200_000
READ, QUICK_READ = 2_000_000, 100_000
#: One key in so many has a late loser.
WRONG_ONE_IN = 100
ROUNDS = 3
VALUE = b"x" * 50
#: Records that wait in the producer.
QUEUE = 500_000
_MB = 1 << 20


def main() -> None:
    """Measure all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a look: fewer keys, one round")
    parser.add_argument("--out", type=Path, default=Path("bench/results/compaction.json"))
    options = parser.parse_args()
    start = time.monotonic()
    keys = QUICK_KEYS if options.quick else KEYS
    with _broker() as bootstrap:
        records = fill(bootstrap, keys)
        print(f"{records} records of {keys} keys are in the topic", file=sys.stderr)
        cases = [compact(bootstrap, "dry run", "--dry-run"), compact(bootstrap, "repair")]
        read = QUICK_READ if options.quick else READ
        cases += latest(bootstrap, read, rounds=1 if options.quick else ROUNDS)
    results = {
        "command": "make bench-compaction" + " QUICK=1" * options.quick,
        "seconds": round(time.monotonic() - start),
        "environment": environment(),
        "keys": keys,
        "cases": cases,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=1) + "\n")
    for case in cases:
        print({name: round(v, 2) if isinstance(v, float) else v for name, v in case.items()})


@contextmanager
def _broker() -> Iterator[str]:
    directory = Path(tempfile.mkdtemp(prefix="bench-compaction-"))
    try:
        with Brokers(directory) as brokers:
            yield brokers.bootstrap
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def fill(bootstrap: str, keys: int) -> int:
    """Write a record of each key, then losers; return how many records there are."""
    config = {"cleanup.policy": "compact", "min.compaction.lag.ms": 2**63 - 1}
    topics.create(bootstrap, TOPIC, partitions=PARTITIONS, config=config)
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": 1 << 19}
    producer = Producer({**settings, "queue.buffering.max.messages": QUEUE})

    def send(key: int, version: int) -> None:
        record: dict[str, Any] = {
            "key": b"key-%012d" % key,
            "value": VALUE,
            "partition": key % PARTITIONS,
            "headers": [("version", struct.pack(">q", version))],
        }
        while len(producer) >= QUEUE - 1:
            producer.poll(1)
        producer.produce(TOPIC, **record)
        if key % 10_000 == 0:
            producer.poll(0)

    for key in range(keys):
        send(key, 2)
    producer.flush()
    late = range(0, keys, WRONG_ONE_IN)
    for key in late:
        send(key, 1)
    producer.flush()
    return keys + len(late)


def compact(bootstrap: str, name: str, *words: str) -> dict[str, Any]:
    """Run the command; return its pace, and the most memory that its process took."""
    command = [
        *(sys.executable, "-m", "statemark", "topic", "compact", TOPIC),
        *("--bootstrap-servers", bootstrap, "--strategy", "header", "--header", "version"),
        *("--jars", ",".join(jars("spark-connector")), "--json", *words),
    ]
    begun = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    most = 0
    while process.poll() is None:
        most = max([most, *map(_peak, _children(process.pid))])
        time.sleep(0.2)
    assert process.stdout is not None
    said = json.loads(process.stdout.read())
    seconds = time.monotonic() - begun
    return {
        "what": name,
        "seconds": seconds,
        "records": said["records"],
        "records_a_second": said["records"] / seconds,
        "copies": said.get("appended", 0),
        "memory_mb": most / _MB,
    }


def _children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(child) for child in found.stdout.split()]


def _peak(pid: int) -> int:
    """Bytes that a process has had in memory at most."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    lines = [line.split() for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0][1]) * 1024 if lines else 0


def latest(bootstrap: str, records: int, *, rounds: int) -> list[dict[str, Any]]:
    """Find winners with Spark, and beside them the highest offset of each key."""
    connector = [str(statemark.jar_path()), *jars("spark-connector")]
    builder = SparkSession.builder.master("local[2]").appName("bench-compaction")
    for name, value in {
        "spark.jars": ",".join(connector),
        "spark.driver.extraClassPath": ":".join(connector),
        "spark.driver.memory": "3g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.streaming.stateStore.providerClass": "statemark.spark."
        "StatemarkStateStoreProvider",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    last = records // PARTITIONS
    options = {
        "includeHeaders": True,
        "endingOffsets": json.dumps({TOPIC: dict.fromkeys(map(str, range(PARTITIONS)), last)}),
    }

    def winners(df: DataFrame) -> DataFrame:
        return statemark.latest(df, strategy="header", header="version")

    def plain(df: DataFrame) -> DataFrame:
        row = sf.struct("*")
        return df.groupBy("key").agg(sf.max_by(row, "offset").alias("w")).select("w.*")

    def batch(find: Find) -> float:
        df = statemark.kafka_source(
            spark, bootstrap_servers=bootstrap, topics=TOPIC, options=options, streaming=False
        )
        begun = time.monotonic()
        find(df).write.format("noop").mode("overwrite").save()
        return time.monotonic() - begun

    def stream(find: Find) -> float:
        df = statemark.kafka_source(
            spark,
            bootstrap_servers=bootstrap,
            topics=TOPIC,
            starting_offsets="earliest",
            options={"includeHeaders": True, "maxOffsetsPerTrigger": records},
        )
        checkpoint = tempfile.mkdtemp(prefix="bench-compaction-")
        writer = find(df).writeStream.format("noop").outputMode("update")
        query = writer.option("checkpointLocation", checkpoint).start()
        try:
            while not (done := [p for p in query.recentProgress if p.numInputRows]):
                if error := query.exception():
                    raise error
                time.sleep(0.05)
            return float(done[0].durationMs["triggerExecution"] / 1000)
        finally:
            query.stop()
            shutil.rmtree(checkpoint, ignore_errors=True)

    cases = []
    for name, run in (("batch", batch), ("streaming", stream)):
        took: dict[Find, list[float]] = {winners: [], plain: []}
        for turn in range(rounds + 1):
            for find in (winners, plain) if turn % 2 else (plain, winners):
                seconds = run(find)
                if turn:  # the first one warms up
                    took[find].append(seconds)
        ours, theirs = min(took[winners]), min(took[plain])
        cases.append(
            {
                "what": f"latest, {name}",
                "records": records,
                "seconds": ours,
                "records_a_second": records / ours,
                "max_by_records_a_second": records / theirs,
                "ratio": theirs / ours,
            }
        )
    spark.stop()
    return cases


if __name__ == "__main__":
    main()
