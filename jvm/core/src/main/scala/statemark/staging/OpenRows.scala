package statemark.staging

/** The writes of an open transaction, as they are at the moment of each read: its owner goes on. A scan sees
  * each key as it stood at some moment while the scan was opened.
  */
private[statemark] final class OpenRows(buffer: TransactionBuffer) extends StagedRows {
  override def lookup(key: Array[Byte]): StagedLookup = buffer.lookupBeside(key)

  override def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): StagedCursor =
    buffer.scanBeside(begin, end)
}
