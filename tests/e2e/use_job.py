"""Uses Statemark in a session that was started without it; `test_use` runs it."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import statemark
from pyspark.sql import DataFrame, SparkSession
from statemark import settings

PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def main(master: str, directory: Path) -> None:
    if master.startswith("sc://"):
        spark = SparkSession.builder.remote(master).getOrCreate()
    else:
        builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
        # Executors' virtual machines are as the driver's.
        options = os.environ["SPARK_SUBMIT_OPTS"]
        builder = builder.config("spark.executor.extraJavaOptions", options)
        spark = builder.getOrCreate()
    if master.startswith("local-cluster"):
        # `use` tells what is there: the driver, and executors that have come by then.
        tracker = spark.sparkContext._jsc.sc().statusTracker()
        while len(tracker.getExecutorInfos()) < 3:
            time.sleep(0.05)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    seen: dict[str, Any] = {}
    former = spark.conf.get(PROVIDER)
    (directory / "in").mkdir()
    (directory / "in/0.json").write_text("\n".join(f'{{"key": {i % 5}}}' for i in range(20)))

    def counts() -> DataFrame:
        return (
            spark.readStream.schema("key LONG").json(str(directory / "in")).groupBy("key").count()
        )

    def start(name: str) -> Any:
        writer = counts().writeStream.queryName(name).outputMode("complete").format("memory")
        query = writer.option("checkpointLocation", str(directory / name)).start()
        query.processAllAvailable()
        return query

    if not master.startswith("sc://"):
        spark.conf.set(PROVIDER, settings.PROVIDER_CLASS)
        seen["absent"] = [
            *(_kind(spark.read.format(name).load) for name in ("statemark", "statemark-kafka")),
            _kind(lambda: start("absent")),
        ]
        spark.conf.set(PROVIDER, former)
    with statemark.use(
        spark, local_dir=directory / "state", isolation_level="READ_COMMITTED"
    ) as usage:
        seen["text"] = str(usage)
        seen["versions"] = usage.versions
        query = start("counts")
        seen["metrics"] = sum("statemark" in m for m in _operator(query)["customMetrics"])
    seen["is_former"] = spark.conf.get(PROVIDER) == former
    seen["rows"] = sorted(
        [row.key.key, row.value["count"]] for row in statemark.live(query).collect()
    )
    seen["row"] = statemark.get(query, 3).value[0]
    seen["position"] = statemark.position(query).batch_id
    after = start("after")
    seen["metrics_after"] = sum("statemark" in m for m in _operator(after)["customMetrics"])

    def elsewhere() -> None:
        seen["row_in_thread"] = statemark.get(query, 3).value[0]
        seen["rows_in_thread"] = statemark.live(query).count()
        spark.conf.set(PROVIDER, settings.PROVIDER_CLASS)
        seen["metrics_in_thread"] = sum(
            "statemark" in m for m in _operator(start("other"))["customMetrics"]
        )

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    if not master.startswith("sc://"):
        query.stop()
        for changelog in (directory / "counts/state/0").glob("*/*.changelog"):
            changelog.write_bytes(b"no changelog")
        shutil.rmtree(directory / "state")
        (directory / "in/1.json").write_text('{"key": 1}')
        try:
            start("counts")
        except Exception as e:  # noqa: BLE001 - pyspark raises of several classes
            seen["failure"], seen["kind"] = str(e), type(statemark.error_of(e)).__name__
    (directory / "seen.json").write_text(json.dumps(seen))
    for one in spark.streams.active:
        one.stop()
    spark.stop()


def _kind(act: Callable[[], object]) -> str | None:
    """Return what `error_of` makes of an act's failure; None where it has not failed."""
    try:
        act()
    except Exception as e:  # noqa: BLE001 - pyspark raises of several classes
        return type(statemark.error_of(e)).__name__
    return None


def _operator(query: Any) -> Any:
    return next(p for p in query.recentProgress if p["stateOperators"])["stateOperators"][0]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
