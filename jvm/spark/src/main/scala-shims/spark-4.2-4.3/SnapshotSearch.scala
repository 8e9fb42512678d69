package statemark.spark

import org.apache.spark.sql.execution.streaming.state._
import org.slf4j.LoggerFactory
import scala.util.control.NonFatal
import statemark.engine.VersionId

/** Chooses the snapshot that a restore starts with: the newest; where it is damaged, Spark's automatic
  * repair passes it over for an older one.
  *
  * @param store name of the store in errors and logs
  */
final class SnapshotSearch(
    files: RocksDBFileManager,
    lineages: CheckpointLineage,
    conf: StateStoreConf,
    store: String
) {
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
    val loader = new AutoSnapshotLoader(
      conf.autoSnapshotRepairEnabled,
      conf.autoSnapshotRepairNumFailuresBeforeActivating,
      conf.autoSnapshotRepairMaxChangeFileReplay,
      store
    ) {
      override protected def beforeLoad(): Unit = ()
      override protected def onLoadSnapshotFromCheckpointFailure(): Unit = ()
      override protected def loadSnapshotFromCheckpoint(version: Long, id: Option[String]): Unit =
        importFrom(VersionId(version, id), lineage)
      override protected def getEligibleSnapshots(version: Long): Seq[(Long, Option[String])] =
        eligible(at, lineage)
      override protected def getAdditionalEligibleSnapshots(
          version: Long
      ): Seq[(Long, Option[String])] = {
        lineage = lineage.map(longer(_, at))
        eligible(at, lineage)
      }
    }
    val (_, isRepaired) = loader.loadSnapshot(at.version)
    (lineage, isRepaired)
  }

  private def longer(known: Vector[VersionId], at: VersionId): Vector[VersionId] =
    try lineages.full(math.max(1L, at.version - conf.autoSnapshotRepairMaxChangeFileReplay), at)
    catch {
      case NonFatal(e) =>
        log.warn(
          s"The lineage of $at cannot be followed beyond its last snapshot; older snapshots " +
            "cannot be used for a repair.",
          e
        )
        known
    }

  private def eligible(
      at: VersionId,
      lineage: Option[Vector[VersionId]]
  ): Seq[(Long, Option[String])] =
    lineage match {
      case None => files.getEligibleSnapshotsForVersion(at.version).map((_, None))
      case Some(known) =>
        files.getSnapshotVersionsAndUniqueIdsFromLineage(CheckpointLineage.toItems(known))
          .map { case (version, id) => (version, Option(id)) }
    }
}
