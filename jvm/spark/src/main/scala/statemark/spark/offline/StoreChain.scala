package statemark.spark.offline

import scala.annotation.tailrec
import statemark.engine.VersionId
import statemark.spark.StoreFile

/** What restores a version: a snapshot, None for the empty store, and changelogs after it. */
final case class RestorePath(snapshot: Option[VersionId], changelogs: Vector[VersionId])

/** Which files lead to which version.
  *
  * @param headers in checkpoint format v2, the versions that the header of a changelog names
  */
final case class StoreChain(
    snapshots: Set[VersionId],
    changelogs: Set[VersionId],
    headers: Map[VersionId, Vector[VersionId]]
) {

  /** How `at` is restored, or the version at which the way back ends. */
  def path(at: VersionId): Either[VersionId, RestorePath] = {
    @tailrec def back(here: VersionId, found: Vector[VersionId]): Either[VersionId, RestorePath] =
      if (here.version == 0) Right(RestorePath(None, found))
      else if (snapshots(here)) Right(RestorePath(Some(here), found))
      else if (!changelogs(here)) Left(here)
      else {
        before(here) match {
          case Some(previous) => back(previous, here +: found)
          case None => Left(here)
        }
      }
    back(at, Vector.empty)
  }

  /** The version that the changelog of `at` continues. */
  def before(at: VersionId): Option[VersionId] =
    if (at.version == 1 || at.checkpointId.isEmpty) Some(VersionId(at.version - 1, None))
    else headers.get(at).flatMap(_.lastOption)

  /** The chain as it would be without some files. */
  def without(badSnapshots: Set[VersionId], badChangelogs: Set[VersionId]): StoreChain =
    copy(snapshots -- badSnapshots, changelogs -- badChangelogs)

  /** What is wrong with the header of a changelog, as the restore of its version reads it. */
  def lineageProblem(at: VersionId): Option[String] = headers.get(at).flatMap { header =>
    val expected = (at.version - header.length until at.version).toVector
    if (at.version > 1 && header.isEmpty) Some("its header names no version before it")
    else if (header.map(_.version) != expected)
      Some(
        s"its header names versions ${Finding.ranges(header.map(_.version))} and not those up to ${at.version - 1}"
      )
    else {
      header.zip(header.drop(1)).collectFirst {
        case (earlier, later)
            if changelogs(later) && headers.get(later).exists(_.lastOption.exists(_ != earlier)) =>
          s"its header says that ${StoreFile.changelogName(later)} continues ${earlier.checkpointId.getOrElse("")}, " +
            "and the header of that file names another attempt"
      }
    }
  }
}
