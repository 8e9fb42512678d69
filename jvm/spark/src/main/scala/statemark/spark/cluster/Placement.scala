package statemark.spark.cluster

import java.util.UUID
import org.apache.spark.SparkContext
import org.apache.spark.scheduler.{SparkListener, SparkListenerExecutorRemoved}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.execution.streaming.state.{
  StateStoreId,
  StateStoreProviderId,
  StatemarkBridge
}
import scala.collection.mutable
import scala.util.Try
import statemark.engine.VersionId
import statemark.spark.process.JvmState
import statemark.spark.process.Relocated.StatefulOperatorStateInfo

/** Which executor holds what of the queries' local state: what executors had when they started, and what they have
  * reported of each store since. Lives in the driver.
  *
  * A preference costs locality and never progress: Spark waits `spark.locality.wait` for a busy executor
  * and passes over one that is gone. A wrong one costs a restore.
  *
  * ''Thread:'' any.
  */
object Placement {

  /** What an executor holds of a store.
    *
    * @param runId the run that has opened it last; None where none has in this application
    */
  private[spark] final case class Holder(
      executorId: String,
      host: String,
      at: Option[VersionId],
      usedAtMs: Long,
      runId: Option[UUID] = None,
      isOpen: Boolean = false
  )

  // By query and store, and then by executor.
  private val held =
    JvmState.ofApplication(mutable.Map.empty[(String, String), Map[String, Holder]])
  private val placed = JvmState.ofApplication(mutable.Set.empty[UUID])

  /** Notes what an executor has when it starts: of several homes of a store the newest. */
  def add(inventory: LocalInventory): Unit = synchronized {
    import inventory.{executorId, host}
    inventory.stores.groupBy(local => (local.queryId, local.store)).foreach { case (store, homes) =>
      val newest = homes.maxBy(local => (versionOf(local.at), local.usedAtMs))
      note(store, Holder(executorId, host, newest.at, newest.usedAtMs))
    }
  }

  /** Notes what has become of a store on an executor. Of two runs that had it open there, the later one counts: Spark
    * closes the stores of a run up to a minute after its end.
    */
  def add(report: StoreReport): Unit = synchronized {
    import report.{address, executorId, host}
    val store = (report.queryId, s"${address.operator}-${address.partition}-${address.name}")
    val isOfLater = holders(store).get(executorId).exists(!_.runId.contains(address.runId))
    report.change match {
      case StoreChange.Opened(at) =>
        note(store, Holder(executorId, host, Some(at), 0, Some(address.runId), isOpen = true))
      case StoreChange.Closed(at, usedAtMs) if !isOfLater =>
        note(store, Holder(executorId, host, Some(at), usedAtMs, Some(address.runId)))
      case StoreChange.Discarded if !isOfLater => forget(store, executorId)
      case _ => ()
    }
  }

  /** Lets the driver forget executors that are gone. */
  def watch(context: SparkContext): Unit =
    if (!context.isLocal) context.addSparkListener(new SparkListener {
      override def onExecutorRemoved(removed: SparkListenerExecutorRemoved): Unit =
        Placement.removed(removed.executorId)
    })

  /** Forgets an executor that is gone. */
  private[spark] def removed(executorId: String): Unit = synchronized {
    held().keys.toVector.foreach(forget(_, executorId))
  }

  /** Returns the executor to prefer for each store of a query: the one with the newest version that leads to the one
    * that is asked for. Of several the one that has it open, then the one that used it last; where several share a disk,
    * stores are dealt out.
    *
    * @param asked the version that a run asks for, by the name of a store
    */
  private[spark] def of(queryId: String, asked: String => AskedVersion): Map[String, Holder] =
    synchronized {
      held().collect { case ((`queryId`, store), executors) =>
        val wanted = asked(store)
        def rank(holder: Holder) = {
          import holder.{at, isOpen, usedAtMs}
          (at.forall(wanted.mayFollow), versionOf(at), isOpen, usedAtMs)
        }
        val newest = executors.values.map(rank).max
        val best = executors.values.filter(rank(_) == newest).toVector.sortBy(_.executorId)
        store -> best(Math.floorMod(store.hashCode, best.length))
      }.toMap
    }

  /** Tells Spark's coordinator where the stores of a run are, before its first batch is scheduled.
    * @param operators the stateful operators of the query, of one run
    */
  def seed(spark: SparkSession, queryId: String, operators: Seq[StatefulOperatorStateInfo]): Unit =
    operators.headOption.filter(first => synchronized(placed().add(first.queryRunId))).foreach {
      first =>
        val operator = operators.map(info => info.operatorId -> info).toMap
        def idsOf(store: StateStoreId) = for {
          info <- operator.get(store.operatorId)
          partitions <- info.stateStoreCkptIds
          ids <- partitions.lift(store.partitionId)
        } yield ids.toSeq
        def asked(name: String) = AskedVersion(
          first.storeVersion,
          storeId(first.checkpointLocation, name).flatMap(idsOf).getOrElse(Nil)
        )
        for {
          (name, holder) <- of(queryId, asked)
          store <- storeId(first.checkpointLocation, name)
        } {
          val provider = StateStoreProviderId(store, first.queryRunId)
          StatemarkBridge.reportLocation(spark, provider, holder.host, holder.executorId)
        }
    }

  private def holders(store: (String, String)): Map[String, Holder] =
    held().getOrElse(store, Map.empty)

  private def note(store: (String, String), holder: Holder): Unit =
    held()(store) = holders(store) + (holder.executorId -> holder)

  private def forget(store: (String, String), executorId: String): Unit = {
    val rest = holders(store) - executorId
    if (rest.isEmpty) held().remove(store): Unit else held()(store) = rest
  }

  private def versionOf(at: Option[VersionId]): Long = at.fold(-1L)(_.version)

  /** The inverse of how [[Homes]] names a store. */
  private def storeId(checkpoint: String, name: String): Option[StateStoreId] =
    name.split("-", 3) match {
      case Array(operator, partition, store) =>
        Try(StateStoreId(checkpoint, operator.toLong, partition.toInt, store)).toOption
      case _ => None
    }
}

/** The version that a run asks for.
  *
  * @param ids the checkpoint ids of that version in format v2, of all stores of the partition; empty where unknown
  */
private[spark] final case class AskedVersion(version: Long, ids: Seq[String]) {

  /** Tells whether this version may come after `at` in one history. */
  def mayFollow(at: VersionId): Boolean =
    at.version < version ||
      at.version == version && (ids.isEmpty || at.checkpointId.forall(ids.contains))
}
