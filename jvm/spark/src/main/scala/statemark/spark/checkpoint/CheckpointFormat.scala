package statemark.spark.checkpoint

import java.util.UUID
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import statemark.common.InvalidInputException
import statemark.spark.process.{JvmState, RecentlyUsed}
import statemark.spark.process.Relocated.CheckpointFileManager

/** A query keeps the checkpoint format that it began with: a version of one format cannot be restored by way of
  * versions of the other. Spark pins the setting nowhere; which format a batch has is in its commit entry, that
  * has ids of versions in format v2 alone.
  */
private[spark] object CheckpointFormat {
  val Key: String = "spark.sql.streaming.stateStore.checkpointFormatVersion"

  /** More than a driver runs at once; one that is forgotten is looked at again. */
  private val MaxKnown = 256
  private val checked = JvmState.value(new RecentlyUsed[UUID, Unit](MaxKnown))

  /** Refuses a run that asks for another format than the checkpoint has, or whose checkpoint has both and no
    * snapshot since the change, from which alone its newest version could be restored. Looks once for each run,
    * on the driver, before the first batch is scheduled.
    *
    * @param stateRoot the folder of the operators' state, beside the commit log
    * @param operator the id of one of them
    * @throws InvalidInputException where it refuses
    */
  def check(
      runId: UUID,
      stateRoot: String,
      operator: Long,
      usesIds: Boolean,
      hadoopConf: Configuration
  ): Unit =
    if (isNew(runId))
      new CommittedFormats(new Path(stateRoot), hadoopConf).check(operator, usesIds)

  private def isNew(runId: UUID): Boolean = synchronized {
    val isNew = checked().get(runId).isEmpty
    if (isNew) checked().put(runId, ())
    isNew
  }
}

/** The formats of the batches in a commit log. */
private final class CommittedFormats(stateRoot: Path, hadoopConf: Configuration) {
  import CheckpointFormat.Key

  private val log = new Path(stateRoot.getParent, "commits")
  private val files = CheckpointFileManager.create(log, hadoopConf)
  private val entries = new CommitEntries(log, files)

  def check(operator: Long, usesIds: Boolean): Unit = {
    val batches = entries.batches()
    for (newest <- batches.lastOption; oldest <- batches.headOption) {
      val hasIds = usesIdsIn(newest)
      val isChanged = usesIdsIn(oldest) != hasIds
      val before = if (isChanged) batches.reverse.find(usesIdsIn(_) != hasIds) else None
      before.filterNot(hasSnapshotSince(_, operator, hasIds)) match {
        case Some(last) => throw mixed(last, hasIds)
        case None => if (hasIds != usesIds) throw other(hasIds)
      }
    }
  }

  private def other(hasIds: Boolean) = new InvalidInputException(
    s"$Key is ${number(!hasIds)}, but the checkpoint ${stateRoot.getParent} is of format ${number(hasIds)}: a query " +
      "keeps the format of its first batch.",
    remedy = Some(s"Set it back to ${number(hasIds)}, or start with a new checkpoint.")
  )

  private def mixed(last: Long, hasIds: Boolean) = new InvalidInputException(
    s"The checkpoint ${stateRoot.getParent} has two formats: up to batch $last it is of format ${number(!hasIds)}, " +
      s"since then $Key was ${number(hasIds)}, and no snapshot was taken in that format, so that the batches " +
      s"after $last cannot be restored.",
    remedy = Some(
      s"To go on from batch $last, stop the query, delete the entries above $last in offsets and commits, their " +
        s".crc files too, and set $Key to ${number(!hasIds)}; what came after that batch is processed again."
    )
  )

  private def usesIdsIn(batch: Long): Boolean = entries.ids(batch).isDefined

  /** Tells whether a store of the operator can be restored without the files from before the change. Looks at one
    * partition, as stores take their snapshots at the same versions or close to them.
    */
  private def hasSnapshotSince(batch: Long, operator: Long, hasIds: Boolean): Boolean = {
    val partition = new Path(stateRoot, s"$operator/0")
    // A join has its stores one folder deeper.
    val stores = partition +: list(partition).filter(_.isDirectory).map(_.getPath)
    stores.flatMap(names).map(StoreFile.of).exists {
      case StoreFile.Snapshot(at) => at.checkpointId.isDefined == hasIds && at.version > batch + 1
      case _ => false
    }
  }

  private def list(directory: Path) =
    if (files.exists(directory)) files.list(directory).toSeq else Nil

  private def names(directory: Path): Seq[String] = list(directory).map(_.getPath.getName)

  private def number(hasIds: Boolean): Int = if (hasIds) 2 else 1
}
