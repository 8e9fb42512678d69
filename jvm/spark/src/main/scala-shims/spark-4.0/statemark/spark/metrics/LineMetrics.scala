package statemark.spark.metrics

import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric
import statemark.spark.local.LoadFigures

/** Those of Spark's metrics of a RocksDB store that not every line of Spark has: none on Spark 4.0. */
object LineMetrics {
  @annotation.nowarn("msg=never used")
  def of(commit: CommitFigures, load: LoadFigures): Map[StateStoreCustomMetric, Long] = Map.empty
}
