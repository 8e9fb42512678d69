package statemark.spark.checkpoint

import java.util.UUID
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.execution.streaming.state.{
  StateStoreId,
  StateStoreProviderId,
  StatemarkBridge
}

/** A store of one run of a query, wherever it is open. */
final case class StoreAddress(runId: UUID, operator: Long, partition: Int, name: String) {
  override def toString: String = s"$operator-$partition-$name of run $runId"
}

object StoreAddress {
  def apply(runId: UUID, id: StateStoreId): StoreAddress =
    StoreAddress(runId, id.operatorId, id.partitionId, id.storeName)
}

/** The id of a store and of the run of its query, and the place of its files in the checkpoint location.
  *
  * @param givenConf the session's settings, with the id of the run in them
  */
final class StoreLocation(val storeId: StateStoreId, givenConf: Configuration) {
  val directory: Path = storeId.storeCheckpointLocation()
  val hadoopConf: Configuration = DirectLocalFs.settingsFor(directory, givenConf)
  val runId: UUID = StatemarkBridge.runId(hadoopConf)
  val providerId: StateStoreProviderId = StateStoreProviderId(storeId, runId)
  val address: StoreAddress = StoreAddress(runId, storeId)

  /** Returns the store as messages name it. */
  override def toString: String =
    s"operator ${storeId.operatorId}, partition ${storeId.partitionId}, store ${storeId.storeName} in $directory"
}
