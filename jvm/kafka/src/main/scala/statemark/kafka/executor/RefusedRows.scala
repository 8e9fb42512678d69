package statemark.kafka.executor

import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.{AtomicInteger, AtomicLong}
import org.apache.kafka.clients.admin.{Admin, TopicDescription}
import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.header.Header
import org.apache.kafka.common.header.internals.RecordHeaders
import statemark.common.Clock
import statemark.kafka.clients.{KafkaClients, TopicChecks, TopicLimits, TopicLookup}
import statemark.kafka.conf.{SinkException, SinkSettings}
import statemark.kafka.log.CommitTopicSigns

/** Finds rows that their topic can never take, before they are sent: one that Kafka refuses would fail all rows of its
  * transaction. Such a row goes to the topic that option `refusedRowsTopic` names, in the same transaction, with headers
  * that say why. ''Thread:'' any.
  *
  * A row's size counts before compression, as it does for Kafka's own producer.
  */
private[kafka] final class RefusedRows(
    clients: KafkaClients,
    val settings: SinkSettings,
    target: String,
    clock: Clock = Clock.system
) extends AutoCloseable {
  import RefusedRows._

  private val known = new ConcurrentHashMap[String, Asked]
  private val commitTopics = new ConcurrentHashMap[String, Boolean]
  private val newest = new AtomicLong(Long.MinValue)
  private val waits = new AtomicInteger
  private var opened = Option.empty[Admin]
  private var isClosed = false
  // Known once the brokers have said so, or that the user may not know: a topic that is not there stays so then.
  @volatile private var making = Option.empty[Boolean]

  /** The row of the other topic where the row's own can never take it; None where the row may be sent.
    * @param batch of the row: a topic is asked for once in a batch
    */
  def instead(batch: Long, record: Row): Option[Row] =
    refusal(batch, record).map { case (reason, bytes) =>
      val limits = placeOf(batch, target, None) match {
        case Open(limits) => limits
        case _ => throw TopicChecks.absentTarget(target)
      }
      val time = Option(record.timestamp).filter(ms => limits.times.take(ms, clock.epochMs()))
      val told = Seq(
        Some(Reason -> reason),
        Some(Topic -> record.topic),
        Option(record.partition).map(Partition -> _.toString),
        Option(record.timestamp).filter(_ => time.isEmpty).map(Timestamp -> _.toString),
        Some(Bytes -> bytes.toString)
      ).flatten
      def without(parts: String*) = {
        val withheld = Option.when(parts.nonEmpty)(Withheld -> parts.mkString(" "))
        copy(record, time, told ++ withheld, !parts.contains("key"), !parts.contains("value"))
      }
      Iterator(Nil, Seq("value", "headers")).map(without(_: _*)).find(fits(_, limits))
        .getOrElse(without("key", "value", "headers"))
    }

  /** Asks the brokers again: topics may have changed. */
  def forget(): Unit = known.clear()

  override def close(): Unit = synchronized {
    isClosed = true
    opened.foreach(_.close())
  }

  /** Topics that are kept in mind. */
  private[kafka] def knownNames: Int = known.size

  private def makesTopics: Boolean = making.getOrElse {
    val makes = TopicChecks.brokersMakeTopics(admin).contains(true)
    making = Some(makes)
    makes
  }

  private def admin: Admin = synchronized {
    if (isClosed)
      throw new SinkException.IllegalCall("A row cannot be looked at", "the sink's run has ended")
    opened.getOrElse {
      val made = clients.admin()
      opened = Some(made)
      made
    }
  }

  private def refusal(batch: Long, record: Row): Option[(String, Long)] = {
    val partition = Option(record.partition).map(_.intValue)
    val reason = placeOf(batch, record.topic, partition) match {
      case Closed(reason) => Some(reason)
      case ToBeMade => None
      case Open(limits) if !fits(record, limits) => Some("too-large")
      case Open(limits) if partition.exists(_ >= limits.partitions) => Some("no-partition")
      case Open(limits) if limits.needsKey && Option(record.key).isEmpty => Some("no-key")
      // Brokers go by their own clocks: a row that is near the limit may fail the query all the same.
      case Open(limits) =>
        Option(record.timestamp).filterNot(ms => limits.times.take(ms, clock.epochMs()))
          .map(_ => "wrong-time")
    }
    reason.map((_, RowSize.ofRequest(record)))
  }

  private def fits(record: Row, limits: TopicLimits): Boolean =
    RowSize.ofRequest(record) <= settings.mostRowBytes &&
      RowSize.ofBatch(record) <= limits.mostBytes

  private def placeOf(batch: Long, topic: String, partition: Option[Int]): Place =
    // Decisions alone go there: any other record would stay for ever.
    if (topic == settings.commitTopic) Closed(Commits)
    else {
      dropOlder(batch)
      val asked = Option(known.get(topic)).filter(_.batch >= batch)
        .filter(a => a.isSure || a.place.has(partition))
      asked.getOrElse(ask(batch, topic, partition)).place
    }

  /** Names of topics may be anything: they are kept for this batch and the one before. */
  private def dropOlder(batch: Long): Unit = if (newest.get < batch) {
    val before = newest.getAndUpdate(math.max(_, batch))
    if (before < batch) {
      waits.set(0)
      known.values.removeIf(_.batch < before): Unit
      commitTopics.keySet.retainAll(known.keySet): Unit
    }
  }

  private def ask(batch: Long, topic: String, partition: Option[Int]): Asked = {
    // Of a name that was absent before, and of many that are, one answer is enough.
    val isKnownAbsent = Option(known.get(topic)).exists(!_.place.has(None))
    val waitsOn = !isKnownAbsent && !makesTopics && waits.get < MostWaits
    val repeats = if (waitsOn) TopicLookup.ForRows else TopicLookup.Once
    def isWhole(found: Map[String, TopicDescription]) =
      found.get(topic).exists(t => partition.forall(_ < t.partitions.size))
    val place =
      try {
        val found = new TopicLookup(admin, settings.commitTopic, repeats).find(Seq(topic))(isWhole)
        found.get(topic) match {
          case Some(there) if there.isInternal || !TopicChecks.isWritable(there) => Closed(Denied)
          case Some(there) =>
            val limits = TopicChecks.limits(admin, there)
            if (isCommitTopic(there, limits)) Closed(Commits) else Open(limits)
          case None if makesTopics && SinkSettings.isTopicName(topic) => ToBeMade
          case None => Closed("no-topic")
        }
      } catch {
        // With access by names, brokers do not say of others whether they are there.
        case e: SinkException.UnfitCluster if e.values.get("topic").contains(topic) =>
          Closed(Denied)
      }
    val isSure = !place.has(partition)
    if (waitsOn && isSure) waits.incrementAndGet(): Unit
    val asked = Asked(batch, place, isSure)
    // A task of an earlier batch that still writes does not set back what later ones know.
    known.merge(topic, asked, (before, now) => if (before.batch > now.batch) before else now): Unit
    asked
  }

  /** Whether decisions of other sinks are there: asked for once while rows name the topic, as it does not change. */
  private def isCommitTopic(topic: TopicDescription, limits: TopicLimits): Boolean =
    limits.needsKey && commitTopics.computeIfAbsent(
      topic.name,
      CommitTopicSigns.isCommitTopic(clients, _, topic.partitions.size)
    )

  private def copy(
      record: Row,
      time: Option[java.lang.Long],
      told: Seq[(String, String)],
      keepsKey: Boolean,
      keepsRest: Boolean
  ): Row = {
    val headers = new RecordHeaders
    if (keepsRest) record.headers.forEach((h: Header) => headers.add(h): Unit)
    told.foreach { case (name, value) => headers.add(name, value.getBytes(UTF_8)) }
    new ProducerRecord(
      target,
      Option.empty[Integer].orNull,
      time.orNull,
      Option(record.key).filter(_ => keepsKey).orNull,
      Option(record.value).filter(_ => keepsRest).orNull,
      headers
    )
  }
}

