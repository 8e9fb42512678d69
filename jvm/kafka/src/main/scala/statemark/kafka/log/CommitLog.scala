package statemark.kafka.log

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
import statemark.kafka.RowConsumer
import statemark.kafka.clients.{KafkaClients, KafkaFailures, TopicChecks, TopicLookup}
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkSettings}

/** Reads the commit topic. ''Thread:'' the driver's. */
trait CommitLog {

  /** What it says of one identity, up to everything that was sent before the call: of a transaction that is open, the
    * outcome is waited for.
    * @param held is told what is known so far where such a transaction holds the rest back, once for each
    * @throws SinkException.Unavailable where it does not get on for as long as a transaction may be open
    */
  def read(identity: SinkIdentity, held: CommitState => Unit): CommitState

  /** As the other, and only waits. */
  final def read(identity: SinkIdentity): CommitState = read(identity, _ => ())

  /** Reads all partitions, one after another, each up to its first transaction that is open: strangers' outcomes are not
    * waited for. A commit topic may know more identities than fit into the heap: of those that are not wanted nothing is
    * held, and of the others no more than one partition's states at a time.
    * @param isWanted the identities that the caller asks for
    * @param passing what is told of each record on the way, whosever it is, and of its time in milliseconds since the epoch
    * @param of what makes of an identity's state what the caller keeps
    * @return the results, of wanted identities that have records
    */
  def readAll[A](
      isWanted: SinkIdentity => Boolean,
      passing: Option[(CommitRecord, Long) => Unit] = None
  )(of: (SinkIdentity, CommitState) => A): Vector[A]
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
  import TopicCommitLog.{Known, Nobody, States}

  /** Records that are nobody's: their keys cannot be read. The topic keeps them for ever, so they stop no sink. A later
    * release is known by its identity record (FORMAT.md).
    */
  def foreign: Option[ForeignRecords] = found

  private var found = Option.empty[ForeignRecords]

  // What was read stays read: the topic only grows. Other sinks' records, which may be many, are not kept.
  private val own = mutable.Map.empty[(SinkIdentity, TopicPartition), Known]

  override def read(identity: SinkIdentity, held: CommitState => Unit): CommitState =
    readOwn(identity, end, held)

  /** Reads what readers see of one identity, without waiting for transactions that are open. */
  def readCommitted(identity: SinkIdentity): CommitState =
    readOwn(identity, IsolationLevel.READ_COMMITTED, _ => ())

  /** Returns up to where the identity's partition was read. */
  def position(identity: SinkIdentity): Long =
    own.get((identity, CommitTopic.partitionOf(settings, identity))).fold(0L)(_.next)

  private def readOwn(
      identity: SinkIdentity,
      isolation: IsolationLevel,
      held: CommitState => Unit
  ): CommitState = {
    val place = CommitTopic.partitionOf(settings, identity)
    val until = endsOf(Seq(place), isolation)(place)
    val before = own.getOrElse((identity, place), Nobody)
    if (until < before.next) throw new SinkException.WrongHistory(
      "The commit topic was made anew while the sink ran",
      "it ends before what was read of it already",
      s"Bring the old topic back, or start anew with another 'sinkName': ${SinkException.Repeats}",
      Map("partition" -> place.toString, "end" -> until.toString, "read" -> before.next.toString)
    )
    def stateOf(of: States) = of.getOrElse(identity, CommitState.empty)
    val known =
      if (before.next == until) before
      else reading { consumer =>
        readTo(consumer, place, before, until, _ == identity, None, of => held(stateOf(of)))
      }
    own((identity, place)) = known
    stateOf(known.states).requireReadable()
  }

