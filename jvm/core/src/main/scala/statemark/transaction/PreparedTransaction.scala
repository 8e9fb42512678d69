package statemark.transaction

import statemark.changelog.ChangelogCommit
import statemark.engine.{FileBatch, HeapBatch, SerializedBatch, StoreState}
import statemark.staging.{PreparedRows, StagedRows}

/** A committed version that is not in the base store yet: its writes, sorted and serialized, and
  * what the store will say of itself once they are applied.
  *
  * @param changelogMs how long the commit of its changelog took
  */
final case class PreparedTransaction(
    batch: SerializedBatch,
    state: StoreState,
    changelogMs: Long = 0
) {

  /** The same version, after its changelog was committed. */
  private[statemark] def after(commit: ChangelogCommit): PreparedTransaction =
    copy(state = state.copy(fingerprint = commit.fingerprint), changelogMs = commit.ms)

  /** Bytes held, on the heap or outside. */
  def bytes: Long = batch.heapBytes

  /** Returns the file that holds the writes, if they are not in memory. */
  def file: Option[FileBatch] = batch match {
    case file: FileBatch => Some(file)
    case _: HeapBatch => None
  }

  /** The writes, for readers. */
  private[statemark] lazy val rows: StagedRows = new PreparedRows(batch)
}
