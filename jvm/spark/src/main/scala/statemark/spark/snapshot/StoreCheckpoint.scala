package statemark.spark.snapshot

import java.io.{File, FileNotFoundException}
import org.apache.hadoop.fs.{FileStatus, Path}
import org.apache.spark.SparkException
import org.apache.spark.sql.execution.streaming.state.{RocksDBFileManager, StatemarkBridge}
import statemark.common.Clock
import statemark.engine.{NativeHandles, VersionId}
import statemark.spark.changelog.ChangelogFiles
import statemark.spark.checkpoint.{
  CountedFiles,
  FileProofs,
  FileWriters,
  ListedVersions,
  NamedChangelog,
  StoreFile,
  StoreLocation
}
import statemark.spark.conf.StoreConf
import statemark.spark.local.LocalDirectory
import statemark.spark.process.Relocated.CheckpointFileManager

/** The changelogs and snapshots of one store in the checkpoint location. Each part is opened at its first use.
  *
  * ''Thread:'' any.
  *
  * @param needsProofs whether every version needs a fingerprint; asked once, and in checkpoint format v1 only
  * @param needsProofsOfLoads whether the version that a load leads to needs one in any case: it may get a snapshot
  */
final class StoreCheckpoint(
    val location: StoreLocation,
    conf: StoreConf,
    clock: Clock,
    needsProofs: => Boolean,
    needsProofsOfLoads: Boolean
) extends AutoCloseable {
  private val opened = new NativeHandles

  /** Spark's own manager of these files. */
  lazy val files: RocksDBFileManager = {
    val manager = SnapshotFiles.manager(
      location.storeId,
      newScratch(),
      location.hadoopConf,
      conf.rocksDb,
      conf.spark,
      location.providerId.toString
    )
    opened.add[AutoCloseable](() => SnapshotFiles.close(manager)): Unit
    manager
  }

  private lazy val listing = CheckpointFileManager.create(location.directory, location.hadoopConf)
  private lazy val counted = new CountedFiles(listing)

  /** With a checksum beside each file, where that is wanted. */
  private lazy val checkedFiles = {
    val made = SnapshotFiles.checked(counted, conf.rocksDb, conf.spark)
    opened.add[AutoCloseable](() => SnapshotFiles.close(made)): Unit
    made
  }

  /** The fingerprints that prove versions, in checkpoint format v1. */
  lazy val proofs: Option[FileProofs] = Option.when(!conf.usesCheckpointIds)(
    new FileProofs(location.directory, location.hadoopConf)
  )

  /** The same where every version needs a proof. Where it does not, those alone do that maintenance may take a
    * snapshot of.
    */
  lazy val proofsOfAll: Option[FileProofs] = proofs.filter(_ => needsProofs)

  lazy val changelogs: ChangelogFiles = new ChangelogFiles(
    files,
    location.directory,
    location.runId,
    checkedFiles,
    counted,
    proofsOfAll,
    proofsOfAll.orElse(proofs.filter(_ => needsProofsOfLoads)),
    base =>
      proofs.filter(_ => conf.isSnapshotDue(base.version + 1, base.lastSnapshot.version)),
    conf.rocksDb.compressionCodec,
    conf.usesFamilies,
    clock
  )

  lazy val snapshots: SnapshotUploader = new SnapshotUploader(
    files,
    snapshotPath(_).toString,
    at => checkedFiles.delete(snapshotPath(at)),
    conf.rocksDb,
    clock
  )

  /** Returns the changelog that the signature of a snapshot of `at` names, if any; None where it needs no signature. It is
    * known while the store has that version as its base or prepared.
    */
  def namedBySnapshot(at: VersionId): Option[Option[NamedChangelog]] =
    Option.when(at.checkpointId.isEmpty)(changelogs.named(at.version))

  private def snapshotPath(at: VersionId) = new Path(location.directory, StoreFile.snapshotName(at))

  /** Lists the snapshots that are there now, of either checkpoint format, and changelogs. */
  def list(): ListedVersions =
    ListedVersions.of(listed().map(status => (status.getPath.getName, status.getLen)))

  /** Lists the same files with their modification times, in ms since the epoch. */
  def listTimes(): Seq[(StoreFile, Long)] =
    listed().map(status => StoreFile.of(status.getPath.getName) -> status.getModificationTime)

  /** Spark's own listings fail on a name of the other checkpoint format. */
  private def listed(): Seq[FileStatus] = {
    def isVersion(path: Path) = path.getName.endsWith(".zip") || path.getName.endsWith(".changelog")
    try listing.list(location.directory, isVersion(_)).toSeq
    catch { case _: FileNotFoundException => Nil }
  }

  /** Returns what the listed files tell of who has written them, in checkpoint format v1. */
  def writersOf(listed: ListedVersions): FileWriters =
    new FileWriters(location.directory, location.hadoopConf, listed, changelogs.isWhole)

  /** Tells Spark's coordinator of the newest snapshot of the store. A session that only reads state may have no
    * coordinator; no thread waits for the report there.
    */
  def reportSnapshot(version: Long): Unit =
    try
      StatemarkBridge.reportSnapshot(location.providerId, version, clock.epochMs(), conf.rocksDb)
    catch { case e: SparkException if StatemarkBridge.lacksEndpoint(e) => () }

  private def newScratch(): File = {
    val scratch = StatemarkBridge.newLocalDirectory("statemark-files-")
    opened.add[AutoCloseable](() => LocalDirectory.deleteTree(scratch)): Unit
    scratch
  }

  /** Closes what was opened, newest first. Idempotent. */
  override def close(): Unit = opened.close()
}
