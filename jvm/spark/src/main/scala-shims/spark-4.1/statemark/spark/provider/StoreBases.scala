package statemark.spark.provider

import org.apache.spark.sql.execution.streaming.state._
import statemark.spark.metrics.InstanceMetrics

/** Spark's interfaces as Statemark implements them on every line: what a line lacks is declared here,
  * what only one line has is answered here.
  */
trait StoreBase extends OlderStore

trait ProviderBase extends StateStoreProvider with SupportsFineGrainedReplay {
  override def supportedInstanceMetrics: Seq[StateStoreInstanceMetric] = InstanceMetrics.all

  /** How a store is handed out for reading: Spark upgrades the same object when it writes. */
  protected def handOut(store: StatemarkRocksDBStateStore): ReadStateStore = store

  override def getStore(version: Long, uniqueId: Option[String]): StateStore =
    getStore(version, uniqueId, forceSnapshotOnCommit = false, loadEmpty = false)

  override def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore,
      version: Long,
      uniqueId: Option[String]
  ): StateStore =
    upgradeReadStoreToWriteStore(readStore, version, uniqueId, forceSnapshotOnCommit = false)

  def getStore(
      version: Long,
      uniqueId: Option[String],
      forceSnapshotOnCommit: Boolean,
      loadEmpty: Boolean
  ): StateStore
  def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore,
      version: Long,
      uniqueId: Option[String],
      forceSnapshotOnCommit: Boolean
  ): StateStore

  /** The two halves of `doMaintenance`, of which Spark 4.3 has threads of their own. */
  def doSnapshotMaintenance(): Unit
  def doCleanupMaintenance(): Unit
}
