package statemark.spark

import org.apache.spark.sql.execution.streaming.state._
import statemark.engine.VersionId

/** Chooses the snapshot that a restore starts with: the newest. These lines of Spark have no automatic
  * repair; a damaged snapshot fails the load.
  */
final class SnapshotSearch(
    files: RocksDBFileManager,
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
    val snapshot = lineage match {
      case None => VersionId(files.getLatestSnapshotVersion(at.version), None)
      case Some(known) =>
        files.getLatestSnapshotVersionAndUniqueIdFromLineage(CheckpointLineage.toItems(known))
          .fold(VersionId(0, None)) { case (version, id) => VersionId(version, Some(id)) }
    }
    importFrom(snapshot, lineage)
    (lineage, false)
  }
}
