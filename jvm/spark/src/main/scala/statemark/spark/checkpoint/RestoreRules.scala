package statemark.spark.checkpoint

import scala.annotation.tailrec
import statemark.engine.VersionId

/** The limits of Spark's automatic repair, for a restore that meets a damaged snapshot.
  *
  * @param isEnabled whether an older snapshot is tried at all
  * @param maxReplay how many changelogs may be replayed after it
  */
final case class RepairLimits(isEnabled: Boolean, maxReplay: Long)

object RepairLimits {

  /** A damaged snapshot fails the load. */
  val never: RepairLimits = RepairLimits(isEnabled = false, maxReplay = 0)
}

/** The rules of a restore: the snapshots that it may start with, and the versions that lead from there. The loader and
  * `statemark verify` both ask here, so that the one promises what the other does.
  *
  * A lineage is None in checkpoint format v1, where the version alone names a file.
  */
object RestoreRules {

  /** The empty store. */
  private val Empty: VersionId = VersionId(0, None)

  /** Returns the versions that lead to `at`, at least from its last snapshot on.
    * @param header returns the versions in the header of a version's changelog in format v2, ascending
    */
  def initial(
      at: VersionId,
      hasSnapshot: VersionId => Boolean,
      header: VersionId => Vector[VersionId]
  ): Option[Vector[VersionId]] = at.checkpointId.map { _ =>
    if (hasSnapshot(at)) Vector(at) else before(at, header(at)) :+ at
  }

  /** Returns the versions in the header of `at` that lead to it without a gap, ascending. The header of a file which has
    * replaced another may name anything, later versions too, and a way back that follows those never ends. Every way
    * from header to header is therefore found by this method.
    */
  def before(at: VersionId, header: Vector[VersionId]): Vector[VersionId] =
    header.reverse.zip(Iterator.iterate(at.version - 1)(_ - 1))
      .takeWhile { case (named, version) => named.version == version }.map(_._1).reverse

  /** Returns the versions up to `end`, ascending and without a gap, as far back as headers lead and no further than
    * `from`. A header that cannot be read ends it: what was reached until then can still be used.
    */
  def reached(
      from: Long,
      end: VersionId,
      header: VersionId => Option[Vector[VersionId]]
  ): Vector[VersionId] = {
    @tailrec def back(known: Vector[VersionId]): Vector[VersionId] =
      if (known.head.version <= from) known
      else {
        val earlier = before(known.head, header(known.head).getOrElse(Vector.empty))
          .filter(_.version >= from)
        if (earlier.nonEmpty) back(earlier ++ known) else known
      }
    back(Vector(end))
  }

  /** Returns the oldest version that a lineage for a repair has to name. */
  def oldestForRepair(at: VersionId, limits: RepairLimits): Long =
    math.max(1L, at.version - limits.maxReplay)

  /** Returns the snapshots that may lead to `at`, newest first, the empty store last. A file whose name is of the
    * other checkpoint format is none of them.
    */
  def eligible(
      snapshots: Iterable[VersionId],
      at: VersionId,
      lineage: Option[Vector[VersionId]]
  ): Vector[VersionId] = {
    val usable = lineage match {
      case None => snapshots.filter(_.checkpointId.isEmpty)
      case Some(known) => snapshots.filter(known.toSet)
    }
    usable.filter(s => s.version > 0 && s.version <= at.version).toVector.distinct.sortBy(
      -_.version
    ) :+ Empty
  }

  /** Returns the eligible snapshots that a repair tries where `failed`, the newest, cannot be used. */
  def forRepair(
      eligible: Vector[VersionId],
      failed: VersionId,
      at: VersionId,
      limits: RepairLimits
  ): Vector[VersionId] =
    if (!limits.isEnabled) Vector.empty
    else eligible.filter(s => s != failed && at.version - s.version <= limits.maxReplay)

  /** Returns the versions after `snapshot` up to `at` that a lineage does not name. */
  def uncovered(lineage: Vector[VersionId], snapshot: Long, at: VersionId): Seq[Long] =
    ((snapshot + 1 to at.version).toSet -- lineage.map(_.version)).toSeq.sorted

  /** Tells whether the snapshot of a version, in checkpoint format v1, is of a history that is gone: it is Statemark's
    * and names a changelog of another run than the one beside it, which was written after both. A changelog that is
    * damaged says nothing against a snapshot.
    */
  def isStale(version: Long, writers: VersionWriters): Boolean =
    writers.listed.changelogs.get(version).exists { length =>
      writers.snapshot(version) match {
        case SnapshotWriter.Own(Some(named)) =>
          (named, writers.changelog(version)) match {
            case (NamedChangelog.Signed(id), Some(signature)) =>
              !ChangelogSignature.areOfOneRun(id, signature.id)
            case (NamedChangelog.Signed(_), None) => writers.isWhole(version)
            case (NamedChangelog.Unsigned(_), Some(_)) => true
            case (NamedChangelog.Unsigned(bytes), None) =>
              bytes.length != length && writers.isWhole(version)
          }
        case _ => false
      }
    }

  /** Tells whether changelog and snapshot of a version are both Statemark's, in checkpoint format v1. */
  def areOwn(version: Long, writers: VersionWriters): Boolean =
    writers.changelog(version).isDefined && writers.snapshot(version).isOwn

  /** Tells whether the changelog of a version that has a snapshot as well is of a history that is gone, in checkpoint
    * format v1: Statemark has written it, and Spark's provider the snapshot after it, without a changelog.
    */
  def isOvertaken(version: Long, writers: VersionWriters): Boolean =
    writers.listed.both(version) && writers.snapshot(version) == SnapshotWriter.Foreign &&
      writers.changelog(version).isDefined

  /** Returns the first changelog on the way from a snapshot to `at` that is of a history that is gone, in checkpoint
    * format v1: no restore goes over it.
    */
  def overtaken(snapshot: Long, at: Long, writers: VersionWriters): Option[Long] = {
    // Statemark wrote it on a version of its own, and the snapshot of that is Spark's.
    def isOnAnother = snapshot > 0 && snapshot < at && writers.listed.hasSnapshot(snapshot) &&
      writers.snapshot(snapshot) == SnapshotWriter.Foreign &&
      writers.changelog(snapshot + 1).exists(_.before == Before.Own)
    if (isOnAnother) Some(snapshot + 1)
    else
      writers.listed.both.filter(v => v > snapshot && v <= at).toSeq.sorted
        .find(isOvertaken(_, writers))
  }

  /** Returns the versions whose changelogs lead from a snapshot to `at`, ascending. */
  def after(
      snapshot: Long,
      lineage: Option[Vector[VersionId]],
      at: VersionId
  ): Vector[VersionId] = lineage match {
    case None => (snapshot + 1 to at.version).map(VersionId(_, None)).toVector
    case Some(known) => known.filter(v => v.version > snapshot && v.version <= at.version)
  }
}
