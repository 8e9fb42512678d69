package statemark.spark.reads

import statemark.engine._
import statemark.IsolationLevel
import statemark.spark.checkpoint.StoreAddress
import statemark.spark.errors.StoreMovedException
import statemark.spark.process.{JvmState, RecentlyUsed}
import statemark.transaction.{RowScan, Rows}

/** Rows of a store that is open in another JVM, at one version. The staged rows may change from request to request,
  * and the column families with them: an answer whose families do not agree with those of the first is refused.
  *
  * ''Thread:'' one.
  *
  * @param ask sends a request to the JVM that holds the store, and waits
  */
final class RemoteRows private (
    address: StoreAddress,
    at: VersionId,
    level: String,
    ask: StoreRequest => ReadReply,
    override val families: ColumnFamilies,
    val offsets: StoreOffsets
) extends Rows {
  import ReadRequest._

  private val expected =
    Option.when(level != IsolationLevel.ReadCommitted.name)(families)

  override def get(key: Array[Byte]): Option[Array[Byte]] = getAll(Seq(key)).next()

  /** Reads pages of rows, each when the iterator comes to it. */
  override def getAll(keys: Seq[Array[Byte]]): Iterator[Option[Array[Byte]]] = {
    val all = keys.toArray
    // The page after a full one asks for twice the keys that this one had: the rest would travel with every page.
    Iterator.unfold((0, all.length)) { case (from, count) =>
      Option.when(from < all.length) {
        val asked = all.slice(from, from + count)
        ask(Get(address, at, level, expected, asked, RemoteRows.PageBytes)) match {
          case ReadReply.Values(values) =>
            (values, (from + values.length, math.min(2 * values.length, all.length)))
          case other => throw failure(other)
        }
      }
    }.flatten
  }

  override def range(begin: Option[Array[Byte]], end: Option[Array[Byte]]): RowScan =
    new RowScan {
      private var page = fetched(begin)
      private var i = -1

      private def fetched(from: Option[Array[Byte]]): ReadReply.Page =
        ask(Scan(address, at, level, expected, from, end, RemoteRows.PageBytes)) match {
          case page: ReadReply.Page => page
          case other => throw failure(other)
        }

      override def next(): Boolean = {
        i += 1
        if (i == page.rows.length && !page.isLast) {
          // The first key above the last one.
          page = fetched(page.rows.lastOption.map(_._1 :+ 0.toByte))
          i = 0
        }
        i < page.rows.length
      }
      override def key: Array[Byte] = page.rows(i)._1
      override def value: Array[Byte] = page.rows(i)._2
      override def close(): Unit = ()
    }

  private def failure(reply: ReadReply): RuntimeException =
    RemoteRows.failure(reply, address, at, level)
}

object RemoteRows {
  private[spark] val PageBytes = 4 * 1024 * 1024
  private val MaxKnown = 256

  private type Asked = (StoreAddress, VersionId, String)

  private val known = JvmState.value(new RecentlyUsed[Asked, ReadReply.Description](MaxKnown))

  /** Returns the rows of a store at a version; None where the store is not open there any more. A version that is
    * committed is asked once for what it is.
    */
  def open(
      address: StoreAddress,
      at: VersionId,
      level: String,
      ask: StoreRequest => ReadReply
  ): Option[RemoteRows] = {
    val asked = (address, at, level)
    val described = known().get(asked).orElse {
      ask(ReadRequest.Describe(address, at, level)) match {
        case ReadReply.NotHere => None
        case found: ReadReply.Description =>
          if (level == IsolationLevel.ReadCommitted.name) known().put(asked, found)
          Some(found)
        case other => throw failure(other, address, at, level)
      }
    }
    described.map(of => new RemoteRows(address, at, level, ask, of.families, of.offsets))
  }

  private def failure(
      reply: ReadReply,
      address: StoreAddress,
      at: VersionId,
      level: String
  ): RuntimeException = reply match {
    case ReadReply.Failed(e) => e
    case ReadReply.NotHere =>
      known().remove((address, at, level))
      new StoreMovedException(address.toString)
    case other => new IllegalStateException(s"$address answers ${other.getClass.getSimpleName}.")
  }
}
