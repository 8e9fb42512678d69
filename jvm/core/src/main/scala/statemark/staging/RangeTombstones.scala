package statemark.staging

import scala.annotation.tailrec
import scala.collection.immutable.TreeMap
import statemark.common.Bytes

/** Ranges `[begin, end)` in which a transaction deleted all that lies below it: disjoint, in order.
  * Immutable, so that a scan keeps the ones of the moment when it was opened. An addition and a question take the
  * logarithm of how many there are.
  *
  * @param ends the end of each range by its beginning
  * @param bytes heap bytes held
  */
final class RangeTombstones private (ends: TreeMap[Array[Byte], Array[Byte]], val bytes: Long) {
  import RangeTombstones._

  def isEmpty: Boolean = ends.isEmpty

  def ranges: Vector[(Array[Byte], Array[Byte])] = ends.toVector

  def covers(key: Array[Byte]): Boolean =
    ends.contains(key) || ends.maxBefore(key).exists { case (_, end) => ends.ordering.lt(key, end) }

  /** With `[begin, end)`, joined with the ranges that it overlaps; unchanged for an empty range. */
  def added(begin: Array[Byte], end: Array[Byte]): RangeTombstones =
    if (ends.ordering.gteq(begin, end)) this
    else
      ends.maxBefore(begin) match {
        case Some((earlier, reach)) if ends.ordering.gteq(reach, begin) =>
          without(earlier, reach).extended(earlier, ends.ordering.max(reach, end))
        case _ => extended(begin, end)
      }

  /** With `[begin, end)`, before whose beginning no range overlaps it: each range that it swallows goes for good. */
  @tailrec private def extended(begin: Array[Byte], end: Array[Byte]): RangeTombstones =
    ends.minAfter(begin) match {
      case Some((later, reach)) if ends.ordering.lteq(later, end) =>
        without(later, reach).extended(begin, ends.ordering.max(reach, end))
      case _ => new RangeTombstones(ends.updated(begin, end), bytes + heapBytes(begin, end))
    }

  private def without(begin: Array[Byte], end: Array[Byte]): RangeTombstones =
    new RangeTombstones(ends - begin, bytes - heapBytes(begin, end))
}

object RangeTombstones {
  // Two array headers, a node of the tree and a pair.
  private val Overhead = 96L

  val none: RangeTombstones = noneBy(Bytes.order)

  /** Returns no ranges, of keys in an order that a test follows. */
  private[statemark] def noneBy(order: Ordering[Array[Byte]]): RangeTombstones =
    new RangeTombstones(TreeMap.empty[Array[Byte], Array[Byte]](order), 0L)

  private def heapBytes(begin: Array[Byte], end: Array[Byte]): Long =
    begin.length + end.length + Overhead
}
