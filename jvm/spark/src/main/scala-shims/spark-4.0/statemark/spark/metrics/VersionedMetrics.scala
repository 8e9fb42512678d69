package statemark.spark.metrics

import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric
import statemark.spark.local.LoadStats

/** Those of Spark's metrics of a RocksDB store that not every line of Spark has: none on Spark 4.0. */
object VersionedMetrics {
  @annotation.nowarn("msg=never used")
  def of(commit: CommitStats, load: LoadStats): Map[StateStoreCustomMetric, Long] = Map.empty
}
