package statemark.transaction

import statemark.engine.{FileBatch, HeapBatch, SerializedBatch, StoreState}

/** A committed version that is not in the base store yet: its writes, sorted and serialized, and
  * what the store will say of itself once they are applied.
  */
final case class PreparedTransaction(batch: SerializedBatch, state: StoreState) {

  /** Heap bytes held. */
  def bytes: Long = batch.heapBytes

  /** Whether its writes lie in a file. */
  def isOnDisk: Boolean = batch match {
    case _: FileBatch => true
    case _: HeapBatch => false
  }

  /** The writes, for readers. */
  private[statemark] lazy val rows: StagedRows = new PreparedRows(batch)
}