  override def readAll[A](
      isWanted: SinkIdentity => Boolean,
      passing: Option[(CommitRecord, Long) => Unit]
  )(of: (SinkIdentity, CommitState) => A): Vector[A] = {
    val count = TopicChecks.describe(admin, settings.commitTopic)
      .fold(CommitTopic.Partitions)(_.partitions.size)
    val places = (0 until count).map(new TopicPartition(settings.commitTopic, _)).toVector
    val ends = endsOf(places, IsolationLevel.READ_COMMITTED).filter(_._2 > 0)
    if (ends.isEmpty) Vector.empty
    else reading { consumer =>
      places.filter(ends.contains).flatMap { place =>
        readTo(consumer, place, Nobody, ends(place), isWanted, passing, _ => ()).states
          .map { case (identity, state) => of(identity, state) }
      }
    }
  }

  private def reading[A](body: RowConsumer => A): A = {
    val consumer = clients.consumer(committedOnly = true)
    try body(consumer)
    finally consumer.close()
  }

  /** The ends as such a reader sees them: one of everything behind records whose transaction is open. */
  private def endsOf(
      places: Seq[TopicPartition],
      isolation: IsolationLevel
  ): Map[TopicPartition, Long] = TopicLookup.again(KafkaFailures.isBehind) {
    val asked = admin.listOffsets(
      places.map(_ -> OffsetSpec.latest()).toMap.asJava,
      new ListOffsetsOptions(isolation)
    )
    places.map(place => place -> asked.partitionResult(place).get().offset).toMap
  }

  private def readTo(
      consumer: RowConsumer,
      place: TopicPartition,
      before: Known,
      until: Long,
      isWanted: SinkIdentity => Boolean,
      passing: Option[(CommitRecord, Long) => Unit],
      held: States => Unit
  ): Known = {
    val places = Collections.singletonList(place)
    consumer.assign(places)
    if (before.next > 0) consumer.seek(place, before.next) else consumer.seekToBeginning(places)
    var states = before.states
    // A topic that is long, or far away, takes its time.
    var (position, passedNanos) = (consumer.position(place), clock.nanos())
    var told = -1L
    while (position < until) {
      if (clock.nanos() - passedNanos > settings.transactionTimeoutMs * 1000000L)
        throw blocked(place, position, until)
      val records = consumer.poll(TopicCommitLog.Poll)
      records.asScala.foreach { record =>
        RecordCodec.identityOf(record.key) match {
          case Some(identity) =>
            lazy val decoded = CommitState.decoded(record.key, Option(record.value))
            passing.foreach(tell => decoded.foreach(_.foreach(tell(_, record.timestamp))))
            if (isWanted(identity)) {
              val state = states.getOrElse(identity, CommitState.empty)
              states =
                states.updated(identity, state.updated(record.key, decoded, record.timestamp))
            }
          case None if RuleCodec.topicOf(record.key).isDefined => ()
          case None => noteForeign(place, record.offset)
        }
      }
      val reached = consumer.position(place)
      if (reached != position) {
        position = reached
        passedNanos = clock.nanos()
      }
      if (position < until && records.isEmpty) {
        // Before that, records may be missing that belong together.
        val isHeld = position >= endsOf(Seq(place), IsolationLevel.READ_COMMITTED)(place)
        if (isHeld && position != told) {
          told = position
          held(states)
        }
      }
    }
    Known(position, states)
  }

  private def noteForeign(place: TopicPartition, offset: Long): Unit = {
    val before = found.getOrElse(ForeignRecords(s"$place at offset $offset", Map.empty))
    val counts = before.counts.updatedWith(place) { known =>
      val (count, last) = known.getOrElse((0L, -1L))
      // They are read again, by another reader.
      Some(if (offset > last) (count + 1, offset) else (count, last))
    }
    found = Some(before.copy(counts = counts))
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

/** Records of the commit topic that are nobody's.
  * @param first where one of them lies
  * @param counts how many there are of a partition, and the offset of the last one
  */
private[kafka] final case class ForeignRecords(
    first: String,
    counts: Map[TopicPartition, (Long, Long)]
) {
  def count: Long = counts.values.map(_._1).sum
}

private object TopicCommitLog {

  /** What was read of a partition, up to an offset. */
  final case class Known(next: Long, states: States)

  type States = Map[SinkIdentity, CommitState]

  val Nobody: Known = Known(0, Map.empty)

  val Poll: Duration = Duration.ofMillis(100)
}
