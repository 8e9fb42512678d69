"""`statemark repartition`: a stopped query goes on with another number of partitions."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StatefulProcessor
from support.modes import FORMATS, IS_WHOLE
from support.session import LINE, STATEMARK_PROVIDER, TESTKIT_JAR
from support.streams import Run, Source, assert_same, events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(
    LINE in ("4.0", "4.1"), reason="RepartitionRefusalSuite has what this line says"
)

# Workers cannot import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

_TIMEOUT_S = 180


@pytest.fixture(autouse=True)
def _ours(provider: str) -> None:
    if provider != STATEMARK_PROVIDER:
        pytest.skip(f"the command is in our jar, not with {provider}")


class Everything(StatefulProcessor):
    """Keeps a count, a list and a map of each key."""

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n LONG")
        self.values = handle.getListState("values", "value LONG")
        self.days = handle.getMapState("days", "day STRING", "n LONG")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in sorted(rows, key=lambda row: row.id):
            count = self.count.get()[0] if self.count.exists() else 0
            self.count.update((count + 1,))
            self.values.appendValue((row.value,))
            day = (str(row.ts.date()),)
            n = self.days.getValue(day)[0] if self.days.containsKey(day) else 0
            self.days.updateValue(day, (n + 1,))
        values = [value[0] for value in self.values.get()]
        days = sorted((day[0], n[0]) for day, n in self.days.iterator())
        yield Row(key=key[0], n=self.count.get()[0], total=sum(values), days=str(days))

    def close(self) -> None:
        pass


def transformed(df: DataFrame) -> DataFrame:
    return df.groupBy("key").transformWithState(
        Everything(),
        "key STRING, n LONG, total LONG, days STRING",
        outputMode="Update",
        timeMode="None",
    )


def counted(df: DataFrame) -> DataFrame:
    return df.groupBy("key").agg(sf.count("*").alias("n"), sf.sum("value").alias("total"))


def command(checkpoint: Path, *words: str) -> list[str]:
    """The words of `statemark repartition` as a user types them."""
    tool = shutil.which("statemark", path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.fail("no `statemark` beside this python: run `make build`", pytrace=False)
    # Metadata of transformWithState names its schema files by the scheme that the query used.
    scheme = "statemark.testkit.Counting"
    options = ["--master", "local[2]", "--observe", "0", "--jars", str(TESTKIT_JAR)]
    options += ["--conf", f"spark.hadoop.fs.counting.impl={scheme}FileSystem"]
    options += [
        "--conf",
        f"spark.hadoop.fs.AbstractFileSystem.counting.impl={scheme}AbstractFileSystem",
    ]
    return [tool, "repartition", f"counting://{checkpoint}", *words, *options]


def repartition(checkpoint: Path, *words: str) -> str:
    """Run the command to its end and return its result."""
    done = subprocess.run(
        command(checkpoint, *words), check=False, capture_output=True, text=True, timeout=_TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def entries(checkpoint: Path, log: str) -> list[int]:
    return sorted(int(p.name) for p in (checkpoint / log).iterdir() if p.name.isdigit())


# RepartitionSuite has format v1 for state of this kind.
@pytest.mark.parametrize("checkpoint_format", FORMATS if IS_WHOLE else ["2"], indirect=True)
@pytest.mark.usefixtures("checkpoint_format")
def test_transform_with_state_goes_on(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    run = Run(tmp_path / "tws", mode="update", key=("key",))
    run.to_end(transformed(source.add(events(0, 60), events(60, 60)).stream()))
    for start, partitions in [(1400, 7), (2900, 1)]:
        assert f"to {partitions} partitions" in repartition(
            run.checkpoint, "--partitions", str(partitions)
        )
        run.to_end(transformed(source.add(events(start, 80)).stream()))
    got = run.result(spark)
    assert_same(got.drop("days"), counted(source.batch()))
    by_day = source.batch().groupBy("key", sf.to_date("ts").cast("string").alias("day")).count()
    wanted = by_day.groupBy("key").agg(sf.collect_list(sf.struct("day", "count")).alias("days"))
    days = {row.key: str(sorted((d[0], d[1]) for d in row.days)) for row in wanted.collect()}
    assert {row.key: row.days for row in got.collect()} == days


def test_killed_and_run_again(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    run = Run(tmp_path / "killed", mode="update", key=("key",))
    run.to_end(counted(source.add(events(0, 100)).stream()))
    last = entries(run.checkpoint, "commits")[-1]
    words = command(run.checkpoint, "--partitions", "32")
    with subprocess.Popen(
        words, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        assert child.stderr is not None
        for line in child.stderr:
            if "stores moved" in line:
                # spark-submit, its shell and the JVM.
                os.killpg(child.pid, signal.SIGKILL)
                break
    assert child.returncode == -signal.SIGKILL
    assert entries(run.checkpoint, "offsets")[-1] == last + 1
    assert entries(run.checkpoint, "commits")[-1] == last

    source.add(events(100, 100))
    with pytest.raises(StreamingQueryException, match=r"(?i)repartition"):
        run.to_end(counted(source.stream()))
    assert "to 32 partitions" in repartition(run.checkpoint, "--partitions", "32")
    run.to_end(counted(source.stream()))
    assert_same(run.result(spark), counted(source.batch()))
    before = sorted(run.checkpoint.rglob("*"))
    assert "no repartition is under way" in repartition(run.checkpoint, "--rollback")
    assert sorted(run.checkpoint.rglob("*")) == before


def test_a_file_sink_goes_on(
    spark: SparkSession, source: Source, tmp_path: Path, conf: Callable[[str, str], None]
) -> None:
    """Its log wants an entry of each batch when it is compacted: here at batches 1, 3, 5."""
    conf("spark.sql.streaming.fileSink.log.compactInterval", "2")
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"

    def run(*starts: int) -> None:
        source.add(*(events(start, 20) for start in starts))
        writer = source.stream().dropDuplicates(["id"]).writeStream.format("parquet")
        writer = writer.option("path", str(out)).option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(_TIMEOUT_S)

    run(0, 10, 20)
    log = entries(checkpoint, "commits")
    said = repartition(checkpoint, "--partitions", "3")
    assert f"2 to 3 partitions in batch {log[-1] + 1}," in said
    assert "once more with --file-sink DIRECTORY" in said
    # A directory of another query is left alone.
    other = tmp_path / "other/_spark_metadata"
    other.mkdir(parents=True)
    (other / "0").write_text("v1")
    words = ["--partitions", "3", "--file-sink", str(other.parent)]
    bad = subprocess.run(
        command(checkpoint, *words), check=False, capture_output=True, text=True, timeout=_TIMEOUT_S
    )
    assert bad.returncode == 2
    assert f"it ends at batch 0, and the query at batch {log[-1] + 1}\n" in bad.stderr
    assert [path.name for path in other.iterdir()] == ["0"]
    said = repartition(checkpoint, "--partitions", "3", "--file-sink", str(out))
    assert "3 partitions already" in said
    assert f"the log of the file sink has entries of batches {log[-1] + 1} now" in said
    run(30, 40, 50)
    assert_same(spark.read.parquet(str(out)), source.batch().dropDuplicates(["id"]))
