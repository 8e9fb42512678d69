package statemark.spark.conf

import org.apache.spark.sql.execution.streaming.state.{RocksDBConf, StateStoreConf}

/** The settings of one store.
  *
  * @param spark as the session has them
  * @param usesFamilies whether its rows are in column families
  */
final class StoreConf(val spark: StateStoreConf, val usesFamilies: Boolean) {

  /** How much native memory all stores of the executor may use. */
  val memory: NativeMemoryBound = NativeMemoryBound.of(RocksDBConf(spark), spark.sqlConfs)

  /** Those of RocksDB, with the memory that is in force. */
  val rocksDb: RocksDBConf = memory.conf

  /** Statemark's own. */
  val own: StoreSettings = StoreSettings.from(spark.sqlConfs, Runtime.getRuntime.maxMemory)

  /** Whether a version is so far from the newest snapshot that it builds on that it gets one of its own. */
  def isSnapshotDue(version: Long, lastSnapshot: Long): Boolean = {
    val versions = version - lastSnapshot
    versions > 0 && versions >= rocksDb.minDeltasForSnapshot
  }

  /** In checkpoint format v2 every version has an id of its own. */
  def usesCheckpointIds: Boolean = spark.enableStateStoreCheckpointIds
}
