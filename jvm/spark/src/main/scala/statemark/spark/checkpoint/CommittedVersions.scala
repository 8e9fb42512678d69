package statemark.spark.checkpoint

import java.util.concurrent.ConcurrentHashMap
import java.util.UUID
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.execution.streaming.state.StateStoreId
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
  def contains(at: VersionId): Boolean = entries().forall { found =>
    !found.exists() || idsOf(found, at.version - 1).exists(matches(_, at))
  }

  /** Tells whether the commit log has `at` now, in checkpoint format v2 this very attempt at it, whatever it had
    * before: the query may have been rolled back while a store of an earlier run is open. The log keeps its last
    * entries only; where the entry is gone, the answer is unknown.
    */
  def stands(at: VersionId): Boolean = entries().forall { found =>
    val batch = at.version - 1
    if (found.contains(batch)) at.checkpointId.isEmpty || matches(found.ids(batch), at)
    else found.batchesOfLog().forall(_.lastOption.exists(_ >= at.version))
  }

  /** Returns the commit log beside the store's state; None for a store without a query. */
  private def entries(): Option[CommitEntries] =
    commits.filter(_ => stateRoot.getName == "state").map { log =>
      new CommitEntries(log, CheckpointFileManager.create(log, hadoopConf))
    }

  private def matches(committed: CommitEntries.Ids, at: VersionId): Boolean =
    (committed, at.checkpointId) match {
      case (Some(ids), Some(id)) =>
        ids.get(storeId.operatorId).exists { partitions =>
          partitions.lift(storeId.partitionId).exists(_.contains(id))
        }
      case _ => true
    }

  private def idsOf(entries: CommitEntries, batch: Long): Option[CommitEntries.Ids] = {
    val path = entries.pathOf(batch)
    Option(CommittedVersions.known().get((queryRunId, path))).orElse {
      Option.when(entries.contains(batch)) {
        val ids = entries.ids(batch)
        CommittedVersions.remember(queryRunId, path, ids)
        ids
      }
    }
  }
}

private object CommittedVersions {

  /** Entries of the last batches, shared by all stores of the executor: one read per batch and not
    * one per store. By run: between two runs a commit log may be rolled back.
    */
  private val known = JvmState.value(new ConcurrentHashMap[(UUID, Path), CommitEntries.Ids]())
  private val MaxKnown = 64

  private def remember(queryRunId: UUID, entry: Path, ids: CommitEntries.Ids): Unit = {
    val known = this.known()
    if (known.size >= MaxKnown) known.clear()
    known.put((queryRunId, entry), ids): Unit
  }
}
