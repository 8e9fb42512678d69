package statemark.spark.metrics

import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider._

/** Those of Spark's metrics of a RocksDB store that not every line of Spark has. */
object VersionedMetrics {
  val all: Seq[Metric[CommitFacts]] = Seq[Metric[CommitFacts]](
    Metric.ofSpark(CUSTOM_METRIC_CHANGE_LOG_WRITER_COMMIT_TIME)(_.times.changelogMs),
    Metric.ofSpark(CUSTOM_METRIC_SAVE_ZIP_FILES_TIME)(
      _.times.snapshot.flatMap(_.files.saveZipFilesTimeMs).getOrElse(0L)
    ),
    Metric.ofSpark(CUSTOM_METRIC_LOAD_FROM_SNAPSHOT_TIME)(_.load.snapshotMs),
    Metric.ofSpark(CUSTOM_METRIC_LOAD_TIME)(_.load.totalMs),
    Metric.ofSpark(CUSTOM_METRIC_REPLAY_CHANGE_LOG)(_.load.replayMs),
    Metric.ofSpark(CUSTOM_METRIC_NUM_REPLAY_CHANGE_LOG_FILES)(_.load.replayed.toLong)
  )
}
