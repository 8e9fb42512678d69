package statemark.staging

import java.nio.ByteBuffer
import java.util.Arrays
import scala.collection.mutable

/** The open scans of a transaction that read what is in memory, and the writes that are kept for them although later
  * ones have replaced them: no more than twice what they needed when that was looked through last, as a scan that
  * closes does not look for what it alone needed. Where none is open, nothing is kept.
  *
  * ''Thread:'' the owner of the transaction.
  */
private[statemark] final class OpenScans(table: StagedTable) {
  import OpenScans._

  // In the order in which they were opened, which is that of what they see.
  private val scans = mutable.LinkedHashSet.empty[StagedScan]
  // By entry, newest first.
  private val older = mutable.LongMap.empty[List[OlderWrite]]
  private var newestSeq = NoSeq
  private var bytes_ = 0L
  private var pruneAt = FreeBytes

  /** Heap bytes of the writes that are kept. */
  def bytes: Long = bytes_

  /** Returns the moments that scans see, in order, each with its scans. */
  def moments: Vector[(Long, Vector[StagedScan])] =
    scans.toVector.groupBy(_.seq).toVector.sortBy(_._1)

  def add(scan: StagedScan): Unit = {
    scans += scan
    newestSeq = scan.seq
  }

  def remove(scan: StagedScan): Unit = if (scans.remove(scan)) {
    if (scans.isEmpty) clear() else newestSeq = scans.last.seq
  }

  /** Forgets all kept writes: no scan needs the writes in memory any more. */
  def clear(): Unit = {
    scans.clear()
    newestSeq = NoSeq
    older.clear()
    bytes_ = 0
    pruneAt = FreeBytes
  }

  /** Keeps the write of `entry`, which another one replaces next, where a scan sees it.
    * @param isAppended whether the next one appends to it, so that its value stays where it is
    */
  def keep(entry: Long, isAppended: Boolean): Unit = if (newestSeq != NoSeq) {
    val before = older.getOrElse(entry, Nil)
    val isSeen = table.hasWrite(entry) && table.seq(entry) <= newestSeq
    if (isSeen) bytes_ += WriteOverhead
    val kept = if (isSeen) OlderWrite.newest(table, entry) :: before else before
    if (kept.nonEmpty) older(entry) = if (isAppended) kept else moved(entry, kept)
  }

  /** Copies what later writes share with the newest, before that goes. */
  private def moved(entry: Long, writes: List[OlderWrite]): List[OlderWrite] = {
    val (sharing, others) = writes.span(_.isInPlace)
    sharing.headOption.fold(others) { longest =>
      val value = longest.valueIn(table, entry)
      bytes_ += value.length
      sharing.map(_.copy(value = value)) ::: others
    }
  }

  /** Returns the earlier writes of `entry` that are kept, newest first. */
  def olderWrites(entry: Long): List[OlderWrite] = older.getOrElse(entry, Nil)

  /** Tells whether `entry` had a write at `seq`. */
  def isSeen(entry: Long, seq: Long): Boolean =
    table.seq(entry) <= seq || olderWrites(entry).exists(_.seq <= seq)

  /** Returns the write of `entry` that stood at `seq`, where there was one. */
  def at(entry: Long, seq: Long): StagedLookup =
    if (table.seq(entry) <= seq) table.standing(entry)
    else olderWrites(entry).find(_.seq <= seq) match {
      case Some(write) => StagedLookup(write.op, write.valueIn(table, entry))
      case None =>
        throw new IllegalStateException(
          s"The write of an entry at $seq is needed, and was not kept."
        )
    }

  /** Drops what is not needed any more, where that may be as much as what is; after each write. */
  def tidy(): Unit = if (bytes_ >= pruneAt) {
    val seqs = scans.iterator.map(_.seq).distinct.toArray
    bytes_ = 0
    older.mapValuesInPlace((entry, writes) => needed(entry, writes, seqs))
    older.filterInPlace((_, writes) => writes.nonEmpty)
    pruneAt = 2 * bytes_ + FreeBytes
  }

  /** Returns the writes that a scan needs: one is needed where a scan was opened after it and before the next one. */
  private def needed(
      entry: Long,
      writes: List[OlderWrite],
      seqs: Array[Long]
  ): List[OlderWrite] = {
    var until = table.seq(entry)
    val result = writes.filter { write =>
      val found = Arrays.binarySearch(seqs, write.seq)
      val at = if (found < 0) -found - 1 else found
      val isNeeded = at < seqs.length && seqs(at) < until
      until = write.seq
      isNeeded
    }
    var later = OlderWrite.InPlace
    result.foreach { write =>
      bytes_ += WriteOverhead + (if (write.value eq later) 0 else write.value.length)
      later = write.value
    }
    result
  }
}

private object OpenScans {
  private val NoSeq = -1L

  // Below this, nothing is looked through.
  private val FreeBytes = 64L * 1024

  // An object with its place in a list, and an array header.
  private val WriteOverhead = 72L
}

/** Writes in memory of an open transaction, in key order: where they are, not what they give.
  *
  * @param scans keeps the writes that were replaced since
  * @param seq the sequence number of the newest write that the scan sees
  */
private[statemark] final class MemoryLayer(
    table: StagedTable,
    entries: EntryIndex#Cursor,
    end: Option[Array[Byte]],
    scans: OpenScans,
    seq: Long
) extends StagedLayer {
  private val endKey = end.map(ByteBuffer.wrap)
  private var key = toNext()

  private def toNext(): Option[Array[Byte]] = {
    while (!isAtEnd && !scans.isSeen(entries.current, seq)) entries.advance()
    if (isAtEnd) None else Some(table.key(entries.current))
  }

  private def isAtEnd: Boolean =
    entries.current == PagedTable.NoEntry ||
      (endKey.isDefined && table.compareKey(entries.current, endKey.get) >= 0)

  override def headKey: Option[Array[Byte]] = key

  override def head: Option[(Array[Byte], StagedLookup)] = key match {
    case Some(k) => Some((k, scans.at(entries.current, seq)))
    case None => None
  }

  override def advance(): Unit = {
    entries.advance()
    key = toNext()
  }

  override def close(): Unit = ()
}
