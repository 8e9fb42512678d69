package statemark.kafka.clients

import scala.util.Using
import scala.util.control.NonFatal
import statemark.kafka.conf.{SinkException, SinkSettings}

/** Which cluster brokers are of: addresses do not say it. ''Thread:'' any. */
object Clusters {

  /** Returns the id of the cluster to which settings of Kafka's clients lead.
    * @param kafka the settings, such as `bootstrap.servers`
    * @throws SinkException where the brokers do not say it, or do not let the user in
    */
  def idOf(kafka: Map[String, String]): String =
    try {
      val settings = SinkSettings.of(kafka.map { case (name, value) => s"kafka.$name" -> value })
      Using.resource(KafkaClients.of(settings).admin())(_.describeCluster().clusterId().get())
    } catch {
      case e: SinkException => throw e
      case NonFatal(e) if KafkaFailures.isNotLoggedIn(e) =>
        throw KafkaFailures.ofLogin(KafkaFailures.unwrapped(e), Unknown, valuesOf(kafka))
      case NonFatal(e) if !KafkaFailures.isInterrupt(e) =>
        val cause = KafkaFailures.unwrapped(e)
        throw new SinkException.Unavailable(
          Unknown,
          s"its brokers do not say which cluster they are: ${KafkaFailures.textOf(cause)}",
          "Are they up, and may the user ask them? Offsets go to option 'kafkaConsumerGroup' for topics of the " +
            "sink's own cluster",
          valuesOf(kafka),
          Some(e)
        )
    }

  private val Unknown = "It is not known whether a source reads from the sink's cluster"

  private def valuesOf(kafka: Map[String, String]) =
    kafka.filter(_._1 == SinkSettings.BootstrapServers)
}
