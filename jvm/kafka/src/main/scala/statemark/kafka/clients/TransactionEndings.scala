package statemark.kafka.clients

import java.time.Duration
import java.util.concurrent.TimeUnit
import org.apache.kafka.clients.admin.TransactionState
import scala.util.Try
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
    if (!KafkaFailures.isFenced(failure))
      KafkaFailures.ofAttempt(failure, "A write to Kafka", values)
    else {
      val all = values + ("transactionalId" -> transactionalId)
      stateOf(transactionalId) match {
        case Some(TransactionState.COMPLETE_ABORT | TransactionState.PREPARE_ABORT) =>
          new SinkException.FailedWrite(
            "A transaction timed out",
            s"the broker ended it after ${settings.transactionTimeoutMs} ms",
            "Raise kafka.transaction.timeout.ms and the brokers' transaction.max.timeout.ms",
            all + ("transaction.timeout.ms" -> settings.transactionTimeoutMs.toString),
            isRetryable = true,
            Some(failure)
          )
        case state =>
          val seen = state.fold("the brokers do not say why")(s => s"its id is in state $s now")
          new SinkException.Superseded(
            s"the transaction was ended by another producer of its id, and $seen",
            all,
            Some(failure)
          )
      }
    }

  /** Whether the last transaction of the id was aborted, and nobody has initialized the id since. */
  def isEndedByBroker(transactionalId: String): Boolean =
    stateOf(transactionalId).contains(TransactionState.COMPLETE_ABORT)

  private def stateOf(transactionalId: String): Option[TransactionState] =
    try {
      val admin = clients.admin()
      try
        Try(
          admin.describeTransactions(java.util.List.of(transactionalId))
            .description(transactionalId).get(PatienceMs, TimeUnit.MILLISECONDS).state
        ).toOption
      finally admin.close(Duration.ZERO)
    } catch { case NonFatal(_) => None }

  private val PatienceMs = 10000L
}
