package statemark.spark.checkpoint

import java.io.{FileNotFoundException, IOException}
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{ChecksumException, FileStatus, Path}
import org.apache.hadoop.util.functional.FutureIO
import org.slf4j.LoggerFactory
import scala.util.Using
import statemark.common._
import statemark.engine.VersionId

/** Takes what proves the history of a version in checkpoint format v1, and compares it with the checkpoint location.
  * Two attempts at a version, or a run after a rollback by hand, write files of the same name; so a proof is of the
  * bytes that the store wrote or read itself, taken there and then, and never of what lies there later.
  *
  * - Another file is another length, content, or time.
  * - A file of the same content on another base, as a batch without rows leaves it, is told by its time; or, where it
  * replaced ours before we learned that, by the file of the version before, which was replaced with it.
  * - Where times are whole seconds, the file before must be from an earlier one: what replaces both comes later than
  * ours.
  *
  * ''Thread:'' any.
  *
  * @param directory the store's directory in the checkpoint location
  */
final class FileProofs(directory: Path, hadoopConf: Configuration) {
  import FileProofs._
  private lazy val log = LoggerFactory.getLogger(classOf[FileProofs])

  /** Returns the fingerprint of the changelog of `version`, which the store has just written; None where another file
    * lies there by now, or that cannot be told.
    * @param before the fingerprint of the version on which the changelog builds
    * @throws InterruptedException where it was interrupted
    */
  def written(
      version: Long,
      bytes: FileBytes,
      before: Option[Fingerprint]
  ): Option[Fingerprint] = {
    val status =
      try Interrupts.apart(statusOf(changelog(version)))
      catch {
        case e: IOException =>
          log.info(s"Of ${changelog(version)}, which was written, no status is to be had.", e)
          None
      }
    val known = before.flatMap(FileProof.of).map(_.file)
    seen(status, bytes).map(FileProof(_, FileProof.Written(known)).fingerprint)
  }

  /** Returns the status of a changelog that is about to be read, for [[found]]. */
  def statusOf(version: Long): Option[FileStatus] = statusOf(changelog(version))

  /** Returns the fingerprint of a changelog that the store has just read; None where that was not the file of the
    * status.
    * @param status from before it was read
    */
  def found(status: Option[FileStatus], bytes: FileBytes): Option[Fingerprint] =
    seen(status, bytes).map(FileProof(_, FileProof.Found).fingerprint)

  /** Returns the fingerprint of the file of a version before its snapshot is read, by reading the file. */
  def found(version: Long): Option[Fingerprint] = for {
    there <- fileOf(version)
    bytes <- bytesOf(there.status).flatMap(_.whole)
    if bytes.length == there.status.getLen
  } yield FileProof(
    SeenFile(there.isSnapshot, bytes, there.status.getModificationTime),
    FileProof.Found
  ).fingerprint

  /** Tells whether the file of a version is the one that the store knows. */
  def stands(version: Long, known: Fingerprint): Boolean =
    Interrupts.apart(FileProof.of(known).exists(proof => stands(version, proof.file)))

