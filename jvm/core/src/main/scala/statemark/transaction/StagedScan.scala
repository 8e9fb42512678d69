package statemark.transaction

import statemark.common.{Bytes, Gate, IllegalCallException}
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

/** A part of what is staged, in key order. */
private[transaction] trait StagedLayer extends AutoCloseable {
  def headKey: Option[Array[Byte]]
  def head: Option[(Array[Byte], StagedLookup)]
  def advance(): Unit
}

/** Staged writes in key order, out of several layers: of those that have a key, the first decides.
  *
  * ''Thread:'' one.
  */
private[transaction] class LayeredCursor(
    initial: Vector[StagedLayer],
    val tombstones: RangeTombstones
) extends StagedCursor {
  protected var layers: Vector[StagedLayer] = initial
  private var isClosed = false
  private var current = smallest

  override def head: Option[(Array[Byte], StagedLookup)] = current

  override def advance(): Unit = {
    if (layers.length == 1) layers(0).advance()
    else
      current.foreach { case (key, _) =>
        layers.foreach(l => if (l.headKey.exists(Bytes.order.equiv(_, key))) l.advance())
      }
    current = smallest
  }

  private def smallest: Option[(Array[Byte], StagedLookup)] =
    if (layers.length == 1) layers(0).head
    else layers.filter(_.headKey.isDefined).minByOption(_.headKey.get)(Bytes.order).flatMap(_.head)

  override def close(): Unit = if (!isClosed) {
    isClosed = true
    layers.foreach(_.close())
  }
}

/** Staged writes of a key range in key order, as they stood when the scan was opened: those in memory over those
  * that are spilled. Where memory is spilled meanwhile, the scan goes on with what was written of it.
  *
  * ''Thread:'' the owner of the transaction.
  *
  * @param seq of the newest write that it sees
  */
final class StagedScan private[transaction] (
    buffer: TransactionBuffer,
    memory: StagedLayer,
    spilled: Option[SpilledCursor],
    end: Option[Array[Byte]],
    private[transaction] val seq: Long,
    tombstones: RangeTombstones
) extends LayeredCursor(memory +: spilled.toVector, tombstones) {

  /** Memory has been spilled as this scan sees it, and nothing later has. Older cursors are of use only where
    * ranges were deleted after they were opened.
    */
  private[transaction] def moveTo(spilled: SpilledWrites): Unit = {
    val (useful, useless) = layers.partition {
      case cursor: SpilledCursor => cursor.rangeDeletes != spilled.rangeDeletes
      case _ => false
    }
    useless.foreach(_.close())
    layers = head.map { case (key, _) => spilled.scan(Some(key), end) }.toVector ++ useful
  }

  override def close(): Unit = {
    super.close()
    buffer.scanClosed(this)
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
  * ''Thread:'' the owner of the transaction; of a view, one. Another one may close it meanwhile: it waits for the
  * step that is being made, as RocksDB's iterators must not be freed under who moves them.
  *
  * @param merged a row of the base with staged operands
  * @param gate of the transaction; of a view's scan, its own
  */
final class TransactionScan private[statemark] (
    base: RowCursor,
    staged: StagedCursor,
    merged: (Option[Array[Byte]], Array[Byte]) => Array[Byte],
    gate: Gate,
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
  override def next(): Boolean = {
    val wasInside = gate.enter()
    try !isAtEnd && moved()
    finally gate.leave(wasInside)
  }

  private def moved(): Boolean = {
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
  override def close(): Unit = gate.through {
    if (!isClosed) {
      isClosed = true
      base.close()
      staged.close()
      onClose(this)
    }
  }
}
