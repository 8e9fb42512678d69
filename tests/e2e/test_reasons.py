"""A query that fails says why, and what to do, in the first lines of its exception.

`CAUSES` has a row for each row of the messages in docs/errors.md: what ends a query so, or why no
query ends so.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import statemark
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf
from statemark import errors, settings
from support.processes import wait_for
from support.session import (
    IS_BEFORE_42,
    IS_FROM_43,
    LINE,
    ROOT,
    STATE_STORE,
    STATEMARK_PROVIDER,
    environment,
)
from support.streams import Source, events

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: The lines of an exception that a user reads; stacks, plans and offsets come later.
FIRST_LINES = 5
#: In the store of a task, version 2 is that of the second batch.
LOAD, COMMIT = r"\[CANNOT_LOAD_STATE_STORE\.\w+\] ", r"\[CANNOT_WRITE_STATE_STORE\.CANNOT_COMMIT\] "


class Trouble:
    """A count by key with one store, and what a test does to its files and settings."""

    mode = "update"

    def __init__(
        self, spark: SparkSession, source: Source, directory: Path, put: Callable[[str, str], None]
    ) -> None:
        self.spark, self.source, self.directory, self.put = spark, source, directory, put
        self.checkpoint = directory / "checkpoint"
        self.store = self.checkpoint / "state/0/0"
        self.hosts = 0
        self.local = directory
        self.move()

    def set(self, name: str, value: str) -> None:
        """Set one of Statemark's settings."""
        self.put(f"{settings.PREFIX}{name}", value)

    def move(self) -> None:
        """Go on where there is no local state."""
        self.hosts += 1
        self.local = self.directory / f"host{self.hosts}"
        self.set("localDir", str(self.local))

    def query(self) -> DataFrame:
        return self.source.stream().groupBy("key").agg(sf.count("*").alias("n"))

    def start(self) -> StreamingQuery:
        """Start it, with another batch to run."""
        self.source.add(events(50 * self.source.count, 50))
        writer = self.query().writeStream.outputMode(self.mode).format("noop")
        return writer.option("checkpointLocation", str(self.checkpoint)).start()

    def run(self, batches: int = 3) -> None:
        """Run some batches, stop, and go elsewhere.

        In one run: one that begins where another ended early takes a snapshot, which would do
        without the files that are damaged here.
        """
        query = self.start()
        query.processAllAvailable()
        for _ in range(batches - 1):
            self.source.add(events(50 * self.source.count, 50))
            query.processAllAvailable()
        query.stop()
        self.move()

    def end(self, query: StreamingQuery) -> tuple[StreamingQueryException, list[str]]:
        """Wait for the query's failure; return it, and the texts that a user sees of it."""
        with pytest.raises(StreamingQueryException) as raised:
            query.processAllAvailable()
        failed = query.exception()
        assert failed is not None
        return failed, [str(failed), str(raised.value)]

    def file(self, pattern: str) -> Path:
        return next(self.store.glob(pattern))

    def delete(self, pattern: str) -> None:
        file = self.file(pattern)
        file.unlink()
        _crc(file).unlink(missing_ok=True)

    def cut(self, pattern: str) -> None:
        file = self.file(pattern)
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


class Join(Trouble):
    """A join, whose rows are in column families: the first version has a snapshot."""

    mode = "append"

    def run(self, batches: int = 3) -> None:
        if LINE == "4.0" or IS_FROM_43:
            pytest.skip("new joins of Spark 4.0 and 4.3 have no column families on Statemark")
        self.put("spark.sql.streaming.join.stateFormatVersion", "3")
        super().run(batches)

    def query(self) -> DataFrame:
        left = self.source.stream().withWatermark("ts", "1 hour")
        other = self.source.stream().selectExpr("id AS other", "ts AS seen")
        return left.join(other.withWatermark("seen", "1 hour"), sf.expr("id = other AND ts = seen"))


class Distinct(Trouble):
    """Rows by their ids, for sinks that take only what is final."""

    mode = "append"

    def query(self) -> DataFrame:
        return self.source.stream().dropDuplicates(["id"])


@dataclass(frozen=True)
class Cause:
    """
    A way in which a query fails.

    Attributes
    ----------
    make
        Has a query fail, and returns the running one.
    said
        What its first lines say: patterns.
    kind
        What `error_of` makes of it; None where Spark alone knows the failure.
    query
        The query.
    """

    make: Callable[[Trouble], StreamingQuery]
    said: tuple[str, ...]
    kind: type[errors.EngineError] | None
    query: type[Trouble] = Trouble


