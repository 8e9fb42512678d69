package statemark.spark.live

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import statemark.{IsolationLevel, ReadView, TransactionalStore}
import statemark.common.ViewClosedException
import statemark.engine.VersionId

/** A store of one run of a query, wherever it is open. */
final case class StoreAddress(runId: UUID, operator: Long, partition: Int, name: String) {
  override def toString: String = s"$operator-$partition-$name of run $runId"
}

object StoreAddress {
  def apply(runId: UUID, id: StateStoreId): StoreAddress =
    StoreAddress(runId, id.operatorId, id.partitionId, id.storeName)
}

/** The stores of running queries that are open in this JVM, for readers beside the tasks.
  *
  * ''Thread:'' any.
  */
object OpenStores {
  private val open = new ConcurrentHashMap[StoreAddress, TransactionalStore]()

  private[spark] def add(address: StoreAddress, store: TransactionalStore): Unit =
    open.put(address, store): Unit

  private[spark] def remove(address: StoreAddress, store: TransactionalStore): Unit =
    open.remove(address, store): Unit

  /** A view of a store as `at`, or of what is staged; None where the store is not open here, or behind: then another
    * executor has committed `at`. The caller closes it.
    *
    * @param at the version that the query has committed
    * @throws VersionGoneException where the store is open here and the version is not to be had from it any more
    */
  def view(address: StoreAddress, at: VersionId, level: IsolationLevel): Option[ReadView] =
    Option(open.get(address)).filter(newest(_) >= at.version).flatMap { store =>
      try
        level match {
          case IsolationLevel.ReadUncommitted => Some(store.readOnly(level))
          case IsolationLevel.ReadCommitted => store.readAt(at).orElse(
              throw new VersionGoneException(address, at.version, store.base.version)
            )
        }
      catch { case _: ViewClosedException => None } // it is being unloaded
    }

  private def newest(store: TransactionalStore): Long =
    store.prepared.fold(store.base.version)(_.state.version)
}
