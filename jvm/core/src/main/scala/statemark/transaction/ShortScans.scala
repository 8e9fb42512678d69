package statemark.transaction

import java.util.Arrays
import scala.collection.mutable
import statemark.common.Bytes
import statemark.engine.RowCursor

/** The last scans of a base that found few rows. The operator of session windows reads the rows of a key twice, one or
  * two keys apart: to merge them, and to see which to write.
  *
  * ''Thread:'' one at a time.
  */
private[transaction] final class ShortScans {
  import ShortScans._

  // A ring.
  private val last = Array.fill(Most)(Nothing)
  private var turn = 0
  private var isEmpty = true
  private var newest = Option.empty[Recording]
  // How often the base has changed.
  private var changes = 0L

  /** Returns the rows of `[begin, end)`, where they are remembered. */
  def find(begin: Option[Array[Byte]], end: Option[Array[Byte]]): Option[RowCursor] = {
    var found = Option.empty[RowCursor]
    if (!isEmpty && begin.isDefined && end.isDefined) {
      var i = 0
      while (i < Most && found.isEmpty) {
        if (last(i).isOf(begin.get, end.get)) found = Some(new Replay(last(i).rows))
        i += 1
      }
    }
    found
  }

  /** Returns the rows of `[begin, end)` as `found`, which are remembered. */
  def record(
      begin: Option[Array[Byte]],
      end: Option[Array[Byte]],
      found: RowCursor
  ): RowCursor =
    if (begin.isEmpty || end.isEmpty) found
    else {
      newest.foreach(_.stop())
      val scan = new Recording(begin.get, end.get, found)
      newest = Some(scan)
      scan
    }

  /** Tells whether the base has a row of `key`, where one of them has shown it. */
  def tells(key: Array[Byte]): Option[Boolean] = {
    var i = if (isEmpty) Most else 0
    while (i < Most && !last(i).holds(key)) i += 1
    if (i < Most) Some(last(i).has(key)) else None
  }

  /** Forgets all of them, as the base has changed. */
  def forget(): Unit = {
    if (!isEmpty) last.indices.foreach(last(_) = Nothing)
    isEmpty = true
    changes += 1
  }

  private def remember(scan: Found): Unit = {
    last(turn) = scan
    turn = (turn + 1) % Most
    isEmpty = false
  }

  /** Passes rows on, and remembers them where the end comes soon and no other scan begins before. */
  private final class Recording(begin: Array[Byte], end: Array[Byte], rows: RowCursor)
      extends RowCursor {
    private val openedAt = changes
    private val seen = mutable.ArrayBuffer.empty[Row]
    private var bytes = begin.length + end.length
    private var isRecording = true

    override def keyOrEnd(): Option[Array[Byte]] = {
      val key = rows.keyOrEnd()
      if (isRecording && key.isEmpty) {
        if (openedAt == changes) remember(Found(begin, end, seen.toArray))
        stop()
      }
      key
    }

    override def value: Array[Byte] = rows.value

    override def next(): Unit = {
      if (isRecording) rows.keyOrEnd().foreach(record)
      rows.next()
    }

    private def record(key: Array[Byte]): Unit = {
      val row = Row(key, rows.value)
      bytes += row.key.length + row.value.length
      if (seen.length < MostRows && bytes <= MostBytes) seen += row else stop()
    }

    /** Goes on without being remembered: a scan that is left open holds no rows. */
    def stop(): Unit = {
      isRecording = false
      seen.clear()
    }

    override def close(): Unit = {
      stop()
      rows.close()
    }
  }
}

private object ShortScans {

  /** The number of scans that are remembered, and of rows of each. */
  private val Most = 8
  private val MostRows = 16

  /** The bytes of bounds, keys and values above which a scan is not remembered. */
  private val MostBytes = 16 * 1024

  private final case class Row(key: Array[Byte], value: Array[Byte])

  private final case class Found(begin: Array[Byte], end: Array[Byte], rows: Array[Row]) {
    def isOf(from: Array[Byte], to: Array[Byte]): Boolean =
      Arrays.equals(begin, from) && Arrays.equals(end, to)

    /** Tells whether it has looked at the place of a key. */
    def holds(key: Array[Byte]): Boolean =
      Arrays.compareUnsigned(begin, key) <= 0 && Arrays.compareUnsigned(key, end) < 0

    def has(key: Array[Byte]): Boolean = rows.exists(row => Arrays.equals(row.key, key))
  }

  private val Nothing = Found(Bytes.empty, Bytes.empty, Array.empty)

  private final class Replay(rows: Array[Row]) extends RowCursor {
    private var at = 0
    override def keyOrEnd(): Option[Array[Byte]] = Option.when(at < rows.length)(rows(at).key)
    override def value: Array[Byte] = rows(at).value
    override def next(): Unit = at += 1
    override def close(): Unit = ()
  }
}
