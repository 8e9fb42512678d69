package statemark.spark.reads

import java.util.UUID
import java.util.concurrent.atomic.AtomicBoolean
import statemark.common.Position
import statemark.engine.{ColumnFamilies, VersionId}
import statemark.{IsolationLevel, ReadView}
import statemark.spark.checkpoint.StoreAddress
import statemark.spark.errors.OffsetsDifferException
import statemark.spark.process.{JvmState, JvmValue}
import statemark.transaction.Rows

/** Marks the current thread as reading a running query. The reader sets it, and the provider that Spark creates on
  * this thread picks it up in `init`.
  *
  * @param keys the keys that the reader wants; None for all
  * @param read the id of the read, where the stores were told of it
  * @param expected source offsets that the query's offset log has for the version that is read
  * @param loads whether a store that is open nowhere is loaded from the checkpoint for the read, as a task does
  */
final case class LiveRead(
    level: IsolationLevel,
    keys: Option[LiveKeys] = None,
    read: Option[UUID] = None,
    expected: Option[Position] = None,
    loads: Boolean = true
) {

  /** Runs `body`; providers that it makes read beside the query. */
  def during[A](body: => A): A = {
    val before = LiveRead.running.get
    LiveRead.running.set(Some(this))
    try body
    finally LiveRead.running.set(before)
  }

  /** Returns the rows of a store, where it is open in this JVM, or in one that the driver knows; the caller closes
    * them. None where it is open nowhere, and is to be loaded: its offsets are those of the log then.
    * @throws OffsetsDifferException where it holds other source offsets than the query's log has for `at`
    * @throws StoreClosed where it is open nowhere, and is not to be loaded
    */
  private[spark] def open(address: StoreAddress, at: VersionId): Option[LiveReads] = {
    val ended = ReadFigures.current().begun(level)
    ReadableStores.view(address, at, level).map { view =>
      def end(): Unit = {
        endOf(view, address)
        ended()
      }
      try check(address, at, StoreOffsets(view.state.at, view.position))
      catch {
        case e: Throwable =>
          end()
          throw e
      }
      new LiveReads(view, keys, () => end())
    }.orElse {
      for {
        ask <- LiveRead.remote()
        rows <- RemoteRows.open(address, at, level.name, ask)
      } yield {
        check(address, at, rows.offsets)
        new LiveReads(rows, keys, ended)
      }
    }.orElse(if (loads) None else throw new StoreClosed(address))
  }

  private def check(address: StoreAddress, at: VersionId, found: StoreOffsets): Unit = for {
    logged <- expected
    held <- found.position
    if found.at == at
    differences = held.differences(logged)
    if differences.nonEmpty
  } throw new OffsetsDifferException(
    address.toString,
    at.version,
    differences,
    OffsetsDifferException.OfRead
  )

  private def endOf(view: ReadView, address: StoreAddress): Unit = {
    view.close()
    read.foreach(ReadableStores.ended(address, _))
  }
}

/** A store is open nowhere, and its reader loads none. No user sees it: the reader has a task read the store. */
private[spark] final class StoreClosed(address: StoreAddress)
    extends RuntimeException(s"$address is open nowhere.", None.orNull, false, false)

/** Rows of a running query's store. */
private[spark] final class LiveReads(
    val rows: Rows,
    val keys: Option[LiveKeys],
    end: () => Unit
) extends AutoCloseable {
  private val isOpen = new AtomicBoolean(true)
  @volatile private var families_ = rows.families.copy(maxId = LiveReads.FirstId)

  def families: ColumnFamilies = families_

  /** Adds a column family where it is absent, as Spark's readers create those that they read: it is empty, also where
    * the store's owner creates others meanwhile, as it has an id that no owner gives.
    */
  def createColumnFamily(name: String): Unit =
    families_ = families_.created(name, isInternal = false)

  /** Ends the read. Idempotent. */
  override def close(): Unit = if (isOpen.getAndSet(false)) end()
}

private[spark] object LiveReads {

  /** Stores count column families from 1, and have a few. */
  val FirstId: Short = 1 << 14
}

object LiveRead {
  private val running = ThreadLocal.withInitial[Option[LiveRead]](() => None)

  /** Asks the JVM where a store is open; NotHere where none is known. The plugin sets it. */
  private[spark] val remote: JvmValue[Option[StoreRequest => ReadReply]] = JvmState.value(None)

  private[spark] def current: Option[LiveRead] = running.get
}
