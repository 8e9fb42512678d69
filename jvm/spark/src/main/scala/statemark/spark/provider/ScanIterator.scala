package statemark.spark.provider

import statemark.transaction.RowScan

/** The keys of a scan; its values are read beside it. */
private final class ScanIterator(scan: RowScan) extends Iterator[Array[Byte]] {
  private var ahead: Option[Boolean] = None

  override def hasNext: Boolean = ahead.getOrElse {
    val found = scan.next()
    ahead = Some(found)
    found
  }

  override def next(): Array[Byte] = {
    if (!hasNext) throw new NoSuchElementException("The scan has no more rows.")
    ahead = None
    scan.key
  }
}
