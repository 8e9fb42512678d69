package statemark.spark.load

import scala.util.control.NonFatal
import statemark.common._
import statemark.engine.VersionId
import statemark.spark.changelog.{ChangelogPrefetch, ChangelogReplay, CheckpointLineage}
import statemark.spark.conf.StoreConf
import statemark.spark.local.LoadStats
import statemark.spark.rows.RowChecksums
import statemark.spark.snapshot.StoreCheckpoint
import statemark.TransactionalStore

/** The way of a store from one version to a later one by the changelogs in between.
  *
  * ''Thread:'' the owner of the store.
  *
  * @param checksums verify every row that is replayed
  */
final class ChangelogPath(
    conf: StoreConf,
    checkpoint: StoreCheckpoint,
    changelogs: ChangelogPrefetch,
    lineages: CheckpointLineage,
    checksums: RowChecksums,
    clock: Clock
) {

  /** Finds the versions whose changelogs lead from `base` to `at`, ascending. Within a run, or for a base whose own
    * file is proven, that is all it takes in format v1; the lineage of ids tells in format v2.
    *
    * @throws LocalRejectedException where the checkpoint does not prove that history (I6), or has so many
    *   changelogs in between that a snapshot is nearer
    * @throws InterruptedException where it was interrupted, which proves nothing
    */
  def find(base: VersionId, at: VersionId): Vector[VersionId] = Interrupts.apart {
    def distrust(reason: RejectReason, why: String) =
      throw new LocalRejectedException(
        reason,
        s"it is at ${ChangelogPath.show(base)} and ${ChangelogPath.show(at)} is asked for: $why"
      )
    val gap = at.version - base.version
    if (gap < 0) distrust(RejectReason.Ahead, "it cannot go back")
    if (gap > math.max(conf.rocksDb.minDeltasForSnapshot, 1))
      distrust(RejectReason.TooOld, s"a snapshot is nearer than $gap changelogs")
    val found = (base.checkpointId, at.checkpointId) match {
      case (None, None) => ChangelogPath.versions(base.version + 1, at.version)
      case (Some(_), Some(_)) =>
        lineageFrom(base, at).getOrElse(
          distrust(
            RejectReason.OtherHistory,
            "the lineage in the checkpoint does not name its version"
          )
        )
      case _ => distrust(RejectReason.OtherHistory, "the checkpoint has changed its format")
    }
    if (hasNewFamilies(found)) distrust(RejectReason.TooOld, "column families have changed since")
    found
  }

  /** Replays changelogs on a store that stands at the version before the first of them.
    * @return `figures`, with what this did
    * @throws SparkException where one is missing or damaged
    */
  def replay(
      store: TransactionalStore,
      deltas: Vector[VersionId],
      figures: LoadStats
  ): LoadStats = {
    var bytes = 0L
    val (_, ms) = Clock.timedMs(clock)(deltas.tails.filter(_.nonEmpty).foreach { rest =>
      changelogs.open(rest)
      store.replay(rest.head.checkpointId) { transaction =>
        val (read, fingerprint) = changelogs.read(rest.head) {
          ChangelogReplay.stage(_, transaction, checksums, conf.usesFamilies)
        }
        bytes += read
        fingerprint
      }
    })
    figures.copy(
      replayed = deltas.length,
      replayedBytes = bytes,
      replayMs = if (deltas.isEmpty) 0 else math.max(ms, 1)
    )
  }

  /** Tells whether column families change in one of the versions. Such a change is in a snapshot only, which every such
    * version has.
    */
  private def hasNewFamilies(deltas: Vector[VersionId]): Boolean =
    conf.usesFamilies &&
      deltas.exists(d => checkpoint.files.existsSnapshotFile(d.version, d.checkpointId))

  private def lineageFrom(base: VersionId, at: VersionId): Option[Vector[VersionId]] =
    if (base == at) Some(Vector.empty)
    else if (base.version == at.version) None
    else
      try Some(lineages.full(base.version, at)).filter(_.head == base).map(_.tail)
      catch { case NonFatal(_) => None }
}

object ChangelogPath {

  /** Versions of checkpoint format v1, both ends included. */
  private[spark] def versions(from: Long, to: Long): Vector[VersionId] =
    (from to to).map(VersionId(_, None)).toVector

  /** Returns a version as messages have it. */
  private[spark] def show(at: VersionId): String =
    s"version ${at.version}${at.checkpointId.fold("")(id => s" ($id)")}"
}
