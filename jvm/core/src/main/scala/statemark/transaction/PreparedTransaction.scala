package statemark.transaction

import statemark.engine.StoreState

/** A committed version that is not in the base store yet: its writes, sorted and serialized, and
  * what the store will say of itself once they are applied.
  */
final case class PreparedTransaction(segments: Vector[Array[Byte]], state: StoreState) {

  /** Heap bytes held. */
  val bytes: Long = segments.iterator.map(_.length.toLong).sum

  /** The writes, for readers. */
  private[statemark] lazy val rows: StagedRows = new PreparedRows(segments)
}
