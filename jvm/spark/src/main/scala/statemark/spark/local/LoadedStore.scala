package statemark.spark.local

import org.apache.spark.sql.execution.streaming.state.RocksDBFileManagerMetrics
import statemark.TransactionalStore
import statemark.common.RejectReason
import statemark.engine.UploadedSst

/** One incarnation of a store: its base in a home of its own.
  *
  * @param uploaded its SST files that lie in the checkpoint location
  */
final case class LoadedStore(
    store: TransactionalStore,
    home: StoreDirectory,
    uploaded: UploadedFiles
) {

  /** Closes the store and leaves its files to a later process, where they outlive this one. */
  def close(): Unit =
    try store.close()
    finally home.release()

  /** Closes the store and deletes its files. */
  def discard(): Unit =
    try store.close()
    finally home.delete(): Unit

  /** Confirmed versions that a crash would have to replay; 0 where the store is gone after one anyway. */
  def unflushedVersions: Long =
    if (home.isDurable) store.base.version - math.max(store.flushed, 0) else 0

  /** Has the base remember what lies in the checkpoint location. */
  def noteUploads(): Unit = if (home.isDurable) {
    store.noteUploads(uploaded.byLocalName.values.toSeq.map { u =>
      UploadedSst(u.file.localFileName, u.file.dfsFileName, u.file.sizeBytes, u.version)
    })
  }
}

/** From where a load was served.
  *
  * @param name as metrics have it
  * @param text what it is
  */
sealed abstract class LoadSource(val name: String, val text: String)

object LoadSource {

  /** The store was open. */
  case object Memory extends LoadSource("Memory", "an open store")

  /** A home that an earlier process or run left. */
  case object Local extends LoadSource("Local", "a home")

  /** The checkpoint location. */
  case object Checkpoint extends LoadSource("Checkpoint", "the checkpoint location")

  /** A store without a past. */
  case object New extends LoadSource("New", "nothing, as it is new")

  val all: Seq[LoadSource] = Seq(Memory, Local, Checkpoint, New)
}

/** The figures of a load.
  *
  * @param replayed number of changelogs replayed on top
  * @param replayedBytes the bytes of the keys and values in those changelogs
  * @param isRepaired a damaged snapshot was passed over
  * @param distrusted why existing homes were not used
  * @param localMs time to open and prove a home
  */
final case class LoadStats(
    source: LoadSource,
    replayed: Int = 0,
    replayedBytes: Long = 0,
    isRepaired: Boolean = false,
    distrusted: Seq[RejectReason] = Nil,
    localMs: Long = 0,
    snapshotMs: Long = 0,
    replayMs: Long = 0,
    totalMs: Long = 0,
    files: RocksDBFileManagerMetrics = RocksDBFileManagerMetrics.EMPTY_METRICS
) {

  /** Returns a snapshot or a changelog was read. */
  def readsCheckpoint: Boolean = source == LoadSource.Checkpoint || replayed > 0
}

object LoadStats {

  /** The store stood where it was asked for. */
  val none: LoadStats = LoadStats(LoadSource.Memory)
}
