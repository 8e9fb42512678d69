package org.apache.spark.sql.execution.streaming.state

import java.io.{File, InputStream}
import java.util.UUID
import org.apache.hadoop.conf.Configuration
import org.apache.spark.{SparkConf, SparkEnv, TaskContext}
import org.apache.spark.io.CompressionCodec
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.execution.datasources.v2.state.metadata.StateMetadataPartitionReader
import org.apache.spark.sql.execution.streaming.checkpointing.CommitLog
import org.apache.spark.util.{SerializableConfiguration, Utils}

/** The members of Spark that Statemark needs and that Spark keeps to its own packages. Nothing else
  * lives in a package of Spark's.
  */
object StatemarkBridge {
  def runId(hadoopConf: Configuration): UUID =
    UUID.fromString(StateStoreProvider.getRunId(hadoopConf))

  /** A new directory in the executor's local directories, gone with the executor. */
  def newLocalDirectory(prefix: String): File = {
    val conf = Option(SparkEnv.get).map(_.conf).getOrElse(new SparkConf)
    Utils.createExecutorLocalTempDir(conf, prefix)
  }

  /** Tells the coordinator that a store builds on a snapshot. Silence would make it force snapshots.
    */
  def reportSnapshot(providerId: StateStoreProviderId, version: Long, epochMs: Long): Unit =
    StateStoreProvider.coordinatorRef.foreach(_.snapshotUploaded(providerId, version, epochMs))

  /** Checkpoint ids by operator, partition and store of one entry of a query's commit log; None where
    * the entry is of checkpoint format v1.
    */
  def committedIds(entry: InputStream): Option[Map[Long, Array[Array[String]]]] =
    CommitLog.readCommitMetadata(entry).stateUniqueIds

  /** The file system settings of a session, its SQL settings included. */
  def hadoopConf(spark: SparkSession): Configuration = spark.sessionState.newHadoopConf()

  /** The stateful operators of a checkpoint as of a batch; empty where they have no metadata. */
  def operatorMetadata(
      checkpoint: String,
      hadoopConf: Configuration,
      batch: Long
  ): Seq[OperatorStateMetadata] =
    new StateMetadataPartitionReader(checkpoint, new SerializableConfiguration(hadoopConf), batch)
      .allOperatorStateMetadata.toSeq

  /** The codec of changelogs. */
  def codec(name: String): CompressionCodec =
    CompressionCodec.createCodec(Option(SparkEnv.get).fold(new SparkConf)(_.conf), name)

  /** Why the task has failed already, if it has. */
  def failureOf(task: TaskContext): Option[Throwable] = task.getTaskFailure

  def unexpectedVersion(version: Long): Throwable =
    QueryExecutionErrors.unexpectedStateStoreVersion(version)

  def outOfMemory(storeId: String, cause: Throwable): Throwable =
    QueryExecutionErrors.notEnoughMemoryToLoadStore(storeId, "ROCKSDB_STORE_PROVIDER", cause)

  def commitFailed(store: String, cause: Throwable): Throwable =
    QueryExecutionErrors.failedToCommitStateFileError(store, cause)

  def invalidLineage(lineage: String, message: String): Throwable =
    QueryExecutionErrors.invalidCheckpointLineage(lineage, message)
}
