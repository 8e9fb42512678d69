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

/** Which store it is, of which run of a query, and where its files lie in the checkpoint location.
  *
  * @param givenConf of the session, with the id of the run in it
  */
final class StoreLocation(val storeId: StateStoreId, givenConf: Configuration) {
  val directory: Path = storeId.storeCheckpointLocation()
  val hadoopConf: Configuration = DirectLocalFs.settingsFor(directory, givenConf)
  val runId: UUID = StatemarkBridge.runId(hadoopConf)
  val providerId: StateStoreProviderId = StateStoreProviderId(storeId, runId)
  val address: StoreAddress = StoreAddress(runId, storeId)
}
