package statemark.spark.provider

import org.apache.spark.sql.execution.streaming.state._
import statemark.spark.metrics.InstanceMetrics

/** Spark's interfaces as Statemark implements them on every line: what a line lacks is declared here,
  * what only one line has is answered here.
  */
trait StoreBase extends StateStore

trait ProviderBase extends StateStoreProvider with SupportsFineGrainedReplay {
  override def supportedInstanceMetrics: Seq[StateStoreInstanceMetric] = InstanceMetrics.all

  /** How a store is handed out for reading: Spark upgrades the same object when it writes. */
  protected def handOut(store: StatemarkRocksDBStateStore): ReadStateStore = store

  /** The two halves of `doMaintenance`, of which Spark 4.3 has threads of their own. */
  def doSnapshotMaintenance(): Unit
  def doCleanupMaintenance(): Unit
}
