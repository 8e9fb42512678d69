package statemark.spark.reads

import java.util.Arrays
import statemark.common.Bytes
import statemark.transaction.{RowScan, Rows}

/** The rows of some keys, ascending by key. The rows after the current one are read when the scan comes to them, as far
  * as `rows` does not fetch pages of them.
  */
private[spark] final class PointScan(rows: Rows, keys: Seq[Array[Byte]])
    extends RowScan {
  private val found = {
    val sorted = keys.sorted(Bytes.order)
    val distinct = sorted.take(1) ++
      sorted.zip(sorted.drop(1)).collect { case (a, b) if !Arrays.equals(a, b) => b }
    distinct.iterator.zip(rows.getAll(distinct)).collect { case (key, Some(value)) => (key, value) }
  }
  private var current = (Bytes.empty, Bytes.empty)

  override def next(): Boolean = {
    val isRow = found.hasNext
    if (isRow) current = found.next()
    isRow
  }
  override def key: Array[Byte] = current._1
  override def value: Array[Byte] = current._2
  override def close(): Unit = ()
}

/** The rows that begin with some prefixes, one after the other. */
private[spark] final class PrefixesScan(rows: Rows, prefixes: Seq[Array[Byte]])
    extends RowScan {
  private val ahead = prefixes.sorted(Bytes.order).iterator
  private var current: Option[RowScan] = None

  override def next(): Boolean =
    if (current.exists(_.next())) true
    else if (ahead.hasNext) {
      current = Some(rows.prefix(ahead.next())) // the one before closed itself at its end
      next()
    } else false
  override def key: Array[Byte] = current.get.key
  override def value: Array[Byte] = current.get.value
  override def close(): Unit = current.foreach(_.close())
}
