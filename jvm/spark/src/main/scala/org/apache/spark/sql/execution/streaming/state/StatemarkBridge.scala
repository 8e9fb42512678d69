package org.apache.spark.sql.execution.streaming.state

import java.io.File
import java.util.UUID
import org.apache.hadoop.conf.Configuration
import org.apache.spark.{SparkConf, SparkEnv}
import org.apache.spark.io.CompressionCodec
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.execution.datasources.v2.state.metadata.StateMetadataPartitionReader
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.util.SerializableConfiguration

/** The members of Spark that Statemark needs and that Spark keeps to its own packages. Nothing else
  * lives in a package of Spark's.
  */
object StatemarkBridge extends BridgeShims {
  def runId(hadoopConf: Configuration): UUID = UUID.fromString(runIdOf(hadoopConf))

  /** A new directory in the executor's local directories, gone with the executor. */
  def newLocalDirectory(prefix: String): File =
    temporaryDirectory(Option(SparkEnv.get).map(_.conf).getOrElse(new SparkConf), prefix)

  /** The file system settings of a session, its SQL settings included. */
  def hadoopConf(spark: SparkSession): Configuration = spark.sessionState.newHadoopConf()

  /** A copy of a session's settings. */
  def settings(spark: SparkSession): SQLConf = spark.sessionState.conf.clone()

  /** The stateful operators of a checkpoint as of a batch; empty where they have no metadata. */
  def operatorMetadata(
      checkpoint: String,
      hadoopConf: Configuration,
      batch: Long
  ): Seq[OperatorStateMetadata] =
    new StateMetadataPartitionReader(checkpoint, new SerializableConfiguration(hadoopConf), batch)
      .allOperatorStateMetadata.toSeq

  /** Whether a call failed because there is no coordinator: the session never had a streaming query.
    * The class of the failure is private to Spark's package of remote calls.
    */
  def lacksCoordinator(failure: Throwable): Boolean =
    Iterator.iterate(failure)(_.getCause).takeWhile(_ != null)
      .exists(_.getClass.getSimpleName == "RpcEndpointNotFoundException")

  /** The codec of changelogs. */
  def codec(name: String): CompressionCodec =
    CompressionCodec.createCodec(Option(SparkEnv.get).fold(new SparkConf)(_.conf), name)

  def unexpectedVersion(version: Long): Throwable =
    QueryExecutionErrors.unexpectedStateStoreVersion(version)

  def outOfMemory(storeId: String, cause: Throwable): Throwable =
    QueryExecutionErrors.notEnoughMemoryToLoadStore(storeId, "ROCKSDB_STORE_PROVIDER", cause)

  def commitFailed(store: String, cause: Throwable): Throwable =
    QueryExecutionErrors.failedToCommitStateFileError(store, cause)
}