def other_format(trouble: Trouble) -> StreamingQuery:
    trouble.run()
    trouble.put(f"{STATE_STORE}.checkpointFormatVersion", "2")
    return trouble.start()


def two_formats(trouble: Trouble) -> StreamingQuery:
    trouble.run(2)
    entry = trouble.checkpoint / "commits/1"
    entry.write_text('v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":[["x"]]}}')
    _crc(entry).unlink(missing_ok=True)
    trouble.put(f"{STATE_STORE}.checkpointFormatVersion", "2")
    return trouble.start()


def setting(name: str, value: str) -> Callable[[Trouble], StreamingQuery]:
    def make(trouble: Trouble) -> StreamingQuery:
        trouble.set(name, value)
        return trouble.start()

    return make


def no_directory(trouble: Trouble) -> StreamingQuery:
    trouble.local.write_text("a file")
    return trouble.start()


def linked_directory(trouble: Trouble) -> StreamingQuery:
    local = trouble.local
    trouble.run(1)
    (own,) = local.iterdir()
    own.symlink_to(own.rename(local.with_name("elsewhere")))
    trouble.set("localDir", str(local))
    return trouble.start()


def anothers_directory(trouble: Trouble) -> StreamingQuery:
    if os.getuid() != 0:
        pytest.skip("only root can give a directory to another user")
    local = trouble.local
    trouble.run(1)
    for path in (local, *local.rglob("*")):
        os.chown(path, 12345, 12345)
    trouble.set("localDir", str(local))
    return trouble.start()


def encrypted(trouble: Trouble) -> StreamingQuery:
    conf = environment(trouble.spark)
    conf.set("spark.io.encryption.enabled", "true")
    try:
        query = trouble.start()
        wait_for("the end of the query", lambda: not query.isActive)
    finally:
        conf.remove("spark.io.encryption.enabled")
    return query


def damaged_rows(trouble: Trouble) -> StreamingQuery:
    trouble.run()
    for sst in (trouble.store / "SSTs").glob("*.sst"):
        rows = bytearray(sst.read_bytes())
        rows[10] ^= 0xFF
        sst.write_bytes(rows)
        _crc(sst).unlink(missing_ok=True)
    trouble.delete("1.changelog")
    return trouble.start()


def unknown_family(trouble: Trouble) -> StreamingQuery:
    trouble.run()
    trouble.delete("1.zip")
    return trouble.start()


def without(pattern: str) -> Callable[[Trouble], StreamingQuery]:
    def make(trouble: Trouble) -> StreamingQuery:
        trouble.run()
        trouble.delete(pattern)
        return trouble.start()

    return make


def with_half_of(pattern: str, *gone: str) -> Callable[[Trouble], StreamingQuery]:
    def make(trouble: Trouble) -> StreamingQuery:
        trouble.run()
        trouble.cut(pattern)
        for other in gone:
            trouble.delete(other)
        return trouble.start()

    return make


def name_is_taken(trouble: Trouble) -> StreamingQuery:
    query = trouble.start()
    query.processAllAvailable()
    (trouble.store / "2.changelog/there").mkdir(parents=True)
    trouble.source.add(events(50, 50))
    return query


def no_changelog(trouble: Trouble) -> StreamingQuery:
    query = trouble.start()
    query.processAllAvailable()
    shutil.rmtree(trouble.store)
    trouble.store.write_text("a file")
    trouble.source.add(events(50, 50))
    return query


def no_room(trouble: Trouble) -> StreamingQuery:
    trouble.set("maxUncommittedBytes", "64k")
    query = trouble.start()
    query.processAllAvailable()
    lock = next(trouble.local.rglob("*lock*"))
    shutil.rmtree(lock.parent)
    lock.parent.write_text("a file")
    trouble.source.add(events(50, 4000, keys=4001))
    return query


DAMAGED = errors.CheckpointDamagedError
VERIFY = "`statemark verify`"
# Who refuses a session with another format depends on the line: Spark itself before 4.2, Statemark
# on 4.2, nobody on 4.3.
OTHER_FORMAT: tuple[Cause, ...] | str = (
    Cause(other_format, ("is 2, but", "Set it back to 1"), errors.InvalidInputError),
)
if IS_BEFORE_42:  # Spark looks at its commit log before any code of ours
    OTHER_FORMAT = (
        Cause(other_format, ("only supported log version is v2, but encountered v1",), None),
    )
elif IS_FROM_43:
    OTHER_FORMAT = "Spark 4.3 goes on in the checkpoint's format, whatever the session says"

