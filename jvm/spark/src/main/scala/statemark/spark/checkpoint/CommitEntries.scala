package statemark.spark.checkpoint

import org.apache.hadoop.fs.Path
import org.apache.spark.sql.execution.streaming.state.StatemarkBridge
import statemark.spark.process.Relocated.CheckpointFileManager

/** The entries of a query's commit log, read from their files: one for each batch that the query has committed. The
  * log keeps its last entries only.
  *
  * ''Thread:'' any.
  *
  * @param log the folder `commits` of a checkpoint
  */
private[spark] final class CommitEntries(log: Path, files: CheckpointFileManager) {
  import CommitEntries._

  /** Returns the batches that have an entry, ascending; None where there is no log. */
  def batchesOfLog(): Option[Seq[Long]] = Option.when(exists())(
    files.list(log).toSeq.filter(_.isFile).flatMap(_.getPath.getName.toLongOption).sorted
  )

  /** Returns the batches that have an entry, ascending; none where there is no log. */
  def batches(): Seq[Long] = batchesOfLog().getOrElse(Nil)

  def exists(): Boolean = files.exists(log)

  def contains(batch: Long): Boolean = files.exists(pathOf(batch))

  def pathOf(batch: Long): Path = new Path(log, batch.toString)

  /** Returns the checkpoint ids that a batch has committed.
    *
    * @param reading runs what reads the entry once it is open, and may give its failures another name
    * @throws java.io.FileNotFoundException where the batch has no entry
    */
  def ids(batch: Long, reading: (=> Ids) => Ids = plainly): Ids = {
    val in = files.open(pathOf(batch))
    try reading(StatemarkBridge.committedIds(in))
    finally in.close()
  }
}

private[spark] object CommitEntries {

  /** Checkpoint ids by operator, partition and store; None in checkpoint format v1. */
  type Ids = Option[Map[Long, Array[Array[String]]]]

  private def plainly(read: => Ids): Ids = read
}
