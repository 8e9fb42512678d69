"""Which tests of Spark's suites can pass on Spark's class alone, and why."""

from __future__ import annotations

from itertools import product

_STATE = "org.apache.spark.sql.execution.streaming.state."

_CHANGELOGS = (
    "Statemark writes changelogs whatever changelogCheckpointing.enabled says "
    "(docs/differences.md); the files are read either way: InterchangeSuite"
)
_METRICS = (
    "a list of all custom metrics (RocksDBStateStoreIntegrationSuite.scala:99-118); Statemark "
    "reports Spark's and its own beside them: tests/e2e/test_provider.py"
)


def _variants(
    name: str, reason: str, *, families: str = "", changelogs: str = ""
) -> dict[str, str]:
    """A test of RocksDBStateStoreSuite under each name that it runs by.

    `families` are the values of colFamiliesEnabled; where there are none, the test has that switch
    and the first of two encodings not in its name.
    """
    ends = [
        f" ({changelog} changelog checkpointing) (encoding = {encoding})"
        for changelog in (changelogs or "with without").split()
        for encoding in ("unsaferow", "avro")
    ]
    if families:
        middles = [
            f" (encoding = {encoding}) - with colFamiliesEnabled={enabled}"
            for encoding in ("unsaferow", "avro")
            for enabled in families.split()
        ]
        ends = [middle + end for middle, end in product(middles, ends)]
    return {name + end: reason for end in ends}


def _place(line: int, why: str) -> str:
    return f"{why} (RocksDBStateStoreSuite.scala:{line})"


_CLASS_NAME = "wants the name of Spark's class in an error"

_WITHOUT_CHANGELOGS = (
    "SPARK-51358: Snapshot uploads in RocksDB are not reported if changelog checkpointing is "
    "disabled"
)

#: Excluded tests that pass all the same where maintenance happens to come at the right moment.
BY_CHANCE = frozenset({_WITHOUT_CHANGELOGS})

#: Why a test cannot pass on any class but Spark's, by suite and name of test: a cast or a name of
#: Spark's class with its place in Spark 4.2.0, or a difference that docs/differences.md names.
#: Nothing else belongs here.
EXCLUDED: dict[str, dict[str, str]] = {
    f"{_STATE}RocksDBStateStoreIntegrationSuite": {
        **{
            f"RocksDBStateStore - with colFamiliesEnabled={families} "
            "(without changelog checkpointing)": _CHANGELOGS
            for families in ("true", "false")
        },
        **{
            "SPARK-36236: query progress contains only the expected RocksDB store custom metrics "
            f"- with colFamiliesEnabled={families} ({changelogs} changelog checkpointing)": _METRICS
            for families in ("true", "false")
            for changelogs in ("with", "without")
        },
        "Streaming aggregation RocksDB State Store backward compatibility. "
        "(with changelog checkpointing)": _CHANGELOGS,
    },
    f"{_STATE}StateStoreCoordinatorSuite": {
        _WITHOUT_CHANGELOGS: "wants a snapshot in every commit where changelogs are off; "
        "Statemark's come from maintenance, every 100 ms in this test "
        f"(StateStoreCoordinatorSuite.scala:586-618). {_CHANGELOGS}",
    },
    f"{_STATE}RocksDBStateStoreSuite": {
        **_variants(
            "version encoding",
            _place(96, "reads Spark's RocksDB object; the bytes: InterchangeSuite"),
            families="true false",
        ),
        **_variants(
            "RocksDB confs are passed correctly from SparkSession to db instance",
            _place(
                158, "finds Spark's RocksDB object by reflection; the settings: QuerySettingsSuite"
            ),
        ),
        **_variants(
            "rocksdb file manager metrics exposed",
            _place(201, "a snapshot in every commit without changelogs") + f". {_CHANGELOGS}",
            families="false",
            changelogs="without",
        ),
        **_variants(
            "closing the iterator also closes the underlying rocksdb iterator",
            _place(
                1931,
                "wants a stack trace of RocksDB's class; a closed scan: TransactionalStoreSuite",
            ),
            families="true false",
        ),
        **_variants(
            "column family creation with invalid names",
            _place(2123, _CLASS_NAME),
            families="false",
        ),
        **_variants(
            "column family creation with reserved chars",
            _place(2161, _CLASS_NAME),
            families="false",
        ),
        **_variants(
            "operations on absent column family",
            _place(3167, _CLASS_NAME),
            families="false",
        ),
        **_variants(
            "verify that column family id is assigned correctly after removal",
            _place(
                68, "calls a private method of Spark's class; the ids: StoreContractSuite, model"
            ),
        ),
        **_variants(
            "SPARK-56476: RocksDBStateStore.creatingProvider tracks the originating provider",
            _place(2714, "casts to Spark's class; the behaviour is the suite's next test"),
        ),
        **_variants(
            "checksum files are also cleaned up during maintenance",
            _place(3463, "counts files after a snapshot of the last version")
            + "; Statemark takes the one before where that is due (docs/differences.md): "
            "SnapshotSuite",
        ),
        **_variants(
            "fileChecksumThreadPoolSize propagates to ChecksumCheckpointFileManager",
            _place(3558, "reads the file manager of Spark's RocksDB object"),
        ),
    },
}
