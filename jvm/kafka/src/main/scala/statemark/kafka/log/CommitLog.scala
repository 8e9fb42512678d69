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

  /** What it says of every identity, in all partitions, up to the first transaction that is open: strangers' outcomes are
    * not waited for.
    */
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
  import TopicCommitLog.{Known, NoStates, States}

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
    val known = mutable.Map.from(own.get((identity, place)).map(place -> _))
    readOn(
      known,
      Seq(place),
      isolation,
      _ == identity,
      of => held(of.getOrElse(identity, CommitState.empty))
    )
    own((identity, place)) = known(place)
    known(place).states.getOrElse(identity, CommitState.empty).requireReadable()
  }

  override def readAll(): Map[SinkIdentity, CommitState] = {
    val count = TopicChecks.describe(admin, settings.commitTopic)
      .fold(CommitTopic.Partitions)(_.partitions.size)
    val places = (0 until count).map(new TopicPartition(settings.commitTopic, _))
    val known = mutable.Map.empty[TopicPartition, Known]
    readOn(known, places, IsolationLevel.READ_COMMITTED, _ => true, _ => ())
    places.flatMap(known(_).states).toMap
  }

  /** Reads on from where `known` ends.
    * @param isWanted whose records are kept
    */
  private def readOn(
      known: mutable.Map[TopicPartition, Known],
      places: Seq[TopicPartition],
      isolation: IsolationLevel,
      isWanted: SinkIdentity => Boolean,
      held: States => Unit
  ): Unit = {
    val ends = endsOf(places, isolation)
    places.foreach { place =>
      val next = known.get(place).fold(0L)(_.next)
      if (ends(place) < next) throw new SinkException.WrongHistory(
        "The commit topic was made anew while the sink ran",
        "it ends before what was read of it already",
        s"Bring the old topic back, or start anew with another 'sinkName': ${SinkException.Repeats}",
        Map("partition" -> place.toString, "end" -> ends(place).toString, "read" -> next.toString)
      )
      if (ends(place) == 0) known.getOrElseUpdate(place, Known(0, Map.empty)): Unit
    }
    val behind = places.filter(place => known.get(place).forall(_.next < ends(place)))
    if (behind.nonEmpty) {
      val consumer = clients.consumer(committedOnly = true)
      try readTo(known, consumer, behind.map(place => place -> ends(place)).toMap, isWanted, held)
      finally consumer.close()
    }
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
      known: mutable.Map[TopicPartition, Known],
      consumer: RowConsumer,
      ends: Map[TopicPartition, Long],
      isWanted: SinkIdentity => Boolean,
      held: States => Unit
  ): Unit = {
    consumer.assign(ends.keySet.asJava)
    val (begun, unread) = ends.keySet.partition(known.contains)
    begun.foreach(place => consumer.seek(place, known(place).next))
    // Of no partitions it would mean all of them.
    if (unread.nonEmpty) consumer.seekToBeginning(unread.asJava)
    val states = mutable.Map.empty[TopicPartition, States]
    ends.keys.foreach(place => states(place) = known.get(place).fold(NoStates)(_.states))
    // A topic that is long, or far away, takes its time.
    var (passed, passedNanos) = (0L, clock.nanos())
    def unfinished = ends.find { case (place, end) => consumer.position(place) < end }
    var open = unfinished
    val told = mutable.Set.empty[(TopicPartition, Long)]
    while (open.isDefined) {
      val position = ends.keysIterator.map(consumer.position).sum
      if (position != passed) {
        passed = position
        passedNanos = clock.nanos()
      }
      open.filter(_ => clock.nanos() - passedNanos > settings.transactionTimeoutMs * 1000000L)
        .foreach { case (place, end) => throw blocked(place, consumer.position(place), end) }
      val records = consumer.poll(TopicCommitLog.Poll)
      records.asScala.foreach { record =>
        val place = new TopicPartition(record.topic, record.partition)
        RecordCodec.identityOf(record.key) match {
          case Some(identity) if !isWanted(identity) => ()
          case Some(identity) =>
            val state = states(place).getOrElse(identity, CommitState.empty)
              .updated(record.key, Option(record.value), record.timestamp)
            states(place) = states(place).updated(identity, state)
          case None => noteForeign(place, record.offset)
        }
      }
      open = unfinished
      for ((place, _) <- open if records.isEmpty) {
        val position = consumer.position(place)
        // Before that, records may be missing that belong together.
        val isHeld = position >= endsOf(Seq(place), IsolationLevel.READ_COMMITTED)(place)
        if (isHeld && told.add((place, position))) held(states(place))
      }
    }
    states.foreach { case (place, of) => known(place) = Known(consumer.position(place), of) }
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

  val NoStates: States = Map.empty

  val Poll: Duration = Duration.ofMillis(100)
}
