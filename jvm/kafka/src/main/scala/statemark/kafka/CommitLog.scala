package statemark.kafka

import java.time.Duration
import java.util.Collections
import org.apache.kafka.clients.admin.{Admin, ListOffsetsOptions, OffsetSpec}
import org.apache.kafka.common.{IsolationLevel, TopicPartition}
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.jdk.OptionConverters._
import scala.util.Try
import scala.util.control.NonFatal
import statemark.common.Clock

/** Reads the commit topic. ''Thread:'' the driver's. */
trait CommitLog {

  /** What it says of one identity, up to everything that was sent before the call: of a transaction that is open, the
    * outcome is waited for.
    * @throws SinkException.Unavailable where the end does not come within the transaction timeout
    */
  def read(identity: SinkIdentity): CommitState

  /** What it says of every identity, in all partitions. */
  def readAll(): Map[SinkIdentity, CommitState]
}

/** The commit topic as the brokers have it.
  * @param end up to where it is read: behind records whose transactions are open, too. What lies behind one that is
  *   somebody else's would be missed otherwise
  */
private[kafka] final class TopicCommitLog(
    clients: KafkaClients,
    admin: Admin,
    settings: SinkSettings,
    clock: Clock,
    end: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
) extends CommitLog {
  import TopicCommitLog.Known

  // What was read stays read: the topic only grows.
  private val known = mutable.Map.empty[TopicPartition, Known]

  override def read(identity: SinkIdentity): CommitState = {
    val place = CommitTopic.partitionOf(settings, identity)
    readPartition(place)
    known(place).states.getOrElse(identity, CommitState.empty)
  }

  override def readAll(): Map[SinkIdentity, CommitState] = {
    val count = TopicChecks.describe(admin, settings.commitTopic)
      .fold(CommitTopic.Partitions)(_.partitions.size)
    val places = (0 until count).map(new TopicPartition(settings.commitTopic, _))
    places.foreach(readPartition)
    places.flatMap(known(_).states).toMap
  }

  private def readPartition(place: TopicPartition): Unit = {
    val end = endOf(place)
    val next = known.get(place).fold(0L)(_.next)
    if (end < next) throw new SinkException.WrongHistory(
      "The commit topic was made anew while the sink ran",
      "it ends before what was read of it already",
      "Bring the old topic back, or start anew with another 'sinkName'",
      Map("partition" -> place.toString, "end" -> end.toString, "read" -> next.toString)
    )
    if (end > next) {
      val consumer = clients.consumer(committedOnly = true)
      try readTo(consumer, place, end)
      finally consumer.close()
    } else if (!known.contains(place)) known(place) = Known(end, Map.empty)
  }

  /** The end as a reader of everything sees it: behind records whose transaction is open. */
  private def endOf(place: TopicPartition): Long =
    admin.listOffsets(
      Collections.singletonMap(place, OffsetSpec.latest()),
      new ListOffsetsOptions(end)
    ).partitionResult(place).get().offset

  private def readTo(consumer: RowConsumer, place: TopicPartition, end: Long): Unit = {
    consumer.assign(Collections.singleton(place))
    known.get(place).map(_.next) match {
      case Some(next) => consumer.seek(place, next)
      case None => consumer.seekToBeginning(Collections.singleton(place))
    }
    val begun = clock.nanos()
    var states = known.get(place).fold(Map.empty[SinkIdentity, CommitState])(_.states)
    while (consumer.position(place) < end) {
      if (clock.nanos() - begun > settings.transactionTimeoutMs * 1000000L)
        throw blocked(place, consumer.position(place), end)
      consumer.poll(TopicCommitLog.Poll).records(place).asScala.foreach { record =>
        val identity = RecordCodec.identityOf(record.key)
        val state = states.getOrElse(identity, CommitState.empty)
          .updated(record.key, Option(record.value))
        states = states.updated(identity, state)
      }
    }
    known(place) = Known(consumer.position(place), states)
  }

  private def blocked(place: TopicPartition, position: Long, end: Long): SinkException =
    new SinkException.Unavailable(
      "The commit topic cannot be read to its end",
      "a transaction that is open there holds its readers back" + blocker(place).getOrElse(""),
      "End the transaction that is named, with its application or with kafka-transactions.sh " +
        "abort, and start the query again",
      Map(
        "partition" -> place.toString,
        "position" -> position.toString,
        "end" -> end.toString,
        "transaction.timeout.ms" -> settings.transactionTimeoutMs.toString
      )
    )

  /** Whose transaction it is that began first (K14). */
  private def blocker(place: TopicPartition): Option[String] =
    try {
      val producers = admin.describeProducers(Collections.singleton(place))
        .partitionResult(place).get().activeProducers.asScala
      producers.filter(_.currentTransactionStartOffset.isPresent)
        .minByOption(_.currentTransactionStartOffset.getAsLong).map { producer =>
          val id = Try(
            admin.listTransactions().all().get().asScala
              .find(_.producerId == producer.producerId).map(_.transactionalId)
          ).toOption.flatten
          s": producer ${producer.producerId}, transactional id ${id.getOrElse("unknown")}, " +
            s"since offset ${producer.currentTransactionStartOffset.toScala.getOrElse(-1L)}"
        }
    } catch { case NonFatal(e) => Some(s" (whose it is, the brokers do not say: $e)") }
}

private object TopicCommitLog {

  /** What was read of a partition, up to an offset. */
  final case class Known(next: Long, states: Map[SinkIdentity, CommitState])

  val Poll: Duration = Duration.ofMillis(100)
}
