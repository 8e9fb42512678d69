package statemark.kafka.clients

import java.time.Duration
import java.util.concurrent.TimeUnit
import org.apache.kafka.clients.admin.{Admin, TransactionState}
import scala.util.control.NonFatal
import statemark.kafka.conf.{SinkException, SinkSettings}

/** Says why a transaction was ended from outside. The client says "a newer producer with the same transactionalId" also
  * where the broker has only waited long enough, so the brokers are asked.
  */
private[kafka] final class TransactionEndings(clients: KafkaClients, settings: SinkSettings) {

  /** A failure of an attempt as somebody who runs a query can use it. */
  def explained(
      transactionalId: String,
      failure: Throwable,
      values: Map[String, String]
  ): SinkException =
    if (KafkaFailures.isTimeout(failure) || KafkaFailures.isFenced(failure))
      unfitTopic(values).getOrElse(ofTimeout(transactionalId, failure, values))
    else KafkaFailures.ofAttempt(failure, "A write to Kafka", values)

  /** Where rows name their topics, only executors know them, and a topic that is not fit shows as a timeout. */
  private def unfitTopic(values: Map[String, String]): Option[SinkException] =
    values.get("topic").flatMap { topic =>
      try {
        asking(TopicChecks.output(_, settings, topic)): Unit
        None
      } catch {
        case e: SinkException.RefusedSetting => Some(e)
        case NonFatal(_) => None
      }
    }

  private def ofTimeout(
      transactionalId: String,
      failure: Throwable,
      values: Map[String, String]
  ): SinkException =
    if (!KafkaFailures.isFenced(failure))
      KafkaFailures.ofAttempt(failure, "A write to Kafka", values)
    else {
      val all = values + ("transactionalId" -> transactionalId)
      stateOf(transactionalId) match {
        case Some(state) if Aborted(state) =>
          new SinkException.FailedWrite(
            "A transaction timed out",
            s"the broker ended it after ${settings.transactionTimeoutMs} ms",
            "Raise kafka.transaction.timeout.ms and the brokers' transaction.max.timeout.ms",
            all + ("transaction.timeout.ms" -> settings.transactionTimeoutMs.toString),
            Some(failure)
          )
        case Some(state) =>
          new SinkException.Superseded(
            s"the transaction was ended by another producer of its id, which is in state $state now",
            all,
            Some(failure)
          )
        case None =>
          new SinkException.FailedWrite(
            "A transaction was ended",
            "by the broker, as it was open for too long, or by another run of the sink: the brokers do not say",
            "Is another run of the sink under way? Else raise kafka.transaction.timeout.ms; the right to " +
              "DESCRIBE transactional ids lets the sink find out",
            all + ("transaction.timeout.ms" -> settings.transactionTimeoutMs.toString),
            Some(failure)
          )
      }
    }

  /** Whether the last transaction of the id was aborted: by the broker, if nobody else uses the id. */
  def isEndedByBroker(transactionalId: String): Boolean =
    stateOf(transactionalId).contains(TransactionState.COMPLETE_ABORT)

  /** Whether the last transaction of the id is aborted, or is about to be: who has that done, the brokers do not say. */
  def isAborted(transactionalId: String): Boolean = stateOf(transactionalId).exists(Aborted)

  private def stateOf(transactionalId: String): Option[TransactionState] =
    try
      Some(asking {
        _.describeTransactions(java.util.List.of(transactionalId))
          .description(transactionalId).get(PatienceMs, TimeUnit.MILLISECONDS).state
      })
    catch { case NonFatal(_) => None }

  private def asking[A](question: Admin => A): A = {
    val admin = clients.admin()
    try question(admin)
    finally admin.close(Duration.ZERO)
  }

  private val Aborted = Set(TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
  private val PatienceMs = 10000L
}