  /** Checks that the history which led to a version still stands, and that the versions after it are of it.
    *
    * A version with a changelog and a snapshot is of none where Statemark has not written both: Spark's provider may
    * have written the one, and left the other standing. The version before needs no such look: whoever writes that anew
    * writes this one too, and a changelog on a version of Spark's says so in its signature.
    *
    * @param after versions whose changelogs are replayed on it
    * @return the changelog of the version; None where it has a snapshot alone
    * @throws LocalRejectedException where it does not, or where nothing tells
    * @throws InterruptedException where it was interrupted, which tells nothing
    */
  def check(
      base: VersionId,
      known: Option[Fingerprint],
      after: Seq[Long],
      writers: VersionWriters
  ): Option[NamedChangelog] = Interrupts.apart {
    val version = base.version
    val proof = known.flatMap(FileProof.of)
      .getOrElse(throw unproven(s"nothing is known of the file of its version $version"))
    val there = standing(version, proof.file).getOrElse(throw replaced(version))
    if (version > 1) {
      val isOlder = proof.origin match {
        case FileProof.Written(None) =>
          throw unproven(s"nothing is known of the file of the version before its $version")
        case FileProof.Written(Some(before)) =>
          if (!stands(version - 1, before)) throw replaced(version - 1)
          before.modifiedMs < proof.file.modifiedMs
        case FileProof.Found =>
          !proof.file.hasWholeSecond || fileOf(version - 1)
            .exists(_.status.getModificationTime < proof.file.modifiedMs)
      }
      if (proof.file.hasWholeSecond && !isOlder)
        throw unproven(s"the files of versions ${version - 1} and $version are of one second")
    }
    (version +: after).find(v => writers.listed.both(v) && !RestoreRules.areOwn(v, writers))
      .foreach { v =>
        if (RestoreRules.isOvertaken(v, writers)) throw replaced(v)
        throw unproven(
          s"version $v has a changelog and a snapshot in the checkpoint, and Statemark has not written both"
        )
      }
    Option.when(!proof.file.isSnapshot)(NamedChangelog(there.signature, proof.file.bytes))
  }

  private def stands(version: Long, known: SeenFile): Boolean = standing(version, known).isDefined

  /** Returns the bytes of the file of a version, where it is the known one. */
  private def standing(version: Long, known: SeenFile): Option[ByteCount] =
    fileOf(version).filter { there =>
      there.isSnapshot == known.isSnapshot && there.status.getLen == known.bytes.length &&
      there.status.getModificationTime == known.modifiedMs
    }.flatMap(there => bytesOf(there.status)).filter(_.whole.contains(known.bytes))

  private def seen(status: Option[FileStatus], bytes: FileBytes): Option[SeenFile] =
    status.filter(_.getLen == bytes.length)
      .map(s => SeenFile(isSnapshot = false, bytes, s.getModificationTime))

  /** Returns the changelog of a version; its snapshot, where it has none. */
  private def fileOf(version: Long): Option[There] =
    statusOf(changelog(version)).map(There(_, isSnapshot = false)).orElse {
      val snapshot = new Path(directory, StoreFile.snapshotName(VersionId(version, None)))
      statusOf(snapshot).map(There(_, isSnapshot = true))
    }

  private def changelog(version: Long) =
    new Path(directory, StoreFile.changelogName(VersionId(version, None)))

  private def statusOf(path: Path): Option[FileStatus] =
    try Some(path.getFileSystem(hadoopConf).getFileStatus(path))
    catch { case _: FileNotFoundException => None }

  /** None where it is gone, or Hadoop's own checksum says that it is not what was written. */
  private def bytesOf(file: FileStatus): Option[ByteCount] =
    try {
      val opened = file.getPath.getFileSystem(hadoopConf).openFile(file.getPath)
        .withFileStatus(file)
        .opt("fs.option.openfile.read.policy", "whole-file")
        .build()
      Using.resource(FutureIO.awaitFuture(opened)) { in =>
        val count = new ByteCount
        val chunk = new Array[Byte](ChunkBytes)
        Iterator.continually(in.read(chunk)).takeWhile(_ >= 0).foreach(count.add(chunk, 0, _))
        count.end(isWhole = true)
        Some(count)
      }
    } catch { case _: FileNotFoundException | _: ChecksumException => None }

  private def unproven(why: String) = new LocalRejectedException(RejectReason.Unproven, why)

  private def replaced(version: Long) = new LocalRejectedException(
    RejectReason.OtherHistory,
    s"the file of version $version in the checkpoint is not the one that it knew"
  )
}

private[spark] object FileProofs {
  private final case class There(status: FileStatus, isSnapshot: Boolean)
  private val ChunkBytes = 1 << 16
}
