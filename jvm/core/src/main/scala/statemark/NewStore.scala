package statemark

import java.io.File
import statemark.engine._
import statemark.transaction.{CommitObserver, UncommittedLimit}

/** Base stores that no earlier process has left. */
object NewStore {

  /** Opens a base store that is at `state`: a new one, or one that was imported from a snapshot.
    * Writes all records of the offsets column family.
    *
    * @param usesFamilies keys begin with the id of a virtual column family
    * @param mark the mark that the checkpoint has now; None where it has none
    */
  def create(
      directory: File,
      options: EngineOptions,
      identity: StoreIdentity,
      state: StoreState,
      usesFamilies: Boolean,
      observer: CommitObserver,
      retention: ReadRetention = ReadRetention.none,
      limit: Option[UncommittedLimit] = None,
      mark: Option[String] = None
  ): TransactionalStore = {
    val engine = RocksEngine.open(directory, options)
    val header = Seq(
      OffsetsColumnFamily.FormatKey -> OffsetsColumnFamily.encodeFormat(FormatVersion.current),
      OffsetsColumnFamily.IdentityKey -> OffsetsColumnFamily.encodeIdentity(identity),
      OffsetsColumnFamily.MarkKey -> OffsetsColumnFamily.encodeMark(mark)
    )
    try {
      engine.note(header ++ OffsetsColumnFamily.records(state, None))
      new TransactionalStore(
        engine,
        identity.partitionId,
        state,
        usesFamilies,
        options,
        observer,
        isOnDisk = false,
        retention,
        limit
      )
    } catch {
      case e: Throwable =>
        engine.close()
        throw e
    }
  }

  /** Number of rows of an image that does not tell it, by reading all of them. */
  def count(
      directory: File,
      options: EngineOptions,
      families: ColumnFamilies,
      usesFamilies: Boolean
  ): RowCounts = {
    val engine = RocksEngine.open(directory, options)
    try engine.countRows(families, usesFamilies)
    finally engine.close()
  }
}
