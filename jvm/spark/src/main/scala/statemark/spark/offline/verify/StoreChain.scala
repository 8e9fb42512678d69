package statemark.spark.offline.verify

import scala.annotation.tailrec
import statemark.engine.VersionId
import statemark.spark.checkpoint.{RepairLimits, RestoreRules, StoreFile, VersionWriters}

/** What restores a version: a snapshot, None for the empty store, and changelogs after it. */
final case class RestorePath(snapshot: Option[VersionId], changelogs: Vector[VersionId])

/** Files that fail when they are read, by what they are of. */
final case class BadFiles(snapshots: Set[VersionId], changelogs: Set[VersionId])

/** Which files lead to which version.
  *
  * @param headers in checkpoint format v2, the versions that the header of a changelog names
  * @param families the column families that a snapshot has, where its metadata can be read; empty maps in a
  *   store without column families
  * @param writers tell in checkpoint format v1 which files of one version are of two histories
  */
final case class StoreChain(
    snapshots: Set[VersionId],
    changelogs: Set[VersionId],
    headers: Map[VersionId, Vector[VersionId]],
    families: Map[VersionId, Map[String, Short]] = Map.empty,
    writers: VersionWriters = VersionWriters.None
) {

  /** How a provider restores `at` where some files fail when they are read: as [[RestoreRules]] says, it
    * starts with the newest snapshot that can be opened, and goes no other way where a changelog fails then.
    */
  def restored(at: VersionId, bad: BadFiles, limits: RepairLimits): Option[RestorePath] =
    lineageOf(at).flatMap { initial =>
      def loads(lineage: Option[Vector[VersionId]])(snapshot: VersionId): Boolean =
        !bad.snapshots(snapshot) && overtaken(snapshot.version, at).isEmpty &&
          lineage.forall(RestoreRules.uncovered(_, snapshot.version, at).isEmpty)
      // Whether a damaged snapshot is stale no load learns.
      val counted = snapshots.filter(s => bad.snapshots(s) || !isStale(s))
      val first = RestoreRules.eligible(counted, at, initial).head
      val start =
        if (loads(initial)(first)) Some((first, initial))
        else {
          val lineage = initial.map(longer(_, at, limits))
          RestoreRules.forRepair(RestoreRules.eligible(counted, at, lineage), first, at, limits)
            .find(loads(lineage)).map((_, lineage))
        }
      start.map { case (snapshot, lineage) =>
        RestorePath(
          Some(snapshot).filter(_.version > 0),
          RestoreRules.after(snapshot.version, lineage, at)
        )
      }.filter(p => p.changelogs.forall(c => changelogs(c) && !bad.changelogs(c)) && isReplayed(p))
    }

  /** Tells whether a snapshot is of a history that is gone. */
  def isStale(snapshot: VersionId): Boolean =
    snapshot.checkpointId.isEmpty && RestoreRules.isStale(snapshot.version, writers)

  /** Returns the changelog on the way from a snapshot to `at` that is of a history that is gone. */
  def overtaken(snapshot: Long, at: VersionId): Option[VersionId] =
    if (at.checkpointId.isDefined) None
    else RestoreRules.overtaken(snapshot, at.version, writers).map(VersionId(_, None))

  /** A change of column families is in a snapshot only: changelogs cannot lead past it. */
  private def isReplayed(path: RestorePath): Boolean = path.snapshot match {
    // The empty store has no column families.
    case None => path.changelogs.isEmpty || !families.values.exists(_.size > 1)
    case Some(start) =>
      families.get(start).forall(known => path.changelogs.flatMap(families.get).forall(_ == known))
  }

  /** The lineage that a restore begins with: None inside in format v1, none at all where the header of `at`
    * cannot be read.
    */
  private def lineageOf(at: VersionId): Option[Option[Vector[VersionId]]] =
    if (at.checkpointId.isEmpty || snapshots(at) || headers.contains(at))
      Some(RestoreRules.initial(at, snapshots, headers))
    else None

  private def longer(known: Vector[VersionId], at: VersionId, limits: RepairLimits) = {
    val reached = RestoreRules.reached(RestoreRules.oldestForRepair(at, limits), at, headers.get)
    if (reached.length > known.length) reached else known
  }

  /** The snapshot that the header of a changelog counts on and that is not there. */
  def snapshotOf(at: VersionId): Option[VersionId] =
    named(at).headOption.filterNot(snapshots)

  /** How `at` could be restored by all files that are there, or the version at which the way back ends. */
  def path(at: VersionId): Either[VersionId, RestorePath] = {
    @tailrec def back(here: VersionId, found: Vector[VersionId]): Either[VersionId, RestorePath] =
      if (here.version == 0) Right(RestorePath(None, found))
      else if (snapshots(here) && !isStale(here)) Right(RestorePath(Some(here), found))
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
    else named(at).lastOption

  /** What of its header leads to `at`. */
  private def named(at: VersionId): Vector[VersionId] =
    headers.get(at).fold(Vector.empty[VersionId])(RestoreRules.before(at, _))

  /** What is wrong with the header of a changelog, as the restore of its version reads it. */
  def lineageProblem(at: VersionId): Option[String] = headers.get(at).flatMap { header =>
    if (at.version > 1 && header.isEmpty) Some("its header names no version before it")
    else if (named(at) != header)
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
