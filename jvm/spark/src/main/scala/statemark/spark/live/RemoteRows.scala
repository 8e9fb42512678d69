package statemark.spark.live

import statemark.IsolationLevel
import statemark.engine._
import statemark.transaction.Transaction

/** Rows of a store that is open in another JVM, at one version.
  *
  * ''Thread:'' one.
  *
  * @param ask sends a request to the JVM that holds the store, and waits
  */
final class RemoteRows(
    address: StoreAddress,
    at: VersionId,
    level: String,
    ask: StoreRequest => ReadReply
) extends BaseRows {
  import ReadRequest._

  private val asked = (address, at, level)

  /** None where the store is not open there any more. Of a version that is committed it is asked for once. */
  def describe(): Option[StoreState] = RemoteRows.states.get(asked).orElse {
    ask(Describe(address, at, level)) match {
      case ReadReply.NotHere => None
      case ReadReply.Description(state) =>
        if (level == IsolationLevel.ReadCommitted.name) RemoteRows.states.put(asked, state)
        Some(state)
      case other => throw failure(other)
    }
  }

  /** A transaction over the rows that is never committed. */
  def transaction(state: StoreState, mergeDelimiter: Array[Byte]): Transaction =
    Transaction.reading(this, state, mergeDelimiter)

  override def get(key: Array[Byte]): Option[Array[Byte]] = getAll(Seq(key)).head

  override def getAll(keys: Seq[Array[Byte]]): Seq[Option[Array[Byte]]] =
    if (keys.isEmpty) Nil
    else
      ask(Get(address, at, level, keys.toArray)) match {
        case ReadReply.Values(values) => values.toSeq
        case other => throw failure(other)
      }

  override def exist(keys: IndexedSeq[Array[Byte]], rowCount: Long): Array[Boolean] =
    getAll(keys).map(_.isDefined).toArray

  override def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): RowCursor =
    new RowCursor {
      private var page = next(begin)
      private var i = 0

      private def next(from: Option[Array[Byte]]): ReadReply.Page =
        ask(Scan(address, at, level, from, end, RemoteRows.PageBytes)) match {
          case page: ReadReply.Page => page
          case other => throw failure(other)
        }

      override def keyOrEnd(): Option[Array[Byte]] = page.rows.lift(i).map(_._1)
      override def value: Array[Byte] = page.rows(i)._2
      override def next(): Unit = {
        i += 1
        if (i == page.rows.length && !page.isLast) {
          // The first key above the last one.
          page = next(page.rows.lastOption.map(_._1 :+ 0.toByte))
          i = 0
        }
      }
      override def close(): Unit = ()
    }

  private def failure(reply: ReadReply): RuntimeException = reply match {
    case ReadReply.Failed(e) => e
    case ReadReply.NotHere =>
      RemoteRows.states.remove(asked)
      new StoreMovedException(address)
    case other => new IllegalStateException(s"$address answers ${other.getClass.getSimpleName}.")
  }
}

private object RemoteRows {
  private val PageBytes = 4 * 1024 * 1024
  private val MaxKnown = 256

  private type Asked = (StoreAddress, VersionId, String)

  private val states = new RecentlyUsed[Asked, StoreState](MaxKnown)
}
