package statemark.spark.offline.verify

import org.apache.spark.sql.execution.streaming.state.RocksDBCheckpointMetadata
import statemark.engine.VersionId
import statemark.spark.checkpoint.StoreFile
import statemark.spark.offline.checkpoint.ListedFile

/** Files that nobody needs.
  *
  * @param problems those worth a report
  * @param leftovers those of lost attempts, which retention deletes
  */
final case class Loose(problems: Seq[Problem], leftovers: Seq[ListedFile])

/** Tells files that nobody needs from those that somebody does.
  *
  * A shared file that no snapshot names is a leftover where a snapshot came after it: an attempt that
  * lost, or was overwritten, has brought it, and retention deletes it. One that is newer than every
  * snapshot is about to be named by the next, or is nobody's: whoever calls looks again after a while.
  *
  * @param formats whether names have the ids of checkpoint format v2, as the committed versions say; empty
  *   where none is committed
  */
final class LooseFiles(
    files: Seq[(ListedFile, StoreFile)],
    metadata: Map[VersionId, RocksDBCheckpointMetadata],
    formats: Set[Boolean]
) {

  def run(): Loose = {
    val named =
      metadata.values.flatMap(_.immutableFiles).map(f => SnapshotSetCheck.path(f.dfsFileName))
        .toSet
    val newest = files.collect { case (f, StoreFile.Snapshot(_)) => f.modified }.maxOption
    val unnamed = files.collect { case (f, StoreFile.Shared) if !named(f.name) => f }
    // What a damaged snapshot names is not known.
    val isKnown = files.count(_._2.isInstanceOf[StoreFile.Snapshot]) == metadata.size
    val (leftovers, orphans) = unnamed.partition(f => !isKnown || newest.exists(f.modified <= _))
    val foreign = files.collect { case (f, StoreFile.Foreign) => f }
    Loose(
      orphans.map(f =>
        Problem(f.name, FindingKind.Orphan, s"no snapshot names it (${f.bytes} bytes)")
      ) ++
        foreign.map(f =>
          Problem(f.name, FindingKind.Foreign, "neither Spark nor Statemark writes such a file")
        ) ++ ofOtherFormat.map(f =>
          Problem(
            f.name,
            FindingKind.Foreign,
            "its name is of a checkpoint format that no committed batch has: Statemark passes it over, " +
              "Spark's provider fails on it"
          )
        ),
      leftovers
    )
  }

  private def ofOtherFormat: Seq[ListedFile] =
    if (formats.isEmpty) Nil
    else {
      files.collect {
        case (f, StoreFile.Snapshot(at)) if !formats(at.checkpointId.isDefined) => f
        case (f, StoreFile.Changelog(at)) if !formats(at.checkpointId.isDefined) => f
      }
    }
}
