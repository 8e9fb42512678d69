package statemark.kafka.clients

import java.util.concurrent.TimeUnit
import org.apache.kafka.clients.admin.{Admin, TransactionState}
import org.apache.kafka.common.errors.TransactionalIdNotFoundException
import scala.util.control.NonFatal
import statemark.kafka.conf.{SinkException, SinkSettings}

/** Says why a transaction was ended from outside. The client says "a newer producer with the same transactionalId" also
  * where the broker has only waited long enough, and its state at the brokers may be the same then.
  */
private[kafka] final class TransactionEndings(clients: KafkaClients, settings: SinkSettings) {

  /** A failure of an attempt as somebody who runs a query can use it.
    * @param openMs for how long the transaction had been open; None where none was
    * @param laterRun the later run of the sink that is known, if one is
    */
  def explained(
      transactionalId: String,
      failure: Throwable,
      values: Map[String, String],
      openMs: Option[Long],
      laterRun: () => Option[SinkException.Superseded]
  ): SinkException = failure match {
    case e: SinkException.Superseded => e
    case e if KafkaFailures.isTimeout(e) || KafkaFailures.isEnded(e) =>
      unfitTopic(values).getOrElse {
        if (KafkaFailures.isEnded(e))
          laterRun().map(later =>
            new SinkException.Superseded(later.reason, values ++ later.values, Some(e))
          ).getOrElse(ended(e, values + ("transactionalId" -> transactionalId), openMs))
        else KafkaFailures.ofAttempt(e, "A write to Kafka", values)
      }
    case e => KafkaFailures.ofAttempt(e, "A write to Kafka", values)
  }

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

  private def ended(
      failure: Throwable,
      values: Map[String, String],
      openMs: Option[Long]
  ): SinkException = {
    val timeoutMs = settings.transactionTimeoutMs
    val all = values ++ openMs.map("openMs" -> _.toString) +
      ("transaction.timeout.ms" -> timeoutMs.toString)
    if (openMs.exists(_ > timeoutMs)) new SinkException.FailedWrite(
      "A transaction timed out",
      s"the broker ended it after $timeoutMs ms",
      "Raise kafka.transaction.timeout.ms and the brokers' transaction.max.timeout.ms",
      all,
      Some(failure)
    )
    else new SinkException.FailedWrite(
      "A transaction was ended",
      "no later run of the sink is known: the driver has given this executor up, or an executor of " +
        s"an earlier run had its id, or this machine stood still for more than $timeoutMs ms",
      "The task that runs again has the id back. Where it happens often, is another run of the sink " +
        "still under way?",
      all,
      Some(failure)
    )
  }

  /** Tells whether the brokers have dropped the id, which nobody has used for `transactional.id.expiration.ms`; None where
    * they do not say.
    * @param idleMs for how long it was not used: they are not asked for one that was used lately
    */
  def isForgotten(transactionalId: String, idleMs: Long): Option[Boolean] =
    try {
      if (idleMs > AskAfterMs) described(transactionalId): Unit
      Some(false)
    } catch {
      case NonFatal(e) =>
        Option.when(KafkaFailures.unwrapped(e).isInstanceOf[TransactionalIdNotFoundException])(true)
    }

  /** Whether the last transaction of the id is aborted, or is about to be: who has that done, the brokers do not say. */
  def isAborted(transactionalId: String): Boolean = stateOf(transactionalId).exists(Aborted)

  private def stateOf(transactionalId: String): Option[TransactionState] =
    try Some(described(transactionalId))
    catch { case NonFatal(_) => None }

  private def described(transactionalId: String): TransactionState = asking {
    _.describeTransactions(java.util.List.of(transactionalId))
      .description(transactionalId).get(PatienceMs, TimeUnit.MILLISECONDS).state
  }

  private def asking[A](question: Admin => A): A = {
    val admin = clients.admin()
    try question(admin)
    finally admin.close()
  }

  private val Aborted = Set(TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
  private val PatienceMs = 10000L
  // Brokers remember an id for longer.
  private val AskAfterMs = 60000L
}
