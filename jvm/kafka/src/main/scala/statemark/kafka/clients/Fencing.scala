package statemark.kafka.clients

import org.apache.kafka.clients.admin.{
  Admin,
  FenceProducersOptions,
  ListTransactionsOptions,
  TransactionState
}
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal
import statemark.kafka.conf.{SinkIdentity, SinkSettings, SinkTransactionalId}

/** Takes transactional ids from whoever has them. ''Thread:'' the driver's. */
trait Fencing {

  /** Ids of the identity, with one of these prefixes, whose transactions are open.
    * @return or why it is not known: open transactions then end with their timeout, and hold readers back until then
    */
  def open(identity: SinkIdentity, prefixes: Set[String]): Either[String, Set[String]]

  /** Initializes the ids: when it returns, each transaction of theirs is committed or aborted, and its producer can do
    * nothing more.
    */
  def fence(ids: Set[String]): Unit
}

private[kafka] final class AdminFencing(admin: Admin, settings: SinkSettings) extends Fencing {

  // The client sends its limit for the call as the transaction timeout, by default that of requests, and brokers refuse one
  // above theirs. They have taken the sink's own.
  private val options = {
    val ofRequests = settings.kafka.get("request.timeout.ms").flatMap(_.trim.toIntOption)
    val limits = Seq(settings.transactionTimeoutMs, AdminFencing.MostMs) ++ ofRequests.map(_.toLong)
    new FenceProducersOptions().timeoutMs(limits.min.toInt)
  }

  override def open(
      identity: SinkIdentity,
      prefixes: Set[String]
  ): Either[String, Set[String]] =
    try {
      val ongoing = new ListTransactionsOptions().filterStates(Set(TransactionState.ONGOING).asJava)
      val ids = admin.listTransactions(ongoing).all().get().asScala.map(_.transactionalId)
      Right(ids.filter { id =>
        SinkTransactionalId.parse(id)
          .exists(parsed => parsed.identity == identity && prefixes.contains(parsed.prefix))
      }.toSet)
    } catch {
      case NonFatal(e) =>
        Left(s"Open transactions of earlier runs are not known: ${KafkaFailures.unwrapped(e)}")
    }

  override def fence(ids: Set[String]): Unit =
    if (ids.nonEmpty)
      try admin.fenceProducers(ids.asJava, options).all().get(): Unit
      catch { case NonFatal(e) => throw KafkaFailures.unwrapped(e) }
}

private object AdminFencing {
  val MostMs = 60000L
}
