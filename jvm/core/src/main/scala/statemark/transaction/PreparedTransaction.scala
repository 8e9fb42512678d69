package statemark.transaction

import statemark.common.Fingerprint
import statemark.engine.{FileBatch, HeapBatch, SerializedBatch, StoreState}
import statemark.staging.{PreparedRows, StagedRows}

/** A committed version that is not in the base store yet: its writes, sorted and serialized, and
  * what the store will say of itself once they are applied.
  */
final case class PreparedTransaction(batch: SerializedBatch, state: StoreState) {

  /** Itself, which brought a file of that fingerprint. */
  private[statemark] def seenAs(fingerprint: Option[Fingerprint]): PreparedTransaction =
    copy(state = state.copy(fingerprint = fingerprint))

  /** Heap bytes held. */
  def bytes: Long = batch.heapBytes

  /** Where its writes lie, if not on the heap. */
  def file: Option[FileBatch] = batch match {
    case file: FileBatch => Some(file)
    case _: HeapBatch => None
  }

  /** The writes, for readers. */
  private[statemark] lazy val rows: StagedRows = new PreparedRows(batch)
}