#: By the text of the first column, with what it says of the cause where a row has several.
CAUSES: dict[str, tuple[Cause, ...] | str] = {
    "`ClassNotFoundException: statemark.spark.StatemarkStateStoreProvider`": (
        "of a driver without the jar, which can say nothing of ours: test_use"
    ),
    "`DATA_SOURCE_NOT_FOUND`, for `statemark` and `statemark-kafka`": "the same: test_use",
    "`executors of … do not have Statemark's jar`": "of a cluster: tests/cluster/test_jar.py",
    "`…checkpointFormatVersion is …, but the checkpoint … is of format …`": OTHER_FORMAT,
    "`The checkpoint … has two formats`": (
        Cause(two_formats, ("two formats", "go on from batch 0"), errors.InvalidInputError),
    ),
    "`Unknown setting … (its value is …)`": (
        Cause(setting("nonsense", "1"), ("nonsense", "localDir"), errors.InvalidInputError),
    ),
    "`… is '…', but it must be …`": (
        Cause(
            setting("maxUncommittedBytes", "much"),
            ("maxUncommittedBytes is 'much', but it must be",),
            errors.InvalidInputError,
        ),
    ),
    "`…localDir is '…', but … cannot be written`": (
        Cause(
            no_directory,
            (
                LOAD,
                "store: .*partition 0.*state/0/0",
                "reason: .*localDir is '.*host",
                "Name a dir",
            ),
            errors.InvalidInputError,
        ),
    ),
    "`Stores lie in …, the user's cache directory, … but … cannot be written`": (
        "of a user whose cache cannot be written any more: LocalRootSuite"
    ),
    "`… belongs to … and not to …`": (
        Cause(
            anothers_directory,
            (LOAD, "reason: .*belongs to 12345 and not to", "remedy: Remove it, or name another"),
            errors.InvalidInputError,
        ),
    ),
    "`… is a link to …`, `… is no directory`": (
        Cause(
            linked_directory,
            (LOAD, "reason: .* is a link to .*elsewhere", "remedy: Remove it, or name another"),
            errors.InvalidInputError,
        ),
    ),
    "`… spark.io.encryption.enabled is true`": (
        Cause(encrypted, ("encryption.enabled is true", "Leave one"), errors.InvalidInputError),
    ),
    "`RocksDB cannot read …`, `RocksDB cannot open …`": (
        Cause(
            damaged_rows,
            (LOAD, "reason: RocksDB cannot read .*host2", f"remedy: .*check the disk.*{VERIFY}"),
            errors.StoreUnusableError,
            Join,
        ),
    ),
    "`The changelog after version … writes to column family …`": (
        Cause(
            unknown_family,
            (LOAD, "reason: The changelog after .* column family", "remedy: Restore that file"),
            DAMAGED,
            Join,
        ),
    ),
    "`The snapshot of version … cannot lead to version …`": (
        "of a checkpoint without several snapshots: CheckpointDamageSuite"
    ),
    "`CANNOT_READ_STREAMING_STATE_FILE`": (
        Cause(
            without("2.changelog"),
            (LOAD, "2.changelog", f"remedy: bring the file back.*do not clear.*{VERIFY}"),
            DAMAGED,
        ),
    ),
    (
        "`The changelog … cannot be read`, `The snapshot … cannot be loaded`, "
        "`The snapshot of … is damaged`"
    ): (
        Cause(
            with_half_of("2.changelog"),
            (LOAD, "reason: The changelog 2.changelog cannot be read", f"remedy: .*{VERIFY}"),
            DAMAGED,
        ),
        Cause(
            with_half_of("1.zip", "1.changelog"),
            (LOAD, "reason: .*The snapshot 1.zip cannot be loaded", f"remedy: .*{VERIFY}"),
            DAMAGED,
            Join,
        ),
    ),
    (
        "`The checkpoint location is full`, `The local directory is full`, "
        "`… has used up its quota`, `… is read-only`"
    ): "of disks of their own: test_full_disk",
    "`Cannot perform commit during state checkpoint`": (
        Cause(
            name_is_taken,
            (COMMIT, "store: .*version 2", "reason: .*2.changelog", "remedy: see that what"),
            None,
        ),
    ),
    "`Failed to get the changelog writer`": (
        Cause(
            no_changelog,
            (LOAD, "store: .*version 2", "reason: .*state/0/0", "remedy: see that what"),
            None,
        ),
    ),
    "`Staged writes cannot be put aside in …`": (
        Cause(
            no_room,
            ("Staged writes cannot be put aside in .*host", "raise maxUncommittedBytes"),
            errors.ScratchFullError,
        ),
    ),
    "`A store has one open transaction and one prepared version at most`": (
        "a defect: no way to it is known"
    ),
    (
        "`The transaction on version … has ended`, `This scan is closed`, "
        "`The store in … is closed at version …`"
    ): "of code that goes on after its task: a task that was stopped ends no query with it",
    "`Invalid merge operator version`": "Spark refuses the setting before a query starts",
    "`The change feed cannot show a range delete`": "of a read with format `statestore`",
    (
        "`the driver has the jar of Statemark …, and the Python package is …`, "
        "`executor … has the jar of Statemark …, and the driver that of …`"
    ): "of two jars in one application: test_wheel, and test_jar on a cluster",
    "`STREAMING_REAL_TIME_MODE.SQL_CONFIGURATION_NOT_SUPPORTED`, for `providerClass`": (
        "Spark's own, of Spark 4.3: RealTimeSuite"
    ),
    "`… runs in real-time mode and has state, of which Statemark keeps none yet`": (
        "of Spark 4.3: RealTimeSuite"
    ),
    (
        "`… would keep its state in …: its session has …allowRealTime=true, and the step … "
        "did not run`"
    ): "a defect, made by hand in StreamStartSuite",
    "`UNSUPPORTED_FEATURE.STORE_BACKEND_NOT_SUPPORTED_FOR_TWS`": (
        "Spark's own, in sessions without our extension: test_fresh_session"
    ),
    "`CANNOT_LOAD_STATE_STORE.UNRELEASED_THREAD_ERROR`": (
        "of a task that another one waits for: StoreFailuresSuite"
    ),
    (
        "`SettingsError`, `JarNotFoundError`, `SparkVersionError`, `MissingDependencyError`, "
        "`ConnectError`, `SessionRunningError` (Python)"
    ): "of the package, before a query starts",
}
PROVOKED = [(row, i) for row, found in CAUSES.items() if isinstance(found, tuple)
            for i in range(len(found))]  # fmt: skip


