package statemark.transaction

import statemark.common.{Bytes, IllegalCallException}
import statemark.engine.RowCursor

/** Staged writes of a key range in key order.
  *
  * ''Thread:'' one.
  */
private[statemark] trait StagedCursor extends AutoCloseable {

  /** The key and write that it stands at; None at its end. */
  def head: Option[(Array[Byte], StagedLookup)]

  def advance(): Unit

  /** What deletes rows of the base beside the writes. */
  def tombstones: RangeTombstones
}

/** Staged writes of a key range in key order, as they stood when the scan was opened. Entries
  * without a write at that time are passed over.
  *
  * ''Thread:'' the owner of the transaction.
  */
final class StagedScan private[transaction] (
    buffer: TransactionBuffer,
    entries: Iterator[StagedEntry],
    seq: Long,
    val tombstones: RangeTombstones
) extends StagedCursor {
  private var isClosed = false
  private var current: Option[(Array[Byte], StagedLookup)] = None
  advance()

  override def head: Option[(Array[Byte], StagedLookup)] = current

  override def advance(): Unit = {
    current = None
    while (current.isEmpty && entries.hasNext) {
      val entry = entries.next()
      current = visible(entry).map((entry.key, _))
    }
  }

  private def visible(entry: StagedEntry): Option[StagedLookup] =
    if (entry.hasWrite && entry.seq <= seq)
      Some(buffer.resultOf(entry.op, entry.value, entry.length))
    else {
      var write = entry.older
      while (write.exists(_.seq > seq)) write = write.get.older
      write.map(w => buffer.resultOf(w.op, w.value, w.length))
    }

  override def close(): Unit = if (!isClosed) {
    isClosed = true
    buffer.scanClosed()
  }
}

/** Rows in key order; stands before the first.
  *
  * ''Thread:'' one at a time.
  */
trait RowScan extends AutoCloseable {

  /** Moves to the next row; false at the end. */
  def next(): Boolean
  def key: Array[Byte]
  def value: Array[Byte]
}

/** Rows that a transaction or a view sees in a key range, in key order: staged writes over the base, both as
  * they stood when the scan was opened (I7).
  *
  * ''Thread:'' the owner of the transaction; of a view, one.
  *
  * @param merged a row of the base with staged operands
  */
final class TransactionScan private[statemark] (
    base: RowCursor,
    staged: StagedCursor,
    merged: (Option[Array[Byte]], Array[Byte]) => Array[Byte],
    onClose: TransactionScan => Unit
) extends RowScan {
  private var isClosed = false
  private var isAtEnd = false
  private var baseKey = base.keyOrEnd()
  private var currentKey = Bytes.empty
  private var currentValue = Bytes.empty
  private var isFromBase = false

  override def key: Array[Byte] = currentKey

  override def value: Array[Byte] = currentValue

  /** Whether the scan stands at this key and found it in the base. */
  private[transaction] def hasFound(key: Array[Byte]): Boolean =
    isFromBase && java.util.Arrays.equals(currentKey, key)

  /** Moves to the next row; false at the end, where the scan closes itself.
    * @throws IllegalCallException after the scan was closed before its end, also by the end of its
    *   transaction
    */
  override def next(): Boolean = if (isAtEnd) false
  else {
    if (isClosed) {
      throw new IllegalCallException(
        "This scan is closed: it was closed by its reader, or its transaction has committed or " +
          "rolled back. Open a new scan."
      )
    }
    var found = false
    while (!found && !isAtEnd) found = step()
    found
  }

  /** Takes the smaller key of both sides; true where it is a row that the transaction sees. */
  private def step(): Boolean = (baseKey, staged.head) match {
    case (None, None) =>
      isAtEnd = true
      close()
      false
    case (Some(key), None) => takeBase(key)
    case (None, Some((key, write))) => takeStaged(key, write, None)
    case (Some(key), Some((stagedKey, write))) =>
      val order = Bytes.order.compare(key, stagedKey)
      if (order < 0) takeBase(key)
      else if (order > 0) takeStaged(stagedKey, write, None)
      else {
        val value = write match {
          case StagedLookup.Operands(_) => Some(base.value)
          case _ => None
        }
        nextBase()
        takeStaged(stagedKey, write, value)
      }
  }

  private def takeBase(key: Array[Byte]): Boolean = {
    val isRow = !staged.tombstones.covers(key)
    if (isRow) {
      currentKey = key
      currentValue = base.value
      isFromBase = true
    }
    nextBase()
    isRow
  }

  private def takeStaged(
      key: Array[Byte],
      write: StagedLookup,
      base: Option[Array[Byte]]
  ): Boolean = {
    staged.advance()
    currentKey = key
    isFromBase = false
    write match {
      case StagedLookup.Value(bytes) =>
        currentValue = bytes
        true
      case StagedLookup.Operands(bytes) =>
        currentValue = merged(base, bytes)
        true
      case StagedLookup.Deleted | StagedLookup.NotStaged | StagedLookup.KnownAbsent => false
    }
  }

  private def nextBase(): Unit = {
    base.next()
    baseKey = base.keyOrEnd()
  }

  /** Idempotent. */
  override def close(): Unit = if (!isClosed) {
    isClosed = true
    base.close()
    staged.close()
    onClose(this)
  }
}
