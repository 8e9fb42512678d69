package statemark.spark.reads

import java.util.concurrent.ConcurrentHashMap
import java.util.UUID
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
