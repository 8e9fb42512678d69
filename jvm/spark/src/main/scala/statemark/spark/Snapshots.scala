package statemark.spark

import java.io.File
import java.util.UUID
import org.apache.spark.sql.execution.streaming.state._
import statemark.common.Clock
import statemark.engine.StoreState

/** The SST files of one base store that lie in the checkpoint location already: local name to the
  * file there and the version of the snapshot that brought it. Numbers of SST files mean something in
  * one incarnation of a RocksDB only, so each has its own map, and files born in an exported copy
  * never enter it.
  *
  * ''Thread:'' under the lock of [[Snapshots]].
  */
final class UploadedFiles(initial: Map[String, UploadedFile]) {
  private[spark] var byLocalName: Map[String, UploadedFile] = initial
}

final case class UploadedFile(version: Long, file: RocksDBImmutableFile)

/** What an upload did. */
final case class SnapshotFigures(files: RocksDBFileManagerMetrics, totalMs: Long)

/** Uploads images of a store as snapshots in Spark's layout; a file that is there already is not sent
  * again.
  *
  * ''Thread:'' any; one upload at a time.
  */
final class Snapshots(files: RocksDBFileManager, conf: RocksDBConf, clock: Clock) {

  /** @param image a directory as `TransactionalStore.snapshot` leaves it
    * @param linked names of its SST files that are hard links of the base's own
    */
  def upload(
      image: File,
      state: StoreState,
      linked: Set[String],
      uploaded: UploadedFiles
  ): SnapshotFigures =
    synchronized {
      val (_, ms) = Clock.timedMs(clock) {
        val suffix = UUID.randomUUID().toString
        val floor = oldestSafeVersion(uploaded)
        val mapping = image.listFiles.filter(_.getName.endsWith(".sst")).map { sst =>
          val name = sst.getName
          val there = uploaded.byLocalName.get(name).filter { u =>
            linked(name) && u.file.sizeBytes == sst.length &&
            u.version < state.version && u.version > floor
          }
          name -> there.fold(RocksDBSnapshotFile(
            RocksDBImmutableFile(name, files.newDFSFileName(name, suffix), sst.length),
            None
          )) { u =>
            RocksDBSnapshotFile(u.file, Some(u.version))
          }
        }.toMap
        save(image, state, mapping)
        uploaded.byLocalName = mapping.collect {
          case (name, file) if linked(name) =>
            name -> UploadedFile(
              file.reusedFromVersion.getOrElse(state.version),
              file.immutableFile
            )
        }
      }
      SnapshotFigures(files.latestSaveCheckpointMetrics, ms)
    }

  private def save(
      image: File,
      state: StoreState,
      mapping: Map[String, RocksDBSnapshotFile]
  ): Unit =
    files.saveCheckpointToDfs(
      image,
      state.version,
      state.counts.keys,
      state.counts.internalKeys,
      mapping,
      Some(state.families.byName.map { case (name, f) =>
        name -> ColumnFamilyInfo(f.id, f.isInternal)
      }),
      Some(state.families.maxId),
      state.at.checkpointId,
      conf.verifyNonEmptyFilesInZip
    )

  /** A file that came with a snapshot at or before this version may have been deleted by another
    * executor's retention, while this one did not hold the store.
    * ''Source:'' Spark 4.2 `RocksDB.replaceStaleReusedFilesInSnapshot` (SPARK-55892).
    */
  private def oldestSafeVersion(uploaded: UploadedFiles): Long =
    if (conf.checkStaleReusedFilesInSnapshot && uploaded.byLocalName.nonEmpty)
      math.max(files.getLatestSnapshotVersion() - conf.minVersionsToRetain, 0)
    else 0
}