private[kafka] object RefusedRows {
  type Row = ProducerRecord[Array[Byte], Array[Byte]]

  /** Header: `too-large`, `no-topic`, `no-partition`, `no-key`, `wrong-time`, `not-allowed` or `commit-topic`. */
  val Reason: String = "statemark.refused.reason"

  /** Header: where the row was to go. */
  val Topic: String = "statemark.refused.topic"

  /** Header: the partition that the row named, if it did. */
  val Partition: String = "statemark.refused.partition"

  /** Header: the row's time, in milliseconds since the epoch, where the topic of refused rows does not take it either. */
  val Timestamp: String = "statemark.refused.timestamp"

  /** Header: the row's size before compression. */
  val Bytes: String = "statemark.refused.bytes"

  /** Header: the parts that the topic of refused rows cannot take either, and that are left out. */
  val Withheld: String = "statemark.refused.withheld"

  private val Denied = "not-allowed"
  private val Commits = "commit-topic"

  /** What is known of a topic to which a row is to go. */
  private sealed trait Place {

    /** Whether it is there, with that partition. */
    def has(partition: Option[Int]): Boolean = this match {
      case Open(limits) => partition.forall(_ < limits.partitions)
      case ToBeMade => true
      case Closed(_) => false
    }
  }
  private final case class Open(limits: TopicLimits) extends Place

  /** The brokers make it as rows are sent to it. */
  private case object ToBeMade extends Place
  private final case class Closed(reason: String) extends Place

  /** @param isSure whether a topic, or partition, that is not in it was waited for */
  private final case class Asked(batch: Long, place: Place, isSure: Boolean)

  /** So many names of a batch are waited for. */
  private val MostWaits = 5
}

/** The bytes of a row, as Kafka's record format has them: FORMAT.md of Kafka's own, version 2. */
private[kafka] object RowSize {
  private val BatchHeader = 61L

  /** Kafka's producer counts the most that fixed fields of a record may take. */
  private val MostOfFixedFields = 21L

  /** The size that `max.request.size` limits. */
  def ofRequest(record: RefusedRows.Row): Long = BatchHeader + MostOfFixedFields + parts(record)

  /** The size of a batch with this row alone, uncompressed, which a topic's `max.message.bytes` limits. */
  def ofBatch(record: RefusedRows.Row): Long = {
    // Attributes, and how time and offset differ from the batch's: a byte each in a row that is alone.
    val body = 3L + parts(record)
    BatchHeader + varint(body) + body
  }

  private def parts(record: RefusedRows.Row): Long = {
    val headers = record.headers.toArray
    part(Option(record.key)) + part(Option(record.value)) + varint(headers.length.toLong) +
      headers.map(h => part(Some(h.key.getBytes(UTF_8))) + part(Option(h.value))).sum
  }

  private def part(bytes: Option[Array[Byte]]): Long =
    bytes.fold(1L)(b => varint(b.length.toLong) + b.length)

  /** Seven bits a byte, of a number that is not negative and whose lowest bit is the sign. */
  private def varint(number: Long): Long =
    math.max(1L, (64 - java.lang.Long.numberOfLeadingZeros(number << 1) + 6) / 7)
}
