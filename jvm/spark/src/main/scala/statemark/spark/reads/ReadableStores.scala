package statemark.spark.reads

import java.util.concurrent.ConcurrentHashMap
import java.util.UUID
import scala.jdk.CollectionConverters._
import statemark.common.ViewClosedException
import statemark.engine.VersionId
import statemark.{IsolationLevel, ReadView, TransactionalStore}
import statemark.spark.checkpoint.StoreAddress
import statemark.spark.errors.VersionGoneException

/** The stores of running queries that are open in this JVM, for readers beside the tasks.
  *
  * ''Thread:'' any.
  */
object ReadableStores {
  private val open = new ConcurrentHashMap[StoreAddress, ReadableStore]()

  /** @param isCommittedAttempt whether what the store has prepared is the attempt at that version that counts */
  private[spark] def add(
      address: StoreAddress,
      store: TransactionalStore,
      isCommittedAttempt: VersionId => Boolean
  ): Unit = open.put(address, new ReadableStore(store, isCommittedAttempt)): Unit

  private[spark] def remove(address: StoreAddress, store: TransactionalStore): Unit =
    open.computeIfPresent(address, (_, o) => Option.when(o.store ne store)(o).orNull): Unit

  /** Tells the stores of an operator about a read. */
  def note(note: ReadNote): Unit =
    open.forEach { (address, here) =>
      if (address.runId == note.runId && address.operator == note.operator)
        note match {
          case pin: ReadRequest.Pin => here.store.readers.planned(pin.read, pin.version)
          case narrow: ReadRequest.Narrow =>
            if (!narrow.partitions.contains(address.partition))
              here.store.readers.spared(narrow.read)
        }
    }

  /** Records that a planned read has ended in one store. */
  def ended(address: StoreAddress, read: UUID): Unit =
    Option(open.get(address)).foreach(_.store.readers.ended(read))

  /** Returns the partitions of an operator of which a store has begun a batch, or is through with it. */
  def begun(runId: UUID, operator: Long, batch: Long): Set[Int] =
    open.asScala.collect {
      case (address, here)
          if address.runId == runId && address.operator == operator && here.store.hasBegun(batch) =>
        address.partition
    }.toSet

  /** Returns where a store stands, as a view of `version` would; None as `view`.
    * @param ids one of which the version has in checkpoint format v2; none in v1
    * @throws VersionGoneException where the store is open here and has left the version
    */
  def offsets(
      address: StoreAddress,
      version: Long,
      ids: Set[String],
      level: IsolationLevel
  ): Option[StoreOffsets] = for {
    here <- Option(open.get(address))
    base = here.store.base
    at <- (base.at +: here.store.prepared.map(_.state.at).toSeq).find { at =>
      at.version == version && (ids.isEmpty || at.checkpointId.exists(ids))
    }.orElse(
      if (base.version > version)
        throw new VersionGoneException(address.toString, version, base.version)
      else None
    )
    view <- view(address, at, level)
  } yield try StoreOffsets(view.state.at, view.position)
  finally view.close()

  /** Opens a view of a store, which the caller closes. There are four outcomes:
    * - a view of version `at`, or at READ_UNCOMMITTED one of the staged rows;
    * - None where the store is not open in this JVM, or is being closed;
    * - None where the store is behind `at`, or has prepared another attempt at it: another executor has committed
    * `at`;
    * - an exception where the store does not keep `at` any more.
    *
    * @param at the version that the query has committed
    * @throws VersionGoneException where the store is open here and does not keep the version any more
    */
  def view(address: StoreAddress, at: VersionId, level: IsolationLevel): Option[ReadView] =
    Option(open.get(address)).filter(_.has(at, level)).flatMap { here =>
      try
        level match {
          case IsolationLevel.ReadUncommitted => Some(here.store.readOnly(level))
          case IsolationLevel.ReadCommitted => here.store.readAt(at).orElse(
              throw new VersionGoneException(address.toString, at.version, here.store.base.version)
            )
        }
      catch { case _: ViewClosedException => None } // it is being unloaded
    }
}

private final class ReadableStore(
    val store: TransactionalStore,
    isCommittedAttempt: VersionId => Boolean
) {
  // Readers come often, and to ask may be a call to another machine.
  @volatile private var known: Option[VersionId] = None

  /** Tells whether the store has gone through `at`, which the query has committed. */
  def has(at: VersionId, level: IsolationLevel): Boolean = {
    val newest = store.prepared.fold(store.base)(_.state).at
    if (newest.version != at.version || level == IsolationLevel.ReadUncommitted)
      newest.version >= at.version
    else isCommitted(at)
  }

  private def isCommitted(at: VersionId): Boolean =
    store.base.at == at || known.contains(at) || isCommittedAttempt(at) && {
      known = Some(at)
      true
    }
}
