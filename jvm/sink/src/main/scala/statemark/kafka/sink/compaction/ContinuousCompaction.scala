package statemark.kafka.sink.compaction

import org.apache.spark.sql.functions.{col, expr, max}
import org.apache.spark.sql.streaming.{OutputMode, StreamingQuery, Trigger}
import org.apache.spark.sql.{DataFrame, SparkSession}
import org.slf4j.LoggerFactory
import scala.annotation.tailrec
import statemark.kafka.compaction.{
  CompactionProgress,
  CompactionSettings,
  MissingVersion,
  VersionRule
}
import statemark.kafka.conf.{SinkException, SinkSettings}

/** A query that repairs a topic for as long as it runs: it reads the topic, keeps the winner of each key in its state, and
  * writes it to the topic again where another record was the last one of its key. Its own records come back to it as the
  * last ones, and then nothing is wrong.
  *
  * State remembers deletions too: a record that is late by more than `delete.retention.ms` finds the tombstone that the
  * cleaner has taken long ago.
  *
  * @param triggerMs between batches
  */
private[sink] final case class ContinuousCompaction(
    settings: CompactionSettings,
    sink: SinkSettings,
    checkpoint: String,
    triggerMs: Long
) {
  import ContinuousCompaction._

  /** Runs until the query ends, by a failure, or by whoever listens.
    * @param requireFit asked now and then; throws where the topic's settings do not allow the query any more
    */
  def run(spark: SparkSession, progress: CompactionProgress)(requireFit: () => Unit): Unit = {
    val query = start(spark)
    progress.said(
      s"topic ${settings.topic} is repaired as query ${query.id}, until this command is stopped"
    )
    @tailrec def watch(looks: Int): Unit = {
      if (looks % LooksBetweenChecks == LooksBetweenChecks - 1)
        // Brokers that do not answer are the query's affair.
        try requireFit()
        catch { case e: SinkException.Unavailable => progress.said(e.getMessage) }
      if (!progress.isStopped && !query.awaitTermination(LookMs)) watch(looks + 1)
    }
    try watch(0)
    finally {
      if (progress.isStopped) mute(spark)
      query.stop()
    }
  }

  /** Mutes Spark, which calls it an error that a query's end interrupts its tasks. Whoever asked for its logs keeps them. */
  private def mute(spark: SparkSession): Unit =
    if (!LoggerFactory.getLogger(classOf[SparkSession]).isInfoEnabled)
      spark.sparkContext.setLogLevel("OFF")

  def start(spark: SparkSession): StreamingQuery = {
    if (!spark.conf.getAll.contains(ProviderKey)) spark.conf.set(ProviderKey, Provider)
    repairs(spark).writeStream
      .format("statemark-kafka")
      .outputMode(OutputMode.Update)
      .options(kafkaOptions)
      .option("topic", settings.topic)
      .option("commitTopic", sink.commitTopic)
      .option("sinkName", SinkName)
      // What it may be is checked for the whole topic, and records that are copied twice do no harm.
      .option("allowShortCompactionLag", "true")
      .option("checkpointLocation", checkpoint)
      .trigger(Trigger.ProcessingTime(triggerMs))
      .start()
  }

  /** Winners that are not the last records of their keys, among the keys that a batch has records of. */
  private def repairs(spark: SparkSession): DataFrame =
    spark.readStream
      .format("kafka")
      .options(kafkaOptions)
      .option("kafka.isolation.level", "read_committed")
      .option("subscribe", settings.topic)
      .option("startingOffsets", "earliest")
      .option("includeHeaders", "true")
      .load()
      .where(col("key").isNotNull)
      .select(
        col("partition"),
        col("key"),
        col("offset"),
        expr(
          "named_struct('row', struct(key, value, headers, timestamp, partition, offset), " +
            s"'version', $version, 'topic', topic, 'partition', partition, 'offset', offset, " +
            s"'timestamp', timestamp, 'rule', ${settings.rule.name.hashCode}L)"
        ).as("candidate")
      )
      .groupBy(col("partition"), col("key"))
      .agg(expr("statemark_latest(candidate)").as("winner"), max(col("offset")).as("last"))
      .where(col("winner.offset") =!= col("last"))
      .select(
        col("winner.key"),
        col("winner.value"),
        col("winner.headers"),
        // Of a record without a timestamp it is -1, which nobody may write.
        expr("IF(unix_millis(winner.timestamp) < 0, NULL, winner.timestamp)").as("timestamp"),
        col("winner.partition")
      )

  private def version: String = settings.rule match {
    case VersionRule.Timestamp => "unix_micros(timestamp)"
    case VersionRule.Header(key) =>
      // Bytes need no escapes, which a session's settings may change.
      val name = s"CAST(X'${key.getBytes("UTF-8").map(b => f"$b%02x").mkString}' AS STRING)"
      val value = s"try_element_at(filter(headers, h -> h.key = $name), -1).value"
      val without = settings.missing match {
        case MissingVersion.Oldest => "NULL"
        case MissingVersion.Refuse =>
          "raise_error(concat('--missing refuse: no header of 8 bytes with the version, partition ', partition, " +
            "', offset ', offset))"
      }
      s"IF(length($value) = 8, CAST(conv(hex($value), 16, -10) AS BIGINT), CAST($without AS BIGINT))"
  }

  private def kafkaOptions: Map[String, String] =
    sink.kafka.map { case (name, value) => s"kafka.$name" -> value }
}

private[sink] object ContinuousCompaction {
  private val ProviderKey = "spark.sql.streaming.stateStore.providerClass"
  private val Provider = "statemark.spark.StatemarkStateStoreProvider"
  private val SinkName = "compaction"
  private val LookMs = 500L
  private val LooksBetweenChecks = 20
}
