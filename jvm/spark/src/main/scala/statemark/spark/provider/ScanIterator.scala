package statemark.spark.provider

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair
import statemark.transaction.RowScan

/** Moves a scan when it is asked whether there are more rows, as it cannot know before. */
private abstract class ScanSteps[A](scan: RowScan) extends Iterator[A] {
  // Whether the scan stands at a row that was not given yet.
  private var isAhead = false
  private var isAtEnd = false
  private var standsAtGiven_ = false

  /** Returns the row that the scan stands at. */
  protected def current: A

  /** Tells whether the scan stands at the row that was given last; not where a step has failed, either. */
  protected final def standsAtGiven: Boolean = standsAtGiven_

  override final def hasNext: Boolean = {
    if (!isAhead && !isAtEnd) {
      standsAtGiven_ = false
      isAhead = scan.next()
      isAtEnd = !isAhead
    }
    isAhead
  }

  override final def next(): A = {
    if (!hasNext) throw new NoSuchElementException("The scan has no more rows.")
    isAhead = false
    standsAtGiven_ = true
    current
  }
}

/** The keys of a scan; its values are read beside it. */
private final class ScanIterator(scan: RowScan) extends ScanSteps[Array[Byte]](scan) {
  override protected def current: Array[Byte] = scan.key
}

/** The rows of a scan, of which a key is read when it is asked for. */
private final class PairsByValue(
    scan: RowScan,
    keyOf: Array[Byte] => UnsafeRow,
    valueOf: Array[Byte] => UnsafeRow,
    validate: (UnsafeRow, UnsafeRow) => Unit
) extends ScanSteps[UnsafeRowPair](scan) {
  private val pair = new KeyOnDemandPair(() => keyNow())
  private var isFirst = true

  override protected def current: UnsafeRowPair = {
    pair.value = valueOf(scan.value)
    if (isFirst) validate(pair.key, pair.value)
    isFirst = false
    pair
  }

  private def keyNow(): UnsafeRow = {
    if (!standsAtGiven)
      throw new IllegalStateException(
        "The scan has gone on to the next row. Read the key of a row before asking for more."
      )
    keyOf(scan.key)
  }
}
