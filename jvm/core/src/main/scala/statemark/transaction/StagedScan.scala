package statemark.transaction

import statemark.common.{Bytes, Gate, IllegalCallException}

/** Staged writes of a key range in key order.
  *
  * ''Thread:'' one.
  */
private[statemark] trait StagedCursor extends AutoCloseable {

  /** The key that it stands at; None at its end. */
  def headKey: Option[Array[Byte]]

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
  // Values are not held here: a scan may be left as it is for long.
  protected var layers: Vector[StagedLayer] = initial
  private var isClosed = false

  override def headKey: Option[Array[Byte]] = smallest.flatMap(_.headKey)

  override def head: Option[(Array[Byte], StagedLookup)] = smallest.flatMap(_.head)

  override def advance(): Unit =
    if (layers.length == 1) layers(0).advance()
    else
      headKey.foreach { key =>
        layers.foreach(l => if (l.headKey.exists(Bytes.order.equiv(_, key))) l.advance())
      }

  private def smallest: Option[StagedLayer] =
    if (layers.length == 1) Some(layers(0))
    else layers.filter(_.headKey.isDefined).minByOption(_.headKey.get)(Bytes.order)

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
    val at = headKey
    val (useful, useless) = layers.partition {
      case cursor: SpilledCursor => cursor.rangeDeletes != spilled.rangeDeletes
      case _ => false
    }
    useless.foreach(_.close())
    layers = at.map(key => spilled.scanLater(Some(key), end)).toVector ++ useful
  }

  override def close(): Unit = {
    super.close()
    buffer.scanClosed(this)
  }
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
    cursors: ScanCursors,
    merged: (Option[Array[Byte]], Array[Byte]) => Array[Byte],
    gate: Gate
) extends RowScan {
  import cursors.{baseKey, nextBase, staged}

  private var isAtEnd = false
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
    if (cursors.isClosed) {
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
      currentValue = cursors.baseValue
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
        Some(merged(Option.when(isInBase)(cursors.baseValue), bytes))
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
