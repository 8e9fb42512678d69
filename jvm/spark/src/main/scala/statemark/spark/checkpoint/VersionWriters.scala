package statemark.spark.checkpoint

import java.io.{EOFException, IOException}
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{ChecksumFileSystem, FSDataInputStream, Path}
import scala.collection.mutable
import scala.util.Using
import statemark.engine.VersionId

/** The files of a store's versions, as one listing of its directory has them.
  *
  * @param snapshots of either checkpoint format
  * @param changelogs the lengths of those of checkpoint format v1, by version
  */
final case class ListedVersions(snapshots: Seq[VersionId], changelogs: Map[Long, Long]) {
  private val inV1 = snapshots.filter(_.checkpointId.isEmpty).map(_.version).toSet

  /** The versions with a changelog and a snapshot, which may be of two histories. */
  val both: Set[Long] = inV1.filter(changelogs.contains)

  def hasSnapshot(version: Long): Boolean = inV1(version)
}

object ListedVersions {
  val none: ListedVersions = ListedVersions(Nil, Map.empty)

  /** @param files names and lengths */
  def of(files: Seq[(String, Long)]): ListedVersions = {
    val byKind = files.map { case (name, length) => (StoreFile.of(name), length) }
    ListedVersions(
      byKind.collect { case (StoreFile.Snapshot(at), _) => at },
      byKind.collect { case (StoreFile.Changelog(VersionId(v, None)), length) => v -> length }.toMap
    )
  }
}

/** Tells who has written the files of versions, for [[RestoreRules]], in checkpoint format v1. */
trait VersionWriters {
  def listed: ListedVersions

  /** Returns the signature of a version's changelog; None where it has none. */
  def changelog(version: Long): Option[ChangelogSignature]

  /** Tells whether a version's changelog can be read to its end, and has no signature that is damaged. */
  def isWhole(version: Long): Boolean

  /** Returns who has uploaded the snapshot of a version. */
  def snapshot(version: Long): SnapshotWriter
}

object VersionWriters {

  /** No version has two files. */
  object None extends VersionWriters {
    override val listed: ListedVersions = ListedVersions.none
    override def changelog(version: Long): Option[ChangelogSignature] = scala.None
    override def isWhole(version: Long): Boolean = false
    override def snapshot(version: Long): SnapshotWriter = SnapshotWriter.Unknown
  }
}

/** The writers as the files themselves tell. A file is read when it is asked for first: the end of a changelog, or a zip.
  *
  * ''Thread:'' one at a time.
  *
  * @param directory the store's directory in the checkpoint location
  * @param readsToEnd tells of a version whether its changelog can be read to its end; asked for where that matters alone
  */
final class FileWriters(
    directory: Path,
    hadoopConf: Configuration,
    val listed: ListedVersions,
    readsToEnd: Long => Boolean
) extends VersionWriters {
  private val ends = mutable.Map.empty[Long, Array[Byte]]
  private val snapshots = mutable.Map.empty[Long, SnapshotWriter]

  /** Records who has uploaded a snapshot, which was read just now. */
  def note(version: Long, writer: SnapshotWriter): Unit = snapshots(version) = writer

  override def changelog(version: Long): Option[ChangelogSignature] =
    ChangelogSignature.of(endOf(version))

  override def isWhole(version: Long): Boolean =
    (changelog(version).isDefined || !ChangelogSignature.isIn(endOf(version))) && readsToEnd(
      version
    )

  /** Returns the last bytes of a changelog, where its signature is; none where there is no file. */
  private def endOf(version: Long): Array[Byte] = ends.getOrElseUpdate(
    version,
    read(StoreFile.changelogName(VersionId(version, None))) { in =>
      val length = listed.changelogs.getOrElse(version, 0L)
      // A file that has grown or shrunk since it was listed is another one.
      val isThere =
        try {
          in.seek(math.max(length - ChangelogSignature.Length, 0))
          true
        } catch { case _: EOFException => false }
      if (isThere) in.readNBytes(ChangelogSignature.Length) else Array.emptyByteArray
    }.getOrElse(Array.emptyByteArray)
  )

  override def snapshot(version: Long): SnapshotWriter =
    snapshots.getOrElseUpdate(
      version,
      read(StoreFile.snapshotName(VersionId(version, None))) { in =>
        SnapshotSignature.ofZip(in.readAllBytes())
      }.getOrElse(SnapshotWriter.Unknown)
    )

  /** None where the file is gone, or may not be read. Hadoop's own checksums are left aside: a damaged file tells who has
    * written it as well.
    */
  private def read[A](name: String)(body: FSDataInputStream => A): Option[A] = {
    val path = new Path(directory, name)
    val files = path.getFileSystem(hadoopConf) match {
      case checked: ChecksumFileSystem => checked.getRawFileSystem
      case other => other
    }
    try Some(Using.resource(files.open(path))(body))
    catch { case e: IOException if FileDamage.isOutOfReach(e) => None }
  }
}
