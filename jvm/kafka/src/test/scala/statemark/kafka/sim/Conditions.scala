package statemark.kafka.sim

import org.apache.kafka.clients.admin.{ListTransactionsOptions, TransactionState}
import scala.jdk.CollectionConverters._
import statemark.common.Clock
import statemark.kafka._

/** What tests wait for. */
object Conditions {

  /** Waits until the brokers have ended every open transaction of the identity, as they do after a timeout. */
  def awaitNoOpenTransaction(brokers: TestBrokers, identity: SinkIdentity): Unit =
    while (openTransactions(brokers, identity).nonEmpty) Thread.onSpinWait()

  def openTransactions(brokers: TestBrokers, identity: SinkIdentity): Set[String] = {
    // Also those that the brokers are about to end.
    val states = Set(
      TransactionState.ONGOING,
      TransactionState.PREPARE_ABORT,
      TransactionState.PREPARE_COMMIT
    )
    brokers.admin.listTransactions(new ListTransactionsOptions().filterStates(states.asJava))
      .all().get().asScala.map(_.transactionalId)
      .filter(SinkTransactionalId.parse(_).exists(_.identity == identity)).toSet
  }
}

/** Never calls back. */
object NoTimer extends Timer {
  override def after(ms: Long)(body: => Unit): Timer.Cancel = () => ()
}

/** Stands still until it is moved. */
final class ManualClock extends Clock {
  @volatile private var now = 0L
  def advanceMs(ms: Long): Unit = synchronized(now += ms * 1000000L)
  override def nanos(): Long = now
  override def epochMs(): Long = now / 1000000L
}
