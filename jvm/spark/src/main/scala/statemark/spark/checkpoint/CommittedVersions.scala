package statemark.spark.checkpoint

import java.util.concurrent.ConcurrentHashMap
import java.util.UUID
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.execution.streaming.state.{StateStoreId, StatemarkBridge}
import statemark.engine.VersionId
import statemark.spark.process.JvmState
import statemark.spark.process.Relocated.CheckpointFileManager

/** Answers from a query's commit log which version of a store the query has committed: the batch that
  * makes version v is batch v - 1.
  *
  * A store without a query (no commit log beside its state) takes every version as committed.
  */
final class CommittedVersions(storeId: StateStoreId, queryRunId: UUID, hadoopConf: Configuration) {
  private val stateRoot = new Path(storeId.checkpointRootLocation)
  private val commits = Option(stateRoot.getParent).map(new Path(_, "commits"))

  /** Tells whether the query has committed `at`; in checkpoint format v2 this very attempt at it. */
  def contains(at: VersionId): Boolean = commits match {
    case None => true
    case Some(_) if stateRoot.getName != "state" => true
    case Some(log) =>
      val files = CheckpointFileManager.create(log, hadoopConf)
      if (!files.exists(log)) true
      else idsOf(files, new Path(log, (at.version - 1).toString)).exists(matches(_, at))
  }

  /** Tells whether the commit log has `at` now, in checkpoint format v2 this very attempt at it, whatever it had
    * before: the query may have been rolled back while a store of an earlier run is open. The log keeps its last
    * entries only; where the entry is gone, the answer is unknown.
    */
  def stands(at: VersionId): Boolean = commits match {
    case Some(log) if stateRoot.getName == "state" =>
      val files = CheckpointFileManager.create(log, hadoopConf)
      val batch = new Path(log, (at.version - 1).toString)
      if (files.exists(batch)) at.checkpointId.isEmpty || matches(read(files, batch), at)
      else !files.exists(log) || newestIn(files, log) >= at.version
    case _ => true
  }

  private def newestIn(files: CheckpointFileManager, log: Path): Long =
    files.list(log).flatMap(_.getPath.getName.toLongOption).maxOption.getOrElse(-1L)

  private def matches(entry: CommittedVersions.Entry, at: VersionId): Boolean =
    (entry.ids, at.checkpointId) match {
      case (Some(ids), Some(id)) =>
        ids.get(storeId.operatorId).exists { partitions =>
          partitions.lift(storeId.partitionId).exists(_.contains(id))
        }
      case _ => true
    }

  private def idsOf(files: CheckpointFileManager, batch: Path): Option[CommittedVersions.Entry] =
    Option(CommittedVersions.known().get((queryRunId, batch))).orElse {
      Option.when(files.exists(batch)) {
        val entry = read(files, batch)
        CommittedVersions.remember(queryRunId, batch, entry)
        entry
      }
    }

  private def read(files: CheckpointFileManager, batch: Path): CommittedVersions.Entry = {
    val in = files.open(batch)
    try CommittedVersions.Entry(StatemarkBridge.committedIds(in))
    finally in.close()
  }
}

private[spark] object CommittedVersions {
  final case class Entry(ids: Option[Map[Long, Array[Array[String]]]])

  /** Entries of the last batches, shared by all stores of the executor: one read per batch and not
    * one per store. By run: between two runs a commit log may be rolled back.
    */
  private val known = JvmState.value(new ConcurrentHashMap[(UUID, Path), Entry]())
  private val MaxKnown = 64

  private def remember(queryRunId: UUID, batch: Path, entry: Entry): Unit = {
    val known = this.known()
    if (known.size >= MaxKnown) known.clear()
    known.put((queryRunId, batch), entry): Unit
  }
}
