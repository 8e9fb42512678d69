package statemark.spark.changelog

import org.apache.spark.sql.execution.streaming.state.{RocksDBFileManager, StatemarkBridge}
import scala.util.control.NonFatal
import statemark.engine.VersionId
import statemark.spark.checkpoint.RestoreRules

/** The history of a version in checkpoint format v2: which attempt each earlier version was. The
  * header of a changelog tells it from the last snapshot on; older headers tell the rest.
  *
  * ''Source:'' Spark 4.2 `RocksDB.getFullLineage`.
  */
final class CheckpointLineage(files: RocksDBFileManager, changelogs: ChangelogPrefetch) {

  /** Format v2: what leads to `at`, at least from its last snapshot; None in format v1. */
  def initial(at: VersionId): Option[Vector[VersionId]] = RestoreRules.initial(
    at,
    v => files.existsSnapshotFile(v.version, v.checkpointId),
    changelogs.lineage
  )

  /** Returns the versions up to `end`, ascending, from `from` on or as far back as headers can be read.
    * @param ended is told why it ends earlier
    */
  def reached(from: Long, end: VersionId)(ended: Throwable => Unit): Vector[VersionId] =
    RestoreRules.reached(
      from,
      end,
      at =>
        try Some(changelogs.lineage(at))
        catch {
          case NonFatal(e) =>
            ended(e)
            None
        }
    )

  /** Returns every version from `from` to `end`, both included, ascending.
    * @throws SparkException CANNOT_LOAD_STATE_STORE.INVALID_CHECKPOINT_LINEAGE where headers do not
    *   lead back that far
    */
  def full(from: Long, end: VersionId): Vector[VersionId] = {
    val known = RestoreRules.reached(from, end, at => Some(changelogs.lineage(at)))
    if (known.head.version != from) {
      throw invalid(known, s"No header leads from version ${known.head.version} back to $from.")
    }
    known
  }

  private def invalid(lineage: Vector[VersionId], message: String): Throwable =
    StatemarkBridge.invalidLineage(LineageItems.toItems(lineage).mkString(" "), message)
}
