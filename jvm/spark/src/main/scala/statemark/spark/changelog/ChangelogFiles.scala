package statemark.spark.changelog

import org.apache.hadoop.fs.{FileStatus, Path}
import org.apache.spark.sql.execution.streaming.state._
import scala.util.control.NonFatal
import statemark.changelog.ChangelogWriter
import statemark.common.{Clock, Disk, DiskWrites, Fingerprint}
import statemark.engine.{StoreState, VersionId}
import statemark.spark.checkpoint.{ByteCount, CountedFiles, FileProofs, StoreFile}
import statemark.spark.errors.StoreFailures
import statemark.spark.process.Relocated.CheckpointFileManager
import statemark.spark.rows.RowChecksums

/** The changelogs of one store in the checkpoint location, through Spark's writers and readers. Where versions need
  * proofs, their bytes are counted below the compression of Spark's; Spark's manager of these files has no place for
  * that, so that what it does with them is done here.
  *
  * ''Thread:'' any; one of them writes.
  * ''Source:'' Spark 4.2 `RocksDBFileManager.getChangeLogWriter` and `getChangelogReader`.
  *
  * @param manager opens them, with a checksum beside each where that is wanted
  * @param counted is below `manager`
  * @param proofs take fingerprints of all files that are written; None where they are not needed
  * @param proofsOfLast take those of the files that loads end with; None where they are not needed
  * @param proofsOn a base take that of the next version, which may need one all the same
  */
final class ChangelogFiles(
    files: RocksDBFileManager,
    directory: Path,
    manager: => CheckpointFileManager,
    counted: => CountedFiles,
    proofs: Option[FileProofs],
    proofsOfLast: Option[FileProofs],
    proofsOn: StoreState => Option[FileProofs],
    codecName: String,
    usesFamilies: Boolean,
    clock: Clock
) {

  /** Returns a changelog for version `base + 1`.
    * @param id the checkpoint id of the new version, in format v2
    */
  def create(
      base: StoreState,
      id: Option[String],
      checksums: RowChecksums
  ): ChangelogWriter = {
    val version = base.version + 1
    val path = new Path(directory, StoreFile.changelogName(VersionId(version, id)))
    def sparks() = files.getChangeLogWriter(
      version,
      usesFamilies,
      id,
      id.map(_ => LineageItems.toItems(base.lineage))
    )
    val (writer, fingerprint) =
      try
        proofs.orElse(proofsOn(base)).filter(_ => id.isEmpty) match {
          case None => (sparks(), () => None)
          case Some(proofs) =>
            val (writer, count) = openWriter(version, path)
            (writer, () => count.whole.flatMap(proofs.written(version, _, base.fingerprint)))
        }
      catch {
        case NonFatal(e) =>
          val told = DiskWrites.told(Disk.Checkpoint, path.toString, e)
          throw StoreFailures.writingChangelog(directory.toString, version, told)
      }
    new FileChangelog(path.toString, writer, checksums, clock, fingerprint)
  }

  /** Opens a changelog for reading.
    * @param isLast whether the changelog brings the wanted version, whose fingerprint the store needs
    */
  def open(at: VersionId, isLast: Boolean): OpenChangelog =
    proofsOfLast.filter(_ => isLast && at.checkpointId.isEmpty) match {
      case None => new OpenChangelog(files.getChangelogReader(at.version, at.checkpointId), None)
      case Some(taken) =>
        // Before its bytes: if another takes its place meanwhile, this says so.
        val status = taken.statusOf(at.version)
        val path = new Path(directory, StoreFile.changelogName(at))
        val (reader, count) = counted.follow(path) {
          new StateStoreChangelogReaderFactory(manager, path, codec).constructChangelogReader()
        }
        new OpenChangelog(reader, Some(new ReadProof(taken, status, count)))
    }

  private def openWriter(version: Long, path: Path): (StateStoreChangelogWriter, ByteCount) = {
    // A later version has one before it, whose files lie there.
    if (version == 1 && !manager.exists(directory)) manager.mkdirs(directory)
    counted.follow(path) {
      if (usesFamilies) new StateStoreChangelogWriterV2(manager, path, codec)
      else new StateStoreChangelogWriterV1(manager, path, codec)
    }
  }

  private def codec = StatemarkBridge.codec(codecName)
}

/** A changelog that is open for reading. */
final class OpenChangelog(val reader: StateStoreChangelogReader, proof: Option[ReadProof]) {

  /** Reads the changelog to its end. Returns its fingerprint with the result, where that is wanted. */
  def readAll[A](body: StateStoreChangelogReader => A): (A, Option[Fingerprint]) = {
    proof.foreach(_.count.isWanted = true)
    val result =
      try body(reader)
      finally reader.closeIfNeeded()
    (result, proof.flatMap(_.fingerprint))
  }

  def close(): Unit = reader.closeIfNeeded()
}

/** @param status the status of the file from before it was opened */
private[spark] final class ReadProof(
    proofs: FileProofs,
    status: Option[FileStatus],
    val count: ByteCount
) {
  def fingerprint: Option[Fingerprint] = count.whole.flatMap(proofs.found(status, _))
}
