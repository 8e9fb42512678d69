package statemark.spark.metrics

import org.apache.spark.sql.execution.streaming.state._

/** Spark 4.0 shows no metrics store by store. */
object InstanceMetrics {

  /** What a commit reports. */
  @annotation.nowarn("msg=never used")
  def metrics(
      storeId: StateStoreId,
      keys: Long,
      memoryBytes: Long,
      custom: Map[StateStoreCustomMetric, Long],
      commitMs: Long,
      lastUploaded: Long
  ): StateStoreMetrics = StateStoreMetrics(keys, memoryBytes, custom)

  /** What a store reports that did not commit. */
  val none: StateStoreMetrics = StateStoreMetrics(0, 0, Map.empty)
}
