package statemark.kafka.sim

import org.apache.kafka.clients.admin.{
  ListOffsetsOptions,
  ListTransactionsOptions,
  OffsetSpec,
  TransactionState
}
import org.apache.kafka.common.{IsolationLevel, TopicPartition}
import scala.jdk.CollectionConverters._
import statemark.common.Clock
import statemark.kafka.TestBrokers
import statemark.kafka.clients.Timer
import statemark.kafka.conf.{SinkIdentity, SinkTransactionalId}

/** What tests wait for. */
object Conditions {

  /** Waits until the brokers have ended every open transaction of the identity, as they do after a timeout. */
  def awaitNoOpenTransaction(brokers: TestBrokers, identity: SinkIdentity): Unit =
    while (openTransactions(brokers, identity).nonEmpty) Thread.onSpinWait()

  /** Waits until the brokers know of an open transaction of the id: clients from 4.0 on tell them with its first rows. */
  def awaitOpenTransaction(brokers: TestBrokers, identity: SinkIdentity, id: String): Unit =
    while (!openTransactions(brokers, identity)(id)) Thread.onSpinWait()

  /** Waits until readers can see every transaction that was committed: the brokers write its markers after they have
    * answered.
    */
  def awaitMarkers(brokers: TestBrokers, identity: SinkIdentity): Unit =
    while (transactions(brokers, identity, ending).nonEmpty) Thread.onSpinWait()

  /** Waits until a partition has a record of an open transaction, which holds its readers back. */
  def awaitOpenRecord(brokers: TestBrokers, place: TopicPartition): Unit = {
    def end(isolation: IsolationLevel) = brokers.admin.listOffsets(
      Map(place -> OffsetSpec.latest()).asJava,
      new ListOffsetsOptions(isolation)
    ).partitionResult(place).get().offset
    while (end(IsolationLevel.READ_COMMITTED) == end(IsolationLevel.READ_UNCOMMITTED))
      Thread.onSpinWait()
  }

  /** Waits until the brokers have dropped every id of the identity, as they do where nobody uses them. */
  def awaitNoId(brokers: TestBrokers, identity: SinkIdentity): Unit =
    while (ids(brokers, identity).nonEmpty) Thread.onSpinWait()

  /** Ids of the identity that the brokers know. */
  def ids(brokers: TestBrokers, identity: SinkIdentity): Set[String] =
    transactions(brokers, identity, Set.empty)

  private val ending = Set(TransactionState.PREPARE_ABORT, TransactionState.PREPARE_COMMIT)

  /** Those that nobody has asked the brokers to end. */
  def ongoing(brokers: TestBrokers, identity: SinkIdentity): Set[String] =
    transactions(brokers, identity, Set(TransactionState.ONGOING))

  /** Also those that the brokers are about to end. */
  def openTransactions(brokers: TestBrokers, identity: SinkIdentity): Set[String] =
    transactions(brokers, identity, ending + TransactionState.ONGOING)

  private def transactions(
      brokers: TestBrokers,
      identity: SinkIdentity,
      states: Set[TransactionState]
  ): Set[String] =
    brokers.admin.listTransactions(new ListTransactionsOptions().filterStates(states.asJava))
      .all().get().asScala.map(_.transactionalId)
      .filter(SinkTransactionalId.parse(_).exists(_.identity == identity)).toSet
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
