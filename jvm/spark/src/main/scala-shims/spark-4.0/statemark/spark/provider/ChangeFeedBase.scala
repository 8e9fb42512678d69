package statemark.spark.provider

import org.apache.spark.sql.execution.streaming.state._
import statemark.spark.process.Relocated

/** Spark's reader of changelogs in a row. Spark 4.0 reads format v1 only. */
abstract class ChangeFeedBase(
    context: ProviderContext,
    startVersion: Long,
    endVersion: Long,
    family: Option[String]
) extends StateStoreChangeDataReader(
      Relocated.CheckpointFileManager
        .create(context.location.directory, context.location.hadoopConf),
      context.location.directory,
      startVersion,
      endVersion,
      StatemarkBridge.codec(context.conf.spark.compressionCodec),
      family
    ) {
  override protected var changelogSuffix: String = "changelog"

  /** Which attempt each version is, in format v2. */
  protected val versionsAndUniqueIds: Array[(Long, Option[String])]
}
