package statemark.transaction

import java.util.Arrays
import scala.annotation.tailrec
import statemark.common.{Bytes, Gate, IllegalCallException}
import statemark.staging.StagedLookup

/** A scan of the owner of a transaction. */
private[statemark] trait OwnScan extends RowScan {

  /** Tells whether the scan stands at this key and found it in the base, as far as it has read the key. */
  private[transaction] def hasFound(key: Array[Byte]): Boolean
}

/** Rows that a transaction or a view sees in a key range, in key order: staged writes over the base, both as
  * they stood when the scan was opened (I7).
  *
  * ''Thread:'' the owner of the transaction; of a view, one. Another one may close it meanwhile: it waits for the
  * step that is being made, as RocksDB's iterators must not be freed under who moves them.
  *
  * @param merged a row of the base with staged operands
  * @param gate the gate of the transaction; a view's scan has its own
  */
final class TransactionScan private[statemark] (
    cursors: ScanCursors,
    merged: (Option[Array[Byte]], Array[Byte]) => Array[Byte],
    gate: Gate
) extends OwnScan {
  import cursors.{baseKey, nextBase, staged}

  private var isAtEnd = false
  private var currentKey = Bytes.empty
  private var currentValue = Bytes.empty
  private var isFromBase = false

  override def key: Array[Byte] = currentKey

  override def value: Array[Byte] = currentValue

  override private[transaction] def hasFound(key: Array[Byte]): Boolean =
    isFromBase && Arrays.equals(currentKey, key)

  /** Moves to the next row; false at the end, where the scan closes itself.
    * @throws IllegalCallException after the scan was closed before its end, also by the end of its
    *   transaction
    */
  override def next(): Boolean = {
    val wasInside = gate.enter()
    try !isAtEnd && moved()
    finally gate.leave(wasInside)
  }

  private def moved(): Boolean = {
    if (cursors.isClosed) {
      throw TransactionScan.closed
    }
    var found = false
    while (!found && !isAtEnd) found = step()
    found
  }

  /** Takes the smaller key of both sides; true where it is a row that the transaction sees. */
  private def step(): Boolean = (baseKey, staged.headKey) match {
    case (None, None) =>
      isAtEnd = true
      close()
      false
    case (Some(key), None) => takeBase(key)
    case (None, Some(_)) => takeStaged(isInBase = false)
    case (Some(key), Some(stagedKey)) =>
      val order = Bytes.order.compare(key, stagedKey)
      if (order < 0) takeBase(key) else takeStaged(isInBase = order == 0)
  }

  private def takeBase(key: Array[Byte]): Boolean = {
    val isRow = !staged.tombstones.covers(key)
    if (isRow) {
      currentKey = key
      currentValue = cursors.base.value
      isFromBase = true
    }
    nextBase()
    isRow
  }

  /** Takes the write that the staged side stands at, with the row of the base that has the same key. */
  private def takeStaged(isInBase: Boolean): Boolean = {
    val (key, write) = staged.head.get
    val row = write match {
      case StagedLookup.Value(bytes) => Some(bytes)
      case StagedLookup.Operands(bytes) =>
        Some(merged(Option.when(isInBase)(cursors.base.value), bytes))
      case StagedLookup.Deleted | StagedLookup.NotStaged | StagedLookup.KnownAbsent => None
    }
    staged.advance()
    if (isInBase) nextBase()
    isFromBase = false
    currentKey = key
    row.foreach(currentValue = _)
    row.isDefined
  }

  /** Idempotent. */
  override def close(): Unit = gate.through(cursors.close())
}

/** Rows that a transaction sees in a key range, those of the base first, where no staged key is in the base: so none has
  * to be compared with another, and the keys of most rows are never read (ADR 36). Both sides are as they stood when the
  * scan was opened (I7).
  *
  * ''Thread:'' as [[TransactionScan]].
  *
  * @param gate the gate of the transaction
  */
private[transaction] final class UnorderedScan(cursors: ScanCursors, gate: Gate) extends OwnScan {
  import cursors.{base, staged}

  private var isBeforeAll = true
  private var isInBase = true
  private var isAtEnd = false
  // The key of the row, as far as it was read.
  private var currentKey = Option.empty[Array[Byte]]
  private var currentValue = Bytes.empty
  // Of the row before, which a reader who is one row behind may look at still.
  private var valueBefore = Bytes.empty

  /** Returns the key of the row that the scan stands at.
    * @throws IllegalCallException after the scan was closed
    */
  override def key: Array[Byte] = {
    val wasInside = gate.enter()
    try {
      requireOpen()
      if (currentKey.isEmpty) currentKey = base.keyOrEnd()
      currentKey.get
    } finally gate.leave(wasInside)
  }

  override def value: Array[Byte] = currentValue

  override private[transaction] def hasFound(key: Array[Byte]): Boolean =
    isInBase && currentKey.isDefined && Arrays.equals(currentKey.get, key)

  /** Moves to the next row; false at the end, where the scan closes itself.
    * @throws IllegalCallException as [[TransactionScan.next]]
    */
  override def next(): Boolean = {
    val wasInside = gate.enter()
    try
      !isAtEnd && {
        requireOpen()
        if (isInBase) movedInBase() else movedInStaged()
      }
    finally gate.leave(wasInside)
  }

  private def movedInBase(): Boolean = {
    currentKey = None
    if (isBeforeAll) isBeforeAll = false else base.next()
    if (base.isAtEnd) {
      isInBase = false
      movedInStaged()
    } else {
      val used = valueBefore
      valueBefore = currentValue
      currentValue = base.valueIn(used)
      true
    }
  }

  @tailrec private def movedInStaged(): Boolean = staged.head match {
    case Some((key, write)) =>
      staged.advance()
      write match {
        case StagedLookup.Value(bytes) =>
          currentKey = Some(key)
          currentValue = bytes
          true
        case _ => movedInStaged()
      }
    case None =>
      isAtEnd = true
      close()
      false
  }

  private def requireOpen(): Unit = if (cursors.isClosed) throw TransactionScan.closed

  /** Idempotent. */
  override def close(): Unit = gate.through(cursors.close())
}

private object TransactionScan {
  def closed: IllegalCallException = new IllegalCallException(
    "This scan is closed: it was closed by its reader, or its transaction has committed or " +
      "rolled back. Open a new scan."
  )
}

/** Rows of the base that are in memory, where a transaction has staged nothing in their range. It holds nothing that the
  * end of the transaction has to free.
  *
  * ''Thread:'' the owner of the transaction; another one may close it.
  *
  * @param isOpen tells whether the transaction has not ended
  */
private[transaction] final class FoundScan(rows: Array[ShortScans.Row], isOpen: () => Boolean)
    extends RowScan {
  private var at = -1
  @volatile private var isClosed = false

  override def key: Array[Byte] = rows(at).key

  override def value: Array[Byte] = rows(at).value

  /** Moves to the next row; false at the end.
    * @throws IllegalCallException after the scan was closed before its end, also by the end of its transaction
    */
  override def next(): Boolean =
    if (at == rows.length) false
    else if (isClosed || !isOpen()) throw TransactionScan.closed
    else {
      at += 1
      at < rows.length
    }

  override def close(): Unit = isClosed = true
}
