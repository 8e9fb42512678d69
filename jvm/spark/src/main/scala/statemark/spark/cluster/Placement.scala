package statemark.spark.cluster

import java.util.UUID
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.execution.streaming.state.{
  StateStoreId,
  StateStoreProviderId,
  StatemarkBridge
}
import scala.collection.mutable
import scala.util.Try
import statemark.spark.process.JvmState

/** Which executor holds what of the queries' local state, as the executors said when they started. Lives
  * in the driver.
  *
  * A preference costs locality and never progress: Spark waits `spark.locality.wait` for a busy executor
  * and passes over one that is gone.
  */
object Placement {
  private val inventories = JvmState.ofApplication(mutable.Map.empty[String, LocalInventory])
  private val placed = JvmState.ofApplication(mutable.Set.empty[UUID])

  def add(inventory: LocalInventory): Unit = synchronized {
    inventories()(inventory.executorId) = inventory
  }

  /** The executor to prefer for each store of a query: the one that used it last, dealt out where
    * several share a disk.
    */
  def of(queryId: String): Map[String, LocalInventory] = synchronized {
    val found = for {
      inventory <- inventories().values.toVector
      store <- inventory.stores if store.queryId == queryId
    } yield (store.store, (store.usedAtMs, inventory))
    found.groupMap(_._1)(_._2).map { case (store, holders) =>
      val newest = holders.map(_._1).max
      val last = holders.filter(_._1 == newest).map(_._2).distinct.sortBy(_.executorId)
      store -> last(Math.floorMod(store.hashCode, last.length))
    }
  }

  /** Tells Spark's coordinator where the stores of a run are, before its first batch is scheduled.
    * @param checkpoint root of the state in the checkpoint location
    */
  def seed(spark: SparkSession, queryId: String, runId: UUID, checkpoint: String): Unit =
    if (synchronized(placed().add(runId)))
      of(queryId).foreach { case (store, holder) =>
        storeId(checkpoint, store).foreach { id =>
          val provider = StateStoreProviderId(id, runId)
          StatemarkBridge.reportLocation(spark, provider, holder.host, holder.executorId)
        }
      }

  /** The inverse of how [[Homes]] names a store. */
  private def storeId(checkpoint: String, name: String): Option[StateStoreId] =
    name.split("-", 3) match {
      case Array(operator, partition, store) =>
        Try(StateStoreId(checkpoint, operator.toLong, partition.toInt, store)).toOption
      case _ => None
    }
}
