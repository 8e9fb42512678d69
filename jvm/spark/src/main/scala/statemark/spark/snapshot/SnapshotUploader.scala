package statemark.spark.snapshot

import java.io.File
import java.util.UUID
import org.apache.spark.sql.execution.streaming.state._
import statemark.common.{Clock, Disk, DiskWrites}
import statemark.engine.{StoreState, VersionId}
import statemark.spark.checkpoint.{NamedChangelog, SnapshotSignature}
import statemark.spark.local.{UploadedFile, UploadedFiles}

/** The figures of an upload. @param isKept whether the snapshot is there
  */
final case class SnapshotStats(files: RocksDBFileManagerMetrics, totalMs: Long, isKept: Boolean)

/** Uploads images of a store as snapshots in Spark's layout; a file that is there already is not sent
  * again.
  *
  * ''Thread:'' any; one upload at a time.
  *
  * @param snapshotPath the path of a snapshot, as messages name it
  */
final class SnapshotUploader(
    files: RocksDBFileManager,
    snapshotPath: VersionId => String,
    delete: VersionId => Unit,
    conf: RocksDBConf,
    clock: Clock
) {

  /** @param image a directory as `TransactionalStore.snapshot` leaves it
    * @param linked names of its SST files that are hard links of the base's own
    * @param changelog the changelog that its signature names, if any; None where it needs no signature
    * @param keeps tells, once the snapshot is uploaded, whether it is still wanted; else it is deleted
    */
  def upload(
      image: File,
      state: StoreState,
      linked: Set[String],
      changelog: Option[Option[NamedChangelog]],
      uploaded: UploadedFiles
  )(keeps: => Boolean): SnapshotStats =
    synchronized {
      val (isKept, ms) = Clock.timedMs(clock) {
        val suffix = UUID.randomUUID().toString
        val floor = oldestSafeVersion(uploaded)
        val planned = image.listFiles.filter(_.getName.endsWith(".sst")).map { sst =>
          val name = sst.getName
          val there = uploaded.byLocalName.get(name).filter { u =>
            linked(name) && u.file.sizeBytes == sst.length &&
            u.version < state.version && u.version > floor
          }
          def fresh =
            RocksDBImmutableFile(name, files.newDFSFileName(name, suffix), sst.length)
          name -> (there.fold(fresh)(_.file), there.map(_.version))
        }.toMap
        val mapping = planned.map { case (name, (file, since)) =>
          name -> UploadRules.file(file, since)
        }
        changelog.foreach(SnapshotSignature.write(image, _))
        // The metadata are written into the image first. A disk without a free byte is full, whichever was written.
        def isLocal = image.getUsableSpace == 0
        DiskWrites.to(
          if (isLocal) Disk.Local else Disk.Checkpoint,
          if (isLocal) image.getPath else snapshotPath(state.at)
        )(SnapshotFiles.save(files, image, state, mapping, conf))
        val isKept = keeps
        // SST files of a snapshot that is deleted have no owner, and may go.
        if (isKept) uploaded.byLocalName = planned.collect {
          case (name, (file, since)) if linked(name) =>
            name -> UploadedFile(since.getOrElse(state.version), file)
        }
        else delete(state.at)
        isKept
      }
      SnapshotStats(files.latestSaveCheckpointMetrics, ms, isKept)
    }

  private def oldestSafeVersion(uploaded: UploadedFiles): Long =
    if (uploaded.byLocalName.nonEmpty) UploadRules.oldestSafeVersion(files, conf) else 0
}
