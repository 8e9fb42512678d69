package statemark.spark.metrics

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider._
import statemark.spark.local.LoadStats

/** Those of Spark's metrics of a RocksDB store that not every line of Spark has. */
object VersionedMetrics {
  def of(commit: CommitStats, load: LoadStats): Map[StateStoreCustomMetric, Long] = Map(
    CUSTOM_METRIC_CHANGE_LOG_WRITER_COMMIT_TIME -> commit.changelogMs,
    CUSTOM_METRIC_SAVE_ZIP_FILES_TIME ->
      commit.snapshot.flatMap(_.files.saveZipFilesTimeMs).getOrElse(0L),
    CUSTOM_METRIC_LOAD_FROM_SNAPSHOT_TIME -> load.snapshotMs,
    CUSTOM_METRIC_LOAD_TIME -> load.totalMs,
    CUSTOM_METRIC_REPLAY_CHANGE_LOG -> load.replayMs,
    CUSTOM_METRIC_NUM_REPLAY_CHANGE_LOG_FILES -> load.replayed.toLong,
    CUSTOM_METRIC_LOADED_FROM_DFS -> (if (load.readsCheckpoint) 1L else 0L),
    CUSTOM_METRIC_NUM_SNAPSHOTS_AUTO_REPAIRED -> (if (load.isRepaired) 1L else 0L),
    CUSTOM_METRIC_FORCE_SNAPSHOT -> (if (commit.isSnapshotForced) 1L else 0L)
  )
}
