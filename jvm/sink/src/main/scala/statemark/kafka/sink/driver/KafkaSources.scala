package statemark.kafka.sink.driver

import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation
import org.apache.spark.sql.execution.streaming.state.OutputQuery
import scala.jdk.CollectionConverters._
import statemark.kafka.conf.SinkSettings

/** Spark's Kafka sources of a query, by the options that they were given. */
private[sink] object KafkaSources {

  // Spark's connector is not on the class path of this project: its class is known by its name.
  private val Stream = "org.apache.spark.sql.kafka010.KafkaMicroBatchStream"
  private val Connection =
    Seq("bootstrap.servers", "security.", "sasl.", "ssl.", "config.providers")
  private val Name = "\"([^\"]+)\"\\s*:".r

  /** Returns the options of each source. */
  def of(query: OutputQuery): Seq[Map[String, String]] = query.plan().collect {
    case source: StreamingDataSourceV2ScanRelation if source.stream.getClass.getName == Stream =>
      source.relation.options.asCaseSensitiveMap.asScala.toMap
  }

  /** Returns the settings with which Kafka's clients come to the brokers of a source. */
  def connection(options: Map[String, String]): Map[String, String] =
    SinkSettings.kafkaOptions(options).filter { case (name, _) =>
      Connection.exists(name.startsWith)
    }

  /** Returns how to reach the brokers of a source, and the commit topic there.
    * @param more properties of Kafka's clients
    */
  def settings(
      options: Map[String, String],
      more: Map[String, String] = Map.empty
  ): SinkSettings = {
    val commitTopic = options.collectFirst {
      case (name, value) if name.equalsIgnoreCase("commitTopic") => "commitTopic" -> value
    }
    SinkSettings.of((more ++ connection(options)).map { case (name, value) =>
      s"kafka.$name" -> value
    } ++ commitTopic)
  }

  /** Tells whether a source reads a topic. */
  def topics(options: Map[String, String]): String => Boolean = {
    val named = names(options).toSeq.flatten
    val pattern = option(options, "subscribePattern").map(_.trim)
    topic => named.contains(topic) || pattern.exists(topic.matches)
  }

  /** Returns the topics that a source names; None where it reads those of a pattern. */
  def names(options: Map[String, String]): Option[Seq[String]] =
    option(options, "subscribe").map(_.split(',').toSeq.map(_.trim)).orElse(
      // {"orders": [0, 1]}
      option(options, "assign").map(Name.findAllMatchIn(_).map(_.group(1)).toSeq)
    )

  private def option(options: Map[String, String], name: String): Option[String] =
    options.collectFirst { case (n, v) if n.equalsIgnoreCase(name) => v }
}
