package statemark.spark.provider

import statemark.transaction.RowScan

/** The keys of a scan; its values are read beside it. */
private final class ScanIterator(scan: RowScan) extends Iterator[Array[Byte]] {
  // Whether the scan stands at a row that was not given yet.
  private var isAhead = false
  private var isAtEnd = false

  override def hasNext: Boolean = {
    if (!isAhead && !isAtEnd) {
      isAhead = scan.next()
      isAtEnd = !isAhead
    }
    isAhead
  }

  override def next(): Array[Byte] = {
    if (!hasNext) throw new NoSuchElementException("The scan has no more rows.")
    isAhead = false
    scan.key
  }
}
