package statemark.kafka.rows

import org.roaringbitmap.RoaringBitmap
import scala.collection.immutable.ArraySeq

/** Offsets of one partition as runs: `starts(i)` up to, not including, `ends(i)`, ascending, apart from each other. */
final case class OffsetRuns(starts: ArraySeq[Long], ends: ArraySeq[Long]) {
  require(starts.length == ends.length, s"${starts.length} starts, ${ends.length} ends")
  require(
    starts.indices.forall(i =>
      starts(i) >= 0 && starts(i) < ends(i) && (i == 0 || ends(i - 1) < starts(i))
    ),
    s"not ascending, or not apart: $this"
  )

  def isEmpty: Boolean = starts.isEmpty

  /** How many offsets. */
  def count: Long = starts.indices.iterator.map(i => ends(i) - starts(i)).sum

  /** The lowest offset; of runs that are not empty. */
  def first: Long = starts.head

  /** The highest offset; of runs that are not empty. */
  def last: Long = ends.last - 1

  /** Returns the runs without their lowest `dropped` offsets. */
  def drop(dropped: Long): OffsetRuns = {
    // How many offsets lie before each run.
    val before = starts.indices.scanLeft(0L)((sum, i) => sum + ends(i) - starts(i))
    val from = starts.indices.indexWhere(i => before(i + 1) > dropped)
    if (dropped <= 0) this
    else if (from < 0) OffsetRuns.empty
    else OffsetRuns(
      starts.drop(from).updated(0, starts(from) + dropped - before(from)),
      ends.drop(from)
    )
  }

  def contains(offset: Long): Boolean = runAt(offset).exists(starts(_) <= offset)

  /** The lowest offset of these that is not below `offset`. */
  def next(offset: Long): Option[Long] = runAt(offset).map(i => math.max(starts(i), offset))

  /** The first run that ends behind `offset`. */
  private def runAt(offset: Long): Option[Int] = {
    var low = 0
    var high = ends.length
    while (low < high) {
      val middle = (low + high) >>> 1
      if (ends(middle) > offset) high = middle else low = middle + 1
    }
    Option.when(low < ends.length)(low)
  }

  override def toString: String =
    starts.indices.map(i => s"${starts(i)}-${ends(i) - 1}").mkString("[", ",", "]")
}

object OffsetRuns {

  val empty: OffsetRuns = OffsetRuns(ArraySeq.empty[Long], ArraySeq.empty[Long])

  /** Runs of offsets that are handed over in ascending order. */
  def ascending(offsets: Iterator[Long]): OffsetRuns = {
    val starts = ArraySeq.newBuilder[Long]
    val ends = ArraySeq.newBuilder[Long]
    var end = -1L
    offsets.foreach { offset =>
      if (offset != end) {
        if (end >= 0) ends += end
        starts += offset
      }
      end = offset + 1
    }
    if (end >= 0) ends += end
    OffsetRuns(starts.result(), ends.result())
  }
}

/** Offsets of one partition as a bitmap over a base: rows of tasks that share a producer lie between each other, so that
  * a list, or runs, would take some bytes for each row.
  */
final case class OffsetBitmap(base: Long, bits: RoaringBitmap) {

  def count: Long = bits.getLongCardinality

  /** The offsets, ascending. */
  def offsets: Iterator[Long] = {
    val ints = bits.getIntIterator
    Iterator.continually(()).takeWhile(_ => ints.hasNext)
      .map(_ => base + Integer.toUnsignedLong(ints.next()))
  }
}

object OffsetBitmap {

  /** The runs of all of `bitmaps` together.
    * @throws IllegalArgumentException where an offset is in two of them: an offset is one row, which one attempt wrote
    */
  def union(bitmaps: Seq[OffsetBitmap]): OffsetRuns =
    if (bitmaps.isEmpty) OffsetRuns.empty
    else {
      val base = bitmaps.map(_.base).min
      val all = new RoaringBitmap
      bitmaps.foreach(b => all.or(RoaringBitmap.addOffset(b.bits, b.base - base)))
      val count = bitmaps.map(_.count).sum
      require(
        all.getLongCardinality == count,
        s"${all.getLongCardinality} offsets of $count rows: an offset has one row"
      )
      OffsetRuns.ascending(OffsetBitmap(base, all).offsets)
    }
}
