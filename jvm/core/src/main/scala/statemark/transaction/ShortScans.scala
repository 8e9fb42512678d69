package statemark.transaction

import java.util.Arrays
import scala.collection.mutable
import statemark.engine.RowCursor

/** The last scans of a base that found few rows. The operator of session windows reads the rows of a key twice, one or
  * two keys apart: to merge them, and to see which to write.
  *
  * ''Thread:'' one at a time.
  */
private[transaction] final class ShortScans {
  import ShortScans._

  private var last = Vector.empty[Found]
  // How often the base has changed.
  private var changes = 0L

  /** Returns the rows of `[begin, end)`: as they are remembered, or as `open` finds them, which is remembered. */
  def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]])(open: => RowCursor): RowCursor =
    (begin, end) match {
      case (Some(from), Some(to)) =>
        last.find(_.isOf(from, to)).fold[RowCursor](new Recording(from, to, open))(found =>
          new Replay(found.rows)
        )
      case _ => open
    }

  /** Forgets all of them, as the base has changed. */
  def forget(): Unit = {
    last = Vector.empty
    changes += 1
  }

  /** Passes rows on, and remembers them where the end comes soon. */
  private final class Recording(begin: Array[Byte], end: Array[Byte], rows: RowCursor)
      extends RowCursor {
    private val openedAt = changes
    private val seen = mutable.ArrayBuffer.empty[Row]
    private var isShort = true
    private var current = Option.empty[Row]

    override def keyOrEnd(): Option[Array[Byte]] =
      if (!isShort) rows.keyOrEnd()
      else {
        if (current.isEmpty)
          rows.keyOrEnd() match {
            case Some(key) => current = Some(Row(key, rows.value))
            case None => remember()
          }
        current.map(_.key)
      }

    override def value: Array[Byte] = if (isShort) current.get.value else rows.value

    override def next(): Unit = {
      if (isShort) {
        seen ++= current
        current = None
        isShort = seen.length <= MostRows && seen.last.value.length <= LongestValue
      }
      rows.next()
    }

    private def remember(): Unit = {
      isShort = false
      if (openedAt == changes) last = Found(begin, end, seen.toArray) +: last.take(Most - 1)
    }

    override def close(): Unit = rows.close()
  }
}

private object ShortScans {

  /** The number of scans that are remembered, and of rows of each. */
  private val Most = 8
  private val MostRows = 16

  /** The length of a value in bytes above which its scan is not remembered. */
  private val LongestValue = 4096

  private final case class Row(key: Array[Byte], value: Array[Byte])

  private final case class Found(begin: Array[Byte], end: Array[Byte], rows: Array[Row]) {
    def isOf(from: Array[Byte], to: Array[Byte]): Boolean =
      Arrays.equals(begin, from) && Arrays.equals(end, to)
  }

  private final class Replay(rows: Array[Row]) extends RowCursor {
    private var at = 0
    override def keyOrEnd(): Option[Array[Byte]] = Option.when(at < rows.length)(rows(at).key)
    override def value: Array[Byte] = rows(at).value
    override def next(): Unit = at += 1
    override def close(): Unit = ()
  }
}
