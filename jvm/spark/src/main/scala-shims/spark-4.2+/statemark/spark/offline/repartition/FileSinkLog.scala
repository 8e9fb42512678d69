package statemark.spark.offline.repartition

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.execution.streaming.sinks.{
  FileStreamSink,
  FileStreamSinkLog,
  SinkFileStatus
}
import statemark.spark.offline.cli.UserError

/** The log of Spark's file sink, in the directory that it writes to. It has an entry of each batch, and fails where one
  * is missing once it is compacted, at every tenth batch. The batch of a repartition reaches no sink, and leaves none.
  *
  * ''Source:'' Spark 4.2 `CompactibleFileStreamLog.compact`.
  */
private[repartition] final class FileSinkLog(
    session: SparkSession,
    hadoopConf: Configuration,
    directory: String
) {
  private val path = new Path(directory, FileStreamSink.metadataDir)
  // Spark's class would make the directory.
  private lazy val log = {
    if (!path.getFileSystem(hadoopConf).exists(path)) throw UserError(
      s"$directory is no output of Spark's file sink",
      s"it has no directory ${FileStreamSink.metadataDir}",
      "name the directory that the query writes its files to in --file-sink, or leave it out"
    )
    new FileStreamSinkLog(FileStreamSinkLog.VERSION, session, path.toString)
  }

  /** Returns the batches that it lacks of a query.
    * @param committed the query's last batch
    * @param isRepartition tells whether a batch is of a repartition
    * @throws UserError where it lacks another one, and is thus not of this query
    */
  def lacking(committed: Long, isRepartition: Long => Boolean): Seq[Long] = {
    val last = log.getLatestBatchId().getOrElse(-1L)
    val batches = last + 1 to committed
    // The sink has a batch before it is committed.
    if (last > committed + 1 || !batches.forall(isRepartition)) throw UserError(
      s"the log of the file sink in $directory does not belong to this query",
      s"it ends at batch $last, and the query at batch $committed",
      "name the directory that the query writes its files to in --file-sink"
    )
    batches
  }

  /** Adds entries of batches that wrote no file. */
  def add(batches: Seq[Long]): Unit =
    batches.foreach(log.add(_, Array.empty[SinkFileStatus]): Unit)
}
