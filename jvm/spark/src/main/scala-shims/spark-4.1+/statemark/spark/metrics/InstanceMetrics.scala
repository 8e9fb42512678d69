package statemark.spark.metrics

import org.apache.spark.SparkContext
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider._

/** Latency of the slowest commit of a store, 1 ms at least. Spark shows the instances with the largest
  * values.
  */
final case class CommitLatencyMaxMetric(
    partitionId: Option[Int] = None,
    storeName: String = StateStoreId.DEFAULT_STORE_NAME
) extends StateStoreInstanceMetric {
  override def metricPrefix: String = MetricLabel.CommitLatencyMax.name
  override def descPrefix: String = MetricLabel.CommitLatencyMax.description
  override def initValue: Long = 0
  override def createSQLMetric(sparkContext: SparkContext): SQLMetric =
    SQLMetrics.createSizeMetric(sparkContext, desc, initValue)
  override def ordering: Ordering[Long] = Ordering.Long.reverse
  override def ignoreIfUnchanged: Boolean = true
  override def combine(originalMetric: SQLMetric, value: Long): Long =
    math.max(originalMetric.value, value)
  override def withNewId(partitionId: Int, storeName: String): CommitLatencyMaxMetric =
    copy(Some(partitionId), storeName)
}

/** Metrics that Spark shows store by store, where they stand out. */
object InstanceMetrics {
  private val commitLatencyMax = CommitLatencyMaxMetric()

  val all: Seq[StateStoreInstanceMetric] = ALL_INSTANCE_METRICS :+ commitLatencyMax

  /** What a commit reports. */
  def metrics(
      storeId: StateStoreId,
      keys: Long,
      memoryBytes: Long,
      custom: Map[StateStoreCustomMetric, Long],
      commitMs: Long,
      lastUploaded: Long
  ): StateStoreMetrics = StateStoreMetrics(
    keys,
    memoryBytes,
    custom,
    Map(
      CUSTOM_INSTANCE_METRIC_SNAPSHOT_LAST_UPLOADED
        .withNewId(storeId.partitionId, storeId.storeName) -> lastUploaded,
      // Spark leaves a value out that is still the initial 0.
      commitLatencyMax.withNewId(storeId.partitionId, storeId.storeName) -> math.max(commitMs, 1)
    )
  )

  /** What a store reports that did not commit. */
  val none: StateStoreMetrics = StateStoreMetrics(0, 0, Map.empty, Map.empty)
}