@pytest.fixture
def put(provider: str, conf: Callable[[str, str], None]) -> Callable[[str, str], None]:
    if provider != STATEMARK_PROVIDER:
        pytest.skip("Spark's provider has none of these errors")
    conf("spark.sql.shuffle.partitions", "1")
    conf(f"{STATE_STORE}.autoSnapshotRepair.enabled", "true")
    return conf


@pytest.mark.parametrize(
    ("row", "number"), PROVOKED, ids=[re.sub(r"\W+", "-", row)[:40] for row, _ in PROVOKED]
)
def test_the_reason_arrives(
    spark: SparkSession,
    source: Source,
    tmp_path: Path,
    put: Callable[[str, str], None],
    row: str,
    number: int,
) -> None:
    cause = CAUSES[row][number]
    assert isinstance(cause, Cause)
    trouble = cause.query(spark, source, tmp_path, put)
    failed, texts = trouble.end(cause.make(trouble))
    for text in texts:
        first = "\n".join(text.splitlines()[:FIRST_LINES])
        assert [said for said in cause.said if not re.search(said, first)] == [], first
    error = statemark.error_of(failed)
    assert (type(error) if error else None) is cause.kind, first


@pytest.mark.parametrize("sink", ["file", "foreach-batch"])
def test_the_reason_arrives_through_a_sink(
    spark: SparkSession,
    source: Source,
    tmp_path: Path,
    put: Callable[[str, str], None],
    sink: str,
) -> None:
    """Sinks run the tasks of a stateful operator inside their own."""
    trouble = Distinct(spark, source, tmp_path, put)
    trouble.run()
    trouble.cut("2.changelog")
    source.add(events(0, 50))
    writer = trouble.query().writeStream
    if sink == "file":
        writer = writer.format("json").option("path", str(tmp_path / "out"))
    else:
        writer = writer.foreachBatch(
            lambda batch, _: batch.write.format("noop").mode("append").save()
        )
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    failed, (text, _) = trouble.end(writer.start())
    assert "reason: The changelog 2.changelog cannot be read" in text.partition("=== Stream")[0]
    if sink == "file":
        assert type(statemark.error_of(failed)) is DAMAGED


def test_every_message_of_the_documents_has_its_row() -> None:
    page = (ROOT / "docs/errors.md").read_text()
    table = page.partition("\n## Messages\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*?) \| .* \|$", table, re.MULTILINE)
    assert rows[1:] == [*CAUSES]


def _crc(file: Path) -> Path:
    return file.with_name(f".{file.name}.crc")
