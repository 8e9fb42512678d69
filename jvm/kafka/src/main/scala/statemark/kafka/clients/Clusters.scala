package statemark.kafka.clients

import java.time.Duration
import org.apache.kafka.clients.admin.{Admin, AdminClientConfig}
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal
import statemark.kafka.conf.{ClientOptions, SinkException}

/** Which cluster brokers are of: addresses do not say it. ''Thread:'' any. */
object Clusters {

  /** Returns the id of the cluster to which settings of Kafka's clients lead.
    * @param kafka the settings, such as `bootstrap.servers`
    * @throws SinkException.Unavailable where the brokers do not say it
    */
  def idOf(kafka: Map[String, String]): String =
    try {
      val known = ClientOptions.of(AdminClientConfig.configNames.asScala.toSet, kafka)
      val admin = Admin.create(new java.util.HashMap[String, Object](known.asJava))
      try admin.describeCluster().clusterId().get()
      finally admin.close(Duration.ZERO)
    } catch {
      case NonFatal(e) if !KafkaFailures.isInterrupt(e) =>
        val cause = KafkaFailures.unwrapped(e)
        throw new SinkException.Unavailable(
          "It is not known whether a source reads from the sink's cluster",
          s"its brokers do not say which cluster they are: ${KafkaFailures.textOf(cause)}",
          "Are they up, and may the user ask them? Offsets go to option 'kafkaConsumerGroup' for topics of the " +
            "sink's own cluster",
          Map("bootstrap.servers" -> kafka.getOrElse("bootstrap.servers", "")),
          Some(e)
        )
    }
}
