package statemark.spark

import org.apache.spark.sql.execution.streaming.state._

/** Spark's reader of changelogs in a row. */
abstract class ChangeFeedBase(
    context: ProviderContext,
    startVersion: Long,
    endVersion: Long,
    family: Option[String]
) extends StateStoreChangeDataReader(
      context.storeId,
      Relocated.CheckpointFileManager
        .create(context.storeId.storeCheckpointLocation(), context.hadoopConf),
      context.storeId.storeCheckpointLocation(),
      startVersion,
      endVersion,
      StatemarkBridge.codec(context.storeConf.compressionCodec),
      context.storeConf,
      family
    ) {
  override protected val changelogSuffix: String = "changelog"
}
