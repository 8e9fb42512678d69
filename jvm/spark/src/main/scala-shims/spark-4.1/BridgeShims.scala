package org.apache.spark.sql.execution.streaming.state

import java.io.{File, InputStream}
import org.apache.hadoop.conf.Configuration
import org.apache.spark.{SparkConf, TaskContext}
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.execution.streaming.checkpointing.{
  CommitMetadata,
  MetadataVersionUtil,
  OffsetSeq,
  OffsetSeqLog
}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.streaming.StreamingQuery
import org.apache.spark.util.Utils
import scala.io.Source

/** Members of [[StatemarkBridge]] that differ between the lines of Spark. */
trait BridgeShims {
  protected def runIdOf(hadoopConf: Configuration): String = StateStoreProvider.getRunId(hadoopConf)

  protected def temporaryDirectory(conf: SparkConf, prefix: String): File =
    Utils.createExecutorLocalTempDir(conf, prefix)

  /** Tells the coordinator that a store builds on a snapshot, for its figures of lag. */
  def reportSnapshot(
      providerId: StateStoreProviderId,
      version: Long,
      epochMs: Long,
      conf: RocksDBConf
  ): Unit =
    if (conf.reportSnapshotUploadLag)
      StateStoreProvider.coordinatorRef.foreach(_.snapshotUploaded(providerId, version, epochMs))

  /** Tells the coordinator of a commit, where the query checks that every store made one. */
  def reportCommit(
      storeId: StateStoreId,
      version: Long,
      conf: StateStoreConf,
      hadoopConf: Configuration
  ): Unit =
    if (conf.commitValidationEnabled)
      StateStore.reportCommitToCoordinator(version, storeId, hadoopConf)

  /** Checkpoint ids by operator, partition and store of one entry of a query's commit log; None where
    * the entry is of checkpoint format v1.
    */
  def committedIds(entry: InputStream): Option[Map[Long, Array[Array[String]]]] = {
    // The version comes first, then the metadata, where there is any.
    val lines = Source.fromInputStream(entry, "UTF-8").getLines()
    MetadataVersionUtil.validateVersion(lines.nextOption().getOrElse(""), maxSupportedVersion = 2)
    lines.nextOption().flatMap(CommitMetadata(_).stateUniqueIds)
  }

  /** Not told by this line; the failure listener of a store aborts it at once in a failed task. */
  def failureOf(@annotation.unused task: TaskContext): Option[Throwable] = None

  def cannotLoad(cause: Throwable): Throwable = StateStoreErrors.cannotLoadStore(cause)

  def cannotWriteChangelog(version: Long, cause: Throwable): Throwable =
    StateStoreErrors.failedToGetChangelogWriter(version, cause)

  def invalidLineage(lineage: String, message: String): Throwable =
    QueryExecutionErrors.invalidCheckpointLineage(lineage, message)

  /** Where each source stands at the end of a batch, by what the offset log calls it. */
  protected def endOffsets(log: OffsetSeq): Vector[(String, Option[String])] =
    log.offsets.zipWithIndex.map { case (offset, i) => (i.toString, offset.map(_.json)) }.toVector

  /** Opens an offset log whose directory is there. */
  protected def offsetLog(spark: SparkSession, directory: String): OffsetSeqLog =
    new OffsetSeqLog(spark, directory)

  /** When a batch of the offset log was planned, in milliseconds since the epoch. */
  protected def plannedAtMs(log: OffsetSeq): Option[Long] = log.metadata.map(_.batchTimestampMs)

  /** Whether Spark's format `statestore` is that of before 4.2. It takes the format of a checkpoint from the session that
    * reads, and refuses a commit log of the other one; and it makes the directories of a state that is asked for and is
    * not there, so that the checkpoint has an operator more, which has no metadata.
    */
  val hasOldStateSource: Boolean = true

  /** The setting from which Spark's format `statestore` takes the number of partitions of a state where an offset entry does
    * not name it: entries of version 2 do not before the first restart of their query.
    */
  protected val StatePartitions: String = "spark.sql.streaming.internal.stateStore.partitions"

  /** Returns the number of partitions of a running query's state where the offset entry of a batch does not name it. */
  protected def unnamedPartitions(query: StreamingQuery, batch: Long): Option[Int] = None // entries of version 2 came with Spark 4.2
}
