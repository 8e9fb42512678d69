package statemark.spark.snapshot

import org.apache.spark.sql.execution.streaming.state._
import org.slf4j.LoggerFactory
import statemark.engine.VersionId
import statemark.spark.changelog.CheckpointLineage
import statemark.spark.checkpoint.{RepairLimits, RestoreRules}

/** Chooses the snapshot that a restore starts with: the newest; where it is damaged, Spark's automatic
  * repair passes it over for an older one.
  *
  * @param snapshots those in the checkpoint location now
  * @param store name of the store in errors and logs
  */
final class SnapshotSearch(
    snapshots: () => Seq[VersionId],
    lineages: CheckpointLineage,
    conf: StateStoreConf,
    store: String
) {
  private val limits = SnapshotSearch.limits(conf)
  private val log = LoggerFactory.getLogger(classOf[SnapshotSearch])

  /** Imports a snapshot from which `at` can be reached.
    *
    * @param importFrom takes a snapshot and, in format v2, the lineage that led to it
    * @return the lineage that leads from that snapshot to `at`, None in format v1, and whether a
    *   damaged snapshot was passed over
    */
  def load(at: VersionId)(
      importFrom: (VersionId, Option[Vector[VersionId]]) => Unit
  ): (Option[Vector[VersionId]], Boolean) = {
    var lineage = lineages.initial(at)
    var first = at
    val loader = new AutoSnapshotLoader(
      limits.isEnabled,
      conf.autoSnapshotRepairNumFailuresBeforeActivating,
      limits.maxReplay.toInt,
      store
    ) {
      override protected def beforeLoad(): Unit = ()
      override protected def onLoadSnapshotFromCheckpointFailure(): Unit = ()
      override protected def loadSnapshotFromCheckpoint(version: Long, id: Option[String]): Unit =
        importFrom(VersionId(version, id), lineage)
      override protected def getEligibleSnapshots(version: Long): Seq[(Long, Option[String])] = {
        val newestFirst = eligible(at, lineage)
        first = newestFirst.head
        toPairs(newestFirst)
      }
      override protected def getAdditionalEligibleSnapshots(
          version: Long
      ): Seq[(Long, Option[String])] = {
        lineage = lineage.map(longer(_, at))
        toPairs(RestoreRules.forRepair(eligible(at, lineage), first, at, limits))
      }
    }
    val (_, isRepaired) = loader.loadSnapshot(at.version)
    (lineage, isRepaired)
  }

  private def longer(known: Vector[VersionId], at: VersionId): Vector[VersionId] = {
    val reached = lineages.reached(RestoreRules.oldestForRepair(at, limits), at) { e =>
      log.warn(
        s"The lineage of $at cannot be followed to its beginning; a repair uses the snapshots up to there.",
        e
      )
    }
    if (reached.length > known.length) reached else known
  }

  private def eligible(at: VersionId, lineage: Option[Vector[VersionId]]): Vector[VersionId] =
    RestoreRules.eligible(snapshots(), at, lineage)

  private def toPairs(snapshots: Vector[VersionId]): Seq[(Long, Option[String])] =
    snapshots.map(s => (s.version, s.checkpointId))
}

object SnapshotSearch {

  /** Whether a load compares the archive of a snapshot with its checksum file, where it has one. */
  val readsChecksumFile: Boolean = true

  def limits(conf: StateStoreConf): RepairLimits =
    RepairLimits(conf.autoSnapshotRepairEnabled, conf.autoSnapshotRepairMaxChangeFileReplay.toLong)
}
