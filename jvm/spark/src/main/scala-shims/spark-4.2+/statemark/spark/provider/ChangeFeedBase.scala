package statemark.spark.provider

import org.apache.spark.sql.execution.streaming.state._
import statemark.spark.process.Relocated

/** Spark's reader of changelogs in a row. */
abstract class ChangeFeedBase(
    context: ProviderContext,
    startVersion: Long,
    endVersion: Long,
    family: Option[String]
) extends StateStoreChangeDataReader(
      context.location.storeId,
      Relocated.CheckpointFileManager
        .create(context.location.directory, context.location.hadoopConf),
      context.location.directory,
      startVersion,
      endVersion,
      StatemarkBridge.codec(context.conf.spark.compressionCodec),
      context.conf.spark,
      family
    ) {
  override protected val changelogSuffix: String = "changelog"
}
