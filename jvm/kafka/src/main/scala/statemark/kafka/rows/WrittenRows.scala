package statemark.kafka.rows

import org.roaringbitmap.RoaringBitmap

/** Rows of an attempt in one topic partition, and the sum of their hashes. */
final case class WrittenRows(offsets: OffsetBitmap, hash: Long) {
  def count: Long = offsets.count
}

/** Collects the offsets and the hash of an attempt's rows in one partition. ''Thread:'' one at a time. */
private[kafka] final class RowCollector {
  private var base = -1L
  private val bits = new RoaringBitmap
  private var hash = 0L

  def add(offset: Long, rowHash: Long): Unit = {
    // Offsets of one producer ascend; half of the range is left for one that does not.
    if (base < 0) base = math.max(0L, offset - RowCollector.HalfRange)
    val relative = offset - base
    require(
      relative >= 0 && relative < RowCollector.Range,
      s"Offset $offset is too far from $base for one attempt"
    )
    bits.add(relative.toInt)
    hash += rowHash
  }

  /** Rows that are noted. */
  def count: Long = bits.getLongCardinality

  def result(): WrittenRows = {
    bits.runOptimize(): Unit
    WrittenRows(OffsetBitmap(base, bits.clone()), hash)
  }
}

private object RowCollector {
  val HalfRange: Long = 1L << 31
  val Range: Long = 1L << 32
}
