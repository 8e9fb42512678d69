package statemark.conformance

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/** A provider that cannot open a store: the harness must report every suite that runs on it. */
final class BrokenProvider extends StateStoreProvider {
  private def broken: Nothing = throw new IllegalStateException("this provider never opens a store")

  override def init(
      stateStoreId: StateStoreId,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useColumnFamilies: Boolean,
      storeConfs: StateStoreConf,
      hadoopConf: Configuration,
      useMultipleValuesPerKey: Boolean,
      stateSchemaProvider: Option[StateSchemaProvider]
  ): Unit = broken

  override def stateStoreId: StateStoreId = broken

  override def close(): Unit = ()

  override def getStore(
      version: Long,
      stateStoreCkptId: Option[String],
      forceSnapshotOnCommit: Boolean,
      loadEmpty: Boolean
  ): StateStore = broken
}
