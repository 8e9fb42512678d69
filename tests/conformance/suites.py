"""Which of Spark's suites run, and which of their tests can pass on Spark's class alone."""

from __future__ import annotations

_SQL = "org.apache.spark.sql."

#: The long ones first, so that two processes end together.
_STREAMING = """
StreamingInnerJoinWithoutVCFSuite StreamingInnerJoinWithVCFSuite
StreamingOuterJoinWithoutVCFSuite StreamingOuterJoinWithVCFSuite
StreamingFullOuterJoinWithoutVCFSuite StreamingFullOuterJoinWithVCFSuite
StreamingLeftSemiJoinWithoutVCFSuite StreamingLeftSemiJoinWithVCFSuite
StreamingInnerJoinV4Suite StreamingOuterJoinV4Suite
StreamingFullOuterJoinV4Suite StreamingLeftSemiJoinV4Suite
TransformWithStateUnsafeRowSuite TransformWithStateAvroSuite
TransformWithListStateSuite TransformWithListStateTTLSuite
TransformWithMapStateSuite TransformWithMapStateTTLSuite TransformWithValueStateTTLSuite
TransformWithStateChainingSuite TransformWithStateInitialStateSuite
TransformWithStateInitialStateSuiteCheckpointV2
TransformWithStateValidationSuite TransformWithStateClusterSuite
RocksDBStateStoreStreamingAggregationSuite RocksDBStateStoreFlatMapGroupsWithStateSuite
RocksDBStateStoreStreamingDeduplicationSuite StreamingDeduplicationWithinWatermarkSuite
StreamingSessionWindowSuite FlatMapGroupsWithStateWithInitialStateSuite
FlatMapGroupsInPandasWithStateSuite MultiStatefulOperatorsSuite EventTimeWatermarkSuite
FlatMapGroupsInPandasWithStateDistributionSuite FlatMapGroupsWithStateDistributionSuite
StreamingAggregationDistributionSuite StreamingDeduplicationDistributionSuite
StreamingSessionWindowDistributionSuite
StreamingQueryOptimizationCorrectnessSuite DeprecatedStreamingAggregationSuite
StreamingQueryStatusAndProgressSuite
"""
_READERS = """
RocksDBStateDataSourceReadSuite RocksDBWithChangelogCheckpointStateDataSourceReaderSuite
RocksDBWithCheckpointV2StateDataSourceReaderSuite
RocksDBWithCheckpointV2StateDataSourceReaderSnapshotSuite
RocksDBWithChangelogCheckpointStateDataSourceChangeDataReaderSuite
RocksDBWithCheckpointV2StateDataSourceChangeDataReaderSuite
StateDataSourceTransformWithStateSuite StateDataSourceTransformWithStateSuiteCheckpointV2
StateDataSourceNegativeTestSuite StateDataSourceSQLConfigSuite
StateDataSourceNoEmptyDirCreationSuite
"""
_STATE = """
RocksDBStateStoreCheckpointFormatV2Suite RocksDBStateStoreSuite
RocksDBStateStoreIntegrationSuite StateStoreInstanceMetricSuite
StateStoreCoordinatorSuite StateStoreCoordinatorStreamingSuite StateStoreRDDSuite
SymmetricHashJoinStateManagerSuite SymmetricHashJoinStateManagerEventTimeInKeySuite
SymmetricHashJoinStateManagerEventTimeInValueSuite StreamingSessionWindowStateManagerSuite
OperatorStateMetadataSuite
ValueStateSuite ListStateSuite MapStateSuite TimerSuite StatefulProcessorHandleSuite
RocksDBTimestampEncoderOperationsSuite RocksDBStateStoreLockHardeningSuite
"""

#: Every suite that `make conformance` runs.
ALL = (
    *(f"{_SQL}streaming.{name}" for name in _STREAMING.split()),
    *(f"{_SQL}execution.datasources.v2.state.{name}" for name in _READERS.split()),
    *(f"{_SQL}execution.streaming.state.{name}" for name in _STATE.split()),
)

#: What `make test` runs: settings, direct construction, Python workers, executors of their own.
_QUICK = """
StreamingDeduplicationWithinWatermarkSuite FlatMapGroupsInPandasWithStateSuite
ValueStateSuite TimerSuite
"""
QUICK = tuple(name for name in ALL if name.rsplit(".", 1)[-1] in _QUICK.split())

_CHANGELOGS = (
    "Statemark writes changelogs whatever changelogCheckpointing.enabled says "
    "(docs/differences.md); the files are read either way: InterchangeSuite"
)
_METRICS = (
    "a list of all custom metrics (RocksDBStateStoreIntegrationSuite.scala:99-118); Statemark "
    "reports Spark's and its own beside them: tests/e2e/test_provider.py"
)

#: Why a test cannot pass on any class but Spark's, by suite and name of test: a cast or a name of
#: Spark's class with its place in Spark 4.2.0, or a difference that docs/differences.md names.
#: Nothing else belongs here.
EXCLUDED: dict[str, dict[str, str]] = {
    f"{_SQL}execution.streaming.state.RocksDBStateStoreIntegrationSuite": {
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
    f"{_SQL}execution.streaming.state.StateStoreCoordinatorSuite": {
        "SPARK-51358: Snapshot uploads in RocksDB are not reported if changelog checkpointing is "
        "disabled": "wants a snapshot in every commit where changelogs are off "
        f"(StateStoreCoordinatorSuite.scala:615-618). {_CHANGELOGS}",
    },
}
