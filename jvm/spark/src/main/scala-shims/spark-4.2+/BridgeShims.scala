package org.apache.spark.sql.execution.streaming.state

import java.io.{File, InputStream}
import org.apache.hadoop.conf.Configuration
import org.apache.spark.{SparkConf, TaskContext}
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.execution.streaming.checkpointing.{
  CommitLog,
  OffsetMap,
  OffsetSeqBase,
  OffsetSeqLog
}
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.SparkSession
import org.apache.spark.util.Utils

/** Members of [[StatemarkBridge]] that differ between the lines of Spark. */
trait BridgeShims {
  protected def runIdOf(hadoopConf: Configuration): String = StateStoreProvider.getRunId(hadoopConf)

  protected def temporaryDirectory(conf: SparkConf, prefix: String): File =
    Utils.createExecutorLocalTempDir(conf, prefix)

  /** Tells the coordinator that a store builds on a snapshot. Silence would make it force snapshots.
    */
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
  def committedIds(entry: InputStream): Option[Map[Long, Array[Array[String]]]] =
    CommitLog.readCommitMetadata(entry).stateUniqueIds

  /** Why the task has failed already, if it has. */
  def failureOf(task: TaskContext): Option[Throwable] = task.getTaskFailure

  def cannotLoad(cause: Throwable): Throwable = StateStoreErrors.cannotLoadStore(cause)

  def cannotWriteChangelog(version: Long, cause: Throwable): Throwable =
    StateStoreErrors.failedToGetChangelogWriter(version, cause)

  def invalidLineage(lineage: String, message: String): Throwable =
    QueryExecutionErrors.invalidCheckpointLineage(lineage, message)

  /** Where each source stands at the end of a batch, by what the offset log calls it: its place in the first format, its
    * name in the second.
    */
  protected def endOffsets(log: OffsetSeqBase): Vector[(String, Option[String])] = log match {
    case named: OffsetMap =>
      named.offsetsMap.toVector.sortBy(_._1).map { case (name, o) => (name, o.map(_.json)) }
    case placed =>
      placed.offsets.zipWithIndex.map { case (o, i) => (i.toString, o.map(_.json)) }.toVector
  }

  /** Opens an offset log whose directory is there. */
  protected def offsetLog(spark: SparkSession, directory: String): OffsetSeqLog =
    new OffsetSeqLog(spark, directory)

  /** When a batch of the offset log was planned, in milliseconds since the epoch. */
  protected def plannedAtMs(log: OffsetSeqBase): Option[Long] =
    log.metadataOpt.map(_.batchTimestampMs)

  /** Whether Spark's format `statestore` is that of before 4.2. It takes the format of a checkpoint from the session that
    * reads, and refuses a commit log of the other one; and it makes the directories of a state that is asked for and is
    * not there, so that the checkpoint has an operator more, which has no metadata.
    */
  val hasOldStateSource: Boolean = false

  /** The setting from which Spark's format `statestore` takes the number of partitions of a state where an offset entry does
    * not name it: entries of version 2 do not before the first restart of their query.
    */
  protected val StatePartitions: String = SQLConf.STATEFUL_SHUFFLE_PARTITIONS_INTERNAL.key

  /** Returns the number of partitions of a running query's state where the offset entry of a batch does not name it. */
  protected def unnamedPartitions(query: StreamExecution, batch: Long): Option[Int] = for {
    metadata <- query.offsetLog.get(batch).flatMap(_.metadataOpt)
    if !metadata.conf.contains(SQLConf.SHUFFLE_PARTITIONS.key)
    partitions <- query.sparkSessionForStream.conf.getOption(StatePartitions)
  } yield partitions.toInt
}
