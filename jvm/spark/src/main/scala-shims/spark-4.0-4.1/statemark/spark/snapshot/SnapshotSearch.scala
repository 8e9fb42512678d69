package statemark.spark.snapshot

import org.apache.spark.sql.execution.streaming.state.StateStoreConf
import statemark.engine.VersionId
import statemark.spark.changelog.CheckpointLineage
import statemark.spark.checkpoint.{RepairLimits, RestoreRules}

/** Chooses the snapshot that a restore starts with: the newest. These lines of Spark have no automatic
  * repair; a damaged snapshot fails the load.
  *
  * @param snapshots those in the checkpoint location now
  */
final class SnapshotSearch(
    snapshots: () => Seq[VersionId],
    lineages: CheckpointLineage,
    @annotation.unused conf: StateStoreConf,
    @annotation.unused store: String
) {

  /** Imports a snapshot from which `at` can be reached.
    *
    * @param importFrom takes a snapshot and, in format v2, the lineage that led to it
    * @return the lineage that leads from that snapshot to `at`, None in format v1, and whether a
    *   damaged snapshot was passed over
    */
  def load(at: VersionId)(
      importFrom: (VersionId, Option[Vector[VersionId]]) => Unit
  ): (Option[Vector[VersionId]], Boolean) = {
    val lineage = lineages.initial(at)
    val snapshot = RestoreRules.eligible(snapshots(), at, lineage).head
    importFrom(snapshot, lineage)
    (lineage, false)
  }
}

object SnapshotSearch {

  /** Whether a load compares the archive of a snapshot with its checksum file, where it has one. These lines do not. */
  val readsChecksumFile: Boolean = false

  def limits(@annotation.unused conf: StateStoreConf): RepairLimits = RepairLimits.never
}
