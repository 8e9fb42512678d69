package statemark.kafka.tools

import org.apache.kafka.common.KafkaException
import org.apache.kafka.common.config.ConfigException
import org.apache.kafka.common.errors.{ApiException, TimeoutException, UnsupportedVersionException}
import scala.util.control.NonFatal
import statemark.common.Causes
import statemark.kafka.clients.{ClientErrors, KafkaFailures}
import statemark.kafka.conf.{SinkException, SinkSettings}

/** Failures of what a tool asks of brokers, as somebody who typed a command can use them. */
private[kafka] object BrokerAnswers {

  /** Runs `body`.
    * @param problem what cannot be done where it fails
    * @throws SinkException where Kafka's client throws
    */
  def asking[A](settings: SinkSettings, problem: String)(body: => A): A =
    try body
    catch {
      case NonFatal(e) => throw explained(settings, problem, KafkaFailures.unwrapped(e))
    }

  private def explained(settings: SinkSettings, problem: String, failure: Throwable): Throwable = {
    val values = Map("bootstrap.servers" -> settings.bootstrapServers)
    def unfit(reason: String, remedy: String) =
      new SinkException.UnfitCluster(problem, reason, remedy, values, Some(failure))
    failure match {
      case e: SinkException => e
      case e if KafkaFailures.isInterrupt(e) => e
      case e if KafkaFailures.isNotLoggedIn(e) => KafkaFailures.ofLogin(e, problem, values)
      case e if KafkaFailures.isDenied(e) =>
        unfit(
          s"the user may not: ${SinkException.sentence(e.getMessage)}",
          "Grant what the documents' table of access says, or log in as another user"
        )
      case e: TimeoutException =>
        new SinkException.Unavailable(
          problem,
          s"the brokers gave no answer: ${SinkException.sentence(e.getMessage)}",
          "Are the addresses right, is the protocol the brokers' (security.protocol), and are they up?",
          values,
          Some(e)
        )
      case _: UnsupportedVersionException =>
        unfit(
          s"the brokers are too old: ${SinkException.sentence(failure.getMessage)}",
          "Use Kafka 3.0 or later for this command"
        )
      case e: ApiException =>
        unfit(
          s"the brokers answered: ${SinkException.sentence(e.getMessage)}",
          ClientErrors.meaningOf(e).remedy
        )
      case e: KafkaException =>
        // A client that cannot be made says no more than that; its cause does.
        val causes = Causes.of(e).toVector
        val setting = causes.find(_.isInstanceOf[ConfigException])
        val why = SinkException.sentence(setting.getOrElse(causes.last).getMessage)
        new SinkException.RefusedSetting(
          problem,
          s"Kafka's client ${setting.fold("failed")(_ => "cannot be made")}: $why",
          "Correct the addresses, or the file of client properties",
          values
        )
      case e => e
    }
  }
}
