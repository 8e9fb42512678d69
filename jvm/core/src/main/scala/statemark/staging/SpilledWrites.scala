package statemark.staging

import java.util.Arrays
import statemark.common.ViewClosedException
import statemark.engine.{RowCursor, ScratchStore}

/** Staged writes of one transaction that memory has no room for, below those that are in memory. A record has one
  * byte, the kind of the write and what is known of the base, and then the value.
  *
  * ''Thread:'' the owner of the transaction; `lookupBeside` and `scanBeside` any.
  */
private[statemark] class SpilledWrites(scratch: ScratchStore) extends AutoCloseable {
  import SpilledWrites._

  private var bytes_ = 0L
  private var writes_ = 0L
  private var rangeDeletes_ = 0

  /** Returns bytes of keys and values that were spilled. */
  def bytes: Long = bytes_

  /** Returns a number of writes, no smaller than the true one. */
  def writes: Long = writes_

  /** Returns how often ranges were deleted from the spilled writes. */
  def rangeDeletes: Int = rangeDeletes_

  /** Spills writes of entries, at most one of each; `flush` follows.
    * @throws statemark.common.ScratchFullException where the disk does not take it
    */
  def add(table: StagedTable, writes: Iterable[(Long, OlderWrite)]): Unit = scratch.write { out =>
    writes.foreach { case (entry, write) =>
      val key = table.key(entry)
      val tag = (write.op | table.inBase(entry) << InBaseShift).toByte
      out.putTagged(key, tag, write.valueIn(table, entry))
      bytes_ += key.length + write.length
      writes_ += 1
    }
  }

  /** Flushes: the spilled writes are on disk when it returns.
    * @throws statemark.common.ScratchFullException where the disk does not take it
    */
  def flush(): Unit = scratch.flush()

  def lookup(key: Array[Byte]): Option[StagedLookup] = scratch.get(key).map(resultOf)

  /** Returns the write of `key` with what is known of the base, to stage it again. */
  def recall(key: Array[Byte]): Option[SpilledWrite] = scratch.get(key).map(writeOf)

  /** `[begin, end)` is deleted. */
  def deleteRange(begin: Array[Byte], end: Array[Byte]): Unit = {
    scratch.deleteRange(begin, end)
    rangeDeletes_ += 1
  }

  /** Writes in `[begin, end)` as they are now. */
  def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): SpilledCursor =
    new SpilledCursor(scratch.scan(begin, end), rangeDeletes_, () => ())

  /** Opens a scan like [[scan]] that may never be read: it holds only a mark of the moment until it is. */
  def scanLater(begin: Option[Array[Byte]], end: Option[Array[Byte]]): SpilledCursor =
    new SpilledCursor(scratch.scanLater(begin, end), rangeDeletes_, () => ())

  def lookupBeside(key: Array[Byte]): Option[StagedLookup] = {
    share()
    try lookup(key)
    finally scratch.close()
  }

  def scanBeside(begin: Option[Array[Byte]], end: Option[Array[Byte]]): SpilledCursor = {
    share()
    try new SpilledCursor(scratch.scan(begin, end), rangeDeletes_, () => scratch.close())
    catch {
      case e: Throwable =>
        scratch.close()
        throw e
    }
  }

  private def share(): Unit = if (!scratch.retain()) {
    throw new ViewClosedException(
      "The transaction ended while its staged writes were read. Read them again."
    )
  }

  /** Closes the scratch store, when the owner is done. */
  override def close(): Unit = scratch.close()
}

/** @param inBase whether the base has the key, in the values of [[StagedTable]] */
private[statemark] final case class SpilledWrite(op: Byte, inBase: Byte, value: Array[Byte])

private[statemark] object SpilledWrites {
  private val InBaseShift = 4
  private val OpMask = (1 << InBaseShift) - 1

  def writeOf(record: Array[Byte]): SpilledWrite = SpilledWrite(
    (record(0) & OpMask).toByte,
    (record(0) >> InBaseShift).toByte,
    Arrays.copyOfRange(record, 1, record.length)
  )

  def resultOf(record: Array[Byte]): StagedLookup = {
    val write = writeOf(record)
    StagedLookup(write.op, write.value)
  }
}

/** Spilled writes in key order.
  *
  * @param rangeDeletes how many there had been when it was opened
  */
private[statemark] final class SpilledCursor(
    rows: RowCursor,
    val rangeDeletes: Int,
    onClose: () => Unit
) extends StagedLayer {
  private var isClosed = false
  private var key = Option.empty[Array[Byte]]
  private var isKnown = false

  override def head: Option[(Array[Byte], StagedLookup)] =
    headKey.map((_, SpilledWrites.resultOf(rows.value)))

  override def headKey: Option[Array[Byte]] = {
    if (!isKnown) {
      key = rows.keyOrEnd()
      isKnown = true
    }
    key
  }

  /** Returns the write like [[head]], for a commit that writes the version out. */
  def write: SpilledWrite = SpilledWrites.writeOf(rows.value)

  override def advance(): Unit = {
    rows.next()
    isKnown = false
  }

  override def close(): Unit = if (!isClosed) {
    isClosed = true
    rows.close()
    onClose()
  }
}
