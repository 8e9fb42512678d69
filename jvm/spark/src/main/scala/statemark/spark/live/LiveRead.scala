package statemark.spark.live

import java.util.UUID
import statemark.{IsolationLevel, ReadView}
import statemark.engine.VersionId
import statemark.transaction.Transaction

/** That the thread reads a running query, and how: said by who reads to the provider that Spark makes for it on the
  * way.
  *
  * @param keys that the reader wants, where it does not want all
  * @param read which the stores were told of, where they were
  */
final case class LiveRead(
    level: IsolationLevel,
    keys: Option[LiveKeys] = None,
    read: Option[UUID] = None
) {

  /** Runs `body`; providers that it makes read beside the query. */
  def during[A](body: => A): A = {
    val before = LiveRead.running.get
    LiveRead.running.set(Some(this))
    try body
    finally LiveRead.running.set(before)
  }

  /** The rows of a store, where it is open in this JVM, or in one that the driver knows; the caller closes them. */
  private[spark] def open(
      address: StoreAddress,
      at: VersionId,
      mergeDelimiter: Array[Byte]
  ): Option[LiveReads] =
    OpenStores.view(address, at, level).map(view =>
      new LiveReads(view.transaction(), keys, () => end(view, address))
    ).orElse {
      for {
        ask <- LiveRead.remote
        rows = new RemoteRows(address, at, level.name, ask)
        state <- rows.describe()
      } yield new LiveReads(rows.transaction(state, mergeDelimiter), keys, () => ())
    }

  private def end(view: ReadView, address: StoreAddress): Unit = {
    view.close()
    read.foreach(OpenStores.ended(address, _))
  }
}

/** Rows of a running query's store, as a transaction that is never committed. */
private[spark] final class LiveReads(
    val transaction: Transaction,
    val keys: Option[LiveKeys],
    end: () => Unit
) extends AutoCloseable {
  override def close(): Unit = end()
}

object LiveRead {
  private val running = ThreadLocal.withInitial[Option[LiveRead]](() => None)

  /** Asks the JVM where a store is open; NotHere where none is known. Set by the plugin. */
  @volatile private[spark] var remote: Option[StoreRequest => ReadReply] = None

  private[spark] def current: Option[LiveRead] = running.get
}
