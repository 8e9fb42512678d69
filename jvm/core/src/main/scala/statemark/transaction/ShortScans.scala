package statemark.transaction

import java.util.Arrays
import statemark.common.Bytes
import statemark.engine.RowCursor

/** The last scans of a base that found few rows. The operator of session windows reads the rows of a key twice, one or
  * two keys apart: to merge them, and to see which to write. What is found is read when the scan is opened, so that
  * nothing of the base is held for it; a longer scan that is left open holds its first rows.
  *
  * ''Thread:'' one at a time.
  */
private[transaction] final class ShortScans {
  import ShortScans._

  // A ring.
  private val last = Array.fill(Most)(NoScan)
  private var turn = 0
  private var isEmpty = true

  /** Returns the rows of `[begin, end)`, where they are remembered. */
  def find(begin: Option[Array[Byte]], end: Option[Array[Byte]]): Option[RowCursor] = {
    var i = if (isEmpty || begin.isEmpty || end.isEmpty) Most else 0
    while (i < Most && !last(i).isOf(begin.get, end.get)) i += 1
    if (i < Most) Some(new FoundRows(last(i).rows)) else None
  }

  /** Returns the rows of `[begin, end)`, which `base` stands at, and remembers them where they are few. Then the base is
    * closed.
    */
  def record(
      begin: Option[Array[Byte]],
      end: Option[Array[Byte]],
      base: RowCursor
  ): RowCursor =
    if (begin.isEmpty || end.isEmpty || begin.get.length + end.get.length > MostBytes) base
    else
      try read(begin.get, end.get, base)
      catch {
        case e: Throwable =>
          base.close()
          throw e
      }

  private def read(begin: Array[Byte], end: Array[Byte], base: RowCursor): RowCursor = {
    val rows = new Array[Row](MostRows)
    var count = 0
    var left = MostBytes - begin.length - end.length
    var key = base.keyOrEnd()
    while (key.isDefined && count < MostRows && left >= 0) {
      val row = Row(key.get, base.value)
      left -= row.key.length + row.value.length
      // One that is too long stays where it is.
      if (left >= 0) {
        rows(count) = row
        count += 1
        base.next()
        key = base.keyOrEnd()
      }
    }
    val found = new FoundRows(Arrays.copyOf(rows, count))
    if (key.isEmpty) {
      remember(Found(begin, end, found.rows))
      base.close()
      found
    } else if (count == 0) base
    else new RowsAhead(found, base)
  }

  /** Tells whether the base has a row of `key`, where one of them has shown it. */
  def tells(key: Array[Byte]): Option[Boolean] = {
    var i = if (isEmpty) Most else 0
    while (i < Most && !last(i).holds(key)) i += 1
    if (i < Most) Some(last(i).has(key)) else None
  }

  /** Forgets all of them, as the base has changed. */
  def forget(): Unit = {
    if (!isEmpty) last.indices.foreach(last(_) = NoScan)
    isEmpty = true
  }

  private def remember(scan: Found): Unit = {
    last(turn) = scan
    turn = (turn + 1) % Most
    isEmpty = false
  }
}

private[transaction] object ShortScans {

  /** The number of scans that are remembered, and of rows of each. */
  private val Most = 8
  private val MostRows = 8

  /** The bytes of bounds, keys and values up to which a scan is remembered. */
  private val MostBytes = 16 * 1024

  final case class Row(key: Array[Byte], value: Array[Byte])

  private final case class Found(begin: Array[Byte], end: Array[Byte], rows: Array[Row]) {
    def isOf(from: Array[Byte], to: Array[Byte]): Boolean =
      Arrays.equals(begin, from) && Arrays.equals(end, to)

    /** Tells whether it has looked at the place of a key. */
    def holds(key: Array[Byte]): Boolean =
      Arrays.compareUnsigned(begin, key) <= 0 && Arrays.compareUnsigned(key, end) < 0

    def has(key: Array[Byte]): Boolean = rows.exists(row => Arrays.equals(row.key, key))
  }

  private val NoScan = Found(Bytes.empty, Bytes.empty, Array.empty)

  /** All rows of a scan, in memory. */
  final class FoundRows(val rows: Array[Row]) extends RowCursor {
    private var at = 0
    override def keyOrEnd(): Option[Array[Byte]] = Option.when(at < rows.length)(rows(at).key)
    override def value: Array[Byte] = rows(at).value
    override def next(): Unit = at += 1
    override def close(): Unit = ()
  }

  /** The first rows of a scan, one at least, and the rest. */
  private final class RowsAhead(first: FoundRows, rest: RowCursor) extends RowCursor {
    private var now: RowCursor = first
    override def keyOrEnd(): Option[Array[Byte]] = now.keyOrEnd()
    override def value: Array[Byte] = now.value

    override def next(): Unit = {
      now.next()
      if ((now ne rest) && now.keyOrEnd().isEmpty) now = rest
    }
    override def close(): Unit = rest.close()
  }
}
