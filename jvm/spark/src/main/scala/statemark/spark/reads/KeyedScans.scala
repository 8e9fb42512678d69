package statemark.spark.reads

import java.util.Arrays
import statemark.common.Bytes
import statemark.transaction.{RowScan, Rows}

/** The rows of some keys, all read at once; ascending by key. */
private[spark] final class PointScan(rows: Rows, keys: Seq[Array[Byte]])
    extends RowScan {
  private val found = {
    val sorted = keys.sorted(Bytes.order)
    val distinct = sorted.take(1) ++
      sorted.zip(sorted.drop(1)).collect { case (a, b) if !Arrays.equals(a, b) => b }
    distinct.zip(rows.getAll(distinct)).collect { case (key, Some(value)) => (key, value) }
      .toVector
  }
  private var at = -1

  override def next(): Boolean = {
    at += 1
    at < found.length
  }
  override def key: Array[Byte] = found(at)._1
  override def value: Array[Byte] = found(at)._2
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
