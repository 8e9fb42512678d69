package statemark.staging

import java.util.Arrays
import scala.collection.mutable
import statemark.staging.StagedEntry.OlderWrite

/** The open scans of a transaction that read what is in memory, and the writes that are kept for them although later
  * ones have replaced them: no more than twice what they needed when that was looked through last, as a scan that
  * closes does not look for what it alone needed. Where none is open, nothing is kept.
  *
  * ''Thread:'' the owner of the transaction.
  */
private[statemark] final class OpenScans {
  import OpenScans._

  // In the order in which they were opened, which is that of what they see.
  private val scans = mutable.LinkedHashSet.empty[StagedScan]
  // Entries that keep older writes.
  private val entries = mutable.ArrayBuffer.empty[StagedEntry]
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
    entries.foreach(_.older = None)
    entries.clear()
    bytes_ = 0
    pruneAt = FreeBytes
  }

  /** Keeps the write of `entry`, which one with `value` replaces next, where a scan sees it. */
  def keep(entry: StagedEntry, value: Array[Byte]): Unit =
    if (entry.seq <= newestSeq && entry.hasWrite) {
      if (entry.older.isEmpty) entries += entry
      val kept = OlderWrite(entry.seq, entry.op, entry.value, entry.length, entry.older)
      entry.older = Some(kept)
      bytes_ += bytesOf(kept, value)
    }

  /** Drops what is not needed any more, where that may be as much as what is; after each write. */
  def tidy(): Unit = if (bytes_ >= pruneAt) {
    val seqs = scans.iterator.map(_.seq).distinct.toArray
    bytes_ = 0
    entries.filterInPlace { entry =>
      prune(entry, seqs)
      entry.older.isDefined
    }: Unit
    pruneAt = 2 * bytes_ + FreeBytes
  }

  /** Drops the writes that no scan needs. A write is needed where a scan was opened after it and before the next one.
    */
  private def prune(entry: StagedEntry, seqs: Array[Long]): Unit = {
    val needed = mutable.ArrayBuffer.empty[OlderWrite]
    var until = entry.seq
    entry.olderWrites.foreach { write =>
      val found = Arrays.binarySearch(seqs, write.seq)
      val at = if (found < 0) -found - 1 else found
      if (at < seqs.length && seqs(at) < until) needed += write
      until = write.seq
    }
    entry.older =
      needed.foldRight(Option.empty[OlderWrite])((w, older) => Some(w.copy(older = older)))
    var later = entry.value
    needed.foreach { w =>
      bytes_ += bytesOf(w, later)
      later = w.value
    }
  }
}

private object OpenScans {
  private val NoSeq = -1L

  // Below this, nothing is looked through.
  private val FreeBytes = 64L * 1024

  // An object with its option, and an array header.
  private val WriteOverhead = 72L

  /** Heap bytes of a write that is kept under one with the array `later`: where values were appended, both have one. */
  private def bytesOf(write: OlderWrite, later: Array[Byte]): Long =
    if (write.value eq later) WriteOverhead else WriteOverhead + write.value.length
}
