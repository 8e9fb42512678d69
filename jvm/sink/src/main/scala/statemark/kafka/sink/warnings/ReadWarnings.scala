package statemark.kafka.sink.warnings

import java.util.UUID
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation
import org.apache.spark.sql.execution.streaming.state.OutputQuery
import org.slf4j.LoggerFactory
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal
import statemark.kafka.conf.SinkSettings
import statemark.kafka.driver.WrittenTopics
import statemark.kafka.sink.driver.Recent
import statemark.spark.process.BackgroundThreads

/** Warns once in a run of a query that reads what this sink writes without `read_committed`. Which topics those are, the
  * commit topic says: option `commitTopic` of the source, which Spark ignores, or the default.
  */
private object ReadWarnings {
  private val log = LoggerFactory.getLogger(ReadWarnings.getClass)
  private val checked = new Recent[UUID]
  // A query does not wait for what it is warned of.
  private lazy val reading = BackgroundThreads.pool("statemark-kafka-warnings", threads = 1)

  // Spark's connector is not on the class path of this project: its class is known by its name.
  private val Stream = "org.apache.spark.sql.kafka010.KafkaMicroBatchStream"
  private val Connection =
    Seq("bootstrap.servers", "security.", "sasl.", "ssl.", "config.providers")

  /** @param isWanted asked where there is something to warn of */
  def check(query: OutputQuery, isWanted: => Boolean): Unit = if (checked.add(query.runId)) {
    val sources = query.plan().collect {
      case source: StreamingDataSourceV2ScanRelation if source.stream.getClass.getName == Stream =>
        source.relation.options.asCaseSensitiveMap.asScala.toMap
    }
    val others = sources.filterNot(isCommittedOnly).distinct
    if (others.nonEmpty && isWanted)
      others.foreach(options => reading.execute(() => checkSource(query, options)))
  }

  private def isCommittedOnly(options: Map[String, String]): Boolean =
    SinkSettings.kafkaOptions(options).get("isolation.level").contains("read_committed")

  private def checkSource(query: OutputQuery, options: Map[String, String]): Unit =
    try {
      val kafka = SinkSettings.kafkaOptions(options).filter { case (name, _) =>
        Connection.exists(name.startsWith)
      }
      val commitTopic = options.collectFirst {
        case (name, value) if name.equalsIgnoreCase("commitTopic") => "commitTopic" -> value
      }
      val settings = SinkSettings.of(kafka.map { case (name, value) =>
        s"kafka.$name" -> value
      } ++ commitTopic)
      val written = WrittenTopics.of(settings)(SourceTopics.of(options)).toSeq.sorted
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

/** The topics that Spark's source reads, as its options say. */
private[sink] object SourceTopics {
  private val Name = "\"([^\"]+)\"\\s*:".r

  /** Tells whether a topic is read. */
  def of(options: Map[String, String]): String => Boolean = {
    def option(name: String) = options.collectFirst { case (n, v) if n.equalsIgnoreCase(name) => v }
    val names = option("subscribe").toSeq.flatMap(_.split(',')).map(_.trim) ++
      // {"orders": [0, 1]}
      option("assign").toSeq.flatMap(Name.findAllMatchIn(_).map(_.group(1)))
    val pattern = option("subscribePattern").map(_.trim)
    topic => names.contains(topic) || pattern.exists(topic.matches)
  }
}
