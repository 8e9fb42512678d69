"""What `make quick` runs besides all of core and all that needs no Spark: each feature once."""

from __future__ import annotations

#: Suites of the provider.
SUITES = ("statemark.spark.SnapshotSuite", "statemark.spark.RowEncodersSuite")

_E2E = {
    "test_provider.py": ("",),
    "test_operators.py": ("::test_aggregation[update]", "::test_stream_stream_join[inner]"),
    "test_transform_with_state.py": ("::test_initial_state[in_rows]",),
    "test_recovery.py": ("::test_failed_task_in_the_middle[aggregation-1]",),
    "test_restart.py": ("::test_another_process_opens_the_stores_of_the_one_before[format-v2]",),
    "test_live_docs.py": ("",),
    "test_connect.py": ("",),
    "test_checkpoint_commands.py": ("::test_inspect_for_people[format-v1]",),
    "test_switch.py": ("::test_from_hdfs_to_statemark_to_a_spark_without_our_jar",),
    "test_repartition.py": ("::test_transform_with_state_goes_on[format-v2]",),
    "test_submit.py": ("::test_spark_submit[flags_of_the_tool]",),
}
_CLUSTER = {"test_coming_home.py": ("::test_partitions_come_home[shared-2]",)}

#: Tests by the process that runs them, as arguments of pytest.
TESTS = {
    "e2e": tuple(f"tests/e2e/{file}{test}" for file, tests in _E2E.items() for test in tests),
    "cluster": tuple(
        f"tests/cluster/{file}{test}" for file, tests in _CLUSTER.items() for test in tests
    ),
}
#: Folders that run whole.
FOLDERS = ("tests", "tests/runner", "python/tests/unit")
