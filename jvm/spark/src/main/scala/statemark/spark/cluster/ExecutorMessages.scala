package statemark.spark.cluster

import java.io.File
import org.apache.spark.sql.execution.streaming.state.ReadEndpoint
import statemark.engine.VersionId
import statemark.spark.checkpoint.StoreAddress
import statemark.spark.local.StoreDirectory

/** A store that a local directory holds.
  *
  * @param store operator, partition and name as they stand in the path
  * @param at the version that its owner noted last; None where it noted none, or has it open
  * @param usedAtMs when it went to disk last, in milliseconds since the epoch
  */
final case class LocalStore(
    queryId: String,
    store: String,
    at: Option[VersionId],
    usedAtMs: Long
)

/** Where an executor answers reads of its stores. */
final case class ReadServer(executorId: String, endpoint: ReadEndpoint)

/** What an executor's local directory holds when it starts. */
final case class LocalInventory(executorId: String, host: String, stores: Vector[LocalStore])

object LocalInventory {

  /** Returns what a local directory holds. */
  def of(executorId: String, host: String, root: File): LocalInventory = {
    val stores = StoreDirectory.all(root).map { home =>
      val store = home.getParentFile
      // The owner of an open store has reported it, as of a version that is older than the one on disk.
      val noted = if (StoreDirectory.isInUse(home)) None else StoreDirectory.notedVersion(home)
      LocalStore(
        store.getParentFile.getName,
        store.getName,
        noted.map(VersionId(_, None)),
        StoreDirectory.usedAtMs(home)
      )
    }
    LocalInventory(executorId, host, stores.toVector)
  }
}

/** A change of what an executor holds of a store, in a run of its query. */
final case class StoreReport(
    executorId: String,
    host: String,
    address: StoreAddress,
    queryId: String,
    change: StoreChange
)

/** What has become of a store on an executor. */
sealed trait StoreChange

object StoreChange {

  /** The store was loaded, or had fallen behind and was brought forward, and a batch goes on from it.
    * @param at the version that the batch builds on
    */
  final case class Opened(at: VersionId) extends StoreChange

  /** The store was closed or unloaded, and a later task finds it.
    * @param usedAtMs when it went to disk last, in milliseconds since the epoch
    */
  final case class Closed(at: VersionId, usedAtMs: Long) extends StoreChange

  /** The store was closed, and nothing is left of it. */
  case object Discarded extends StoreChange
}
