package statemark.staging

import statemark.common.Bytes

/** Ranges `[begin, end)` in which a transaction deleted all that lies below it: disjoint, in order.
  * Immutable, so that a scan keeps the ones of the moment when it was opened.
  */
final class RangeTombstones private (begins: Vector[Array[Byte]], ends: Vector[Array[Byte]]) {
  def isEmpty: Boolean = begins.isEmpty

  /** Heap bytes held. */
  def bytes: Long =
    begins.iterator.zip(ends).map { case (b, e) =>
      b.length + e.length + RangeTombstones.Overhead
    }.sum

  def ranges: Vector[(Array[Byte], Array[Byte])] = begins.zip(ends)

  def covers(key: Array[Byte]): Boolean = {
    val at = lastNotAbove(key)
    at >= 0 && Bytes.order.lt(key, ends(at))
  }

  /** With `[begin, end)`, joined with the ranges that it overlaps; unchanged for an empty range. */
  def added(begin: Array[Byte], end: Array[Byte]): RangeTombstones =
    if (Bytes.order.gteq(begin, end)) this
    else {
      val (joined, apart) = ranges.partition { case (b, e) =>
        Bytes.order.lteq(b, end) && Bytes.order.lteq(begin, e)
      }
      val low = (begin +: joined.map(_._1)).min(Bytes.order)
      val high = (end +: joined.map(_._2)).max(Bytes.order)
      val all = (apart :+ ((low, high))).sortBy(_._1)(Bytes.order)
      new RangeTombstones(all.map(_._1), all.map(_._2))
    }

  /** Index of the last range that begins at or before `key`, or -1. */
  private def lastNotAbove(key: Array[Byte]): Int = {
    var low = 0
    var high = begins.length - 1
    while (low <= high) {
      val middle = (low + high) >>> 1
      if (Bytes.order.lteq(begins(middle), key)) low = middle + 1 else high = middle - 1
    }
    high
  }
}

object RangeTombstones {
  // Two array headers, and a share in two vectors.
  private val Overhead = 64L

  val none: RangeTombstones = new RangeTombstones(Vector.empty, Vector.empty)
}
