package statemark.kafka.sink.warnings

import java.util.UUID
import org.apache.spark.sql.execution.streaming.state.OutputQuery
import org.slf4j.LoggerFactory
import scala.util.control.NonFatal
import statemark.kafka.conf.SinkSettings
import statemark.kafka.driver.WrittenTopics
import statemark.kafka.sink.driver.{KafkaSources, Recent}
import statemark.spark.process.BackgroundThreads

/** Warns once in a run of a query that reads what this sink writes without `read_committed`. Which topics those are, the
  * commit topic says: option `commitTopic` of the source, which Spark ignores, or the default.
  */
private object ReadWarnings {
  private val log = LoggerFactory.getLogger(ReadWarnings.getClass)
  private val checked = new Recent[UUID]
  // A query does not wait for what it is warned of.
  private lazy val reading = BackgroundThreads.pool("statemark-kafka-warnings", threads = 1)

  /** @param isWanted asked where there is something to warn of */
  def check(query: OutputQuery, isWanted: => Boolean): Unit = if (checked.add(query.runId)) {
    val others = KafkaSources.of(query).filterNot(isCommittedOnly).distinct
    if (others.nonEmpty && isWanted)
      others.foreach(options => reading.execute(() => checkSource(query, options)))
  }

  private def isCommittedOnly(options: Map[String, String]): Boolean =
    SinkSettings.kafkaOptions(options).get("isolation.level").contains("read_committed")

  private def checkSource(query: OutputQuery, options: Map[String, String]): Unit =
    try {
      val settings = KafkaSources.settings(options)
      val written = WrittenTopics.of(settings)(KafkaSources.topics(options)).toSeq.sorted
      if (written.nonEmpty) KafkaWarnings.warn(
        query,
        s"reads ${written.mkString(", ")} without kafka.isolation.level=read_committed: it may see rows twice, and rows of tries " +
          "that failed. Set the option on the source."
      )
    } catch {
      case e @ (NonFatal(_) | _: LinkageError) => log.info(
          s"Whether query ${query.name.getOrElse(query.id)} reads what transactions write, could not be found out.",
          e
        )
    }
}
