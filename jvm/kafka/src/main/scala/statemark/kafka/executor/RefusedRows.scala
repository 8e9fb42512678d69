package statemark.kafka.executor

import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.ConcurrentHashMap
import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.errors.InvalidTopicException
import org.apache.kafka.common.header.Header
import org.apache.kafka.common.header.internals.RecordHeaders
import scala.util.control.NonFatal
import statemark.kafka.clients.{KafkaClients, KafkaFailures, TopicChecks, TopicLimits}
import statemark.kafka.conf.SinkSettings

/** Finds rows that their topic can never take, before they are sent: one that Kafka refuses would fail all rows of its
  * transaction. Such a row goes to the topic that option `refusedRowsTopic` names, in the same transaction, with headers
  * that say why. ''Thread:'' any.
  *
  * A row's size counts before compression, as it does for Kafka's own producer.
  */
private[kafka] final class RefusedRows(
    clients: KafkaClients,
    val settings: SinkSettings,
    target: String
) {
  import RefusedRows._

  private val known = new ConcurrentHashMap[String, Asked]

  /** The row of the other topic where the row's own can never take it; None where the row may be sent.
    * @param batch of the row: a topic that is absent is asked for once in a batch
    */
  def instead(batch: Long, record: Row): Option[Row] =
    refusal(batch, record).map { case (reason, bytes) =>
      val told = Seq(
        Some(Reason -> reason),
        Some(Topic -> record.topic),
        Option(record.partition).map(Partition -> _.toString),
        Some(Bytes -> bytes.toString)
      ).flatten
      val whole = copy(record, told, keepsKey = true, keepsRest = true)
      lazy val withoutValue =
        copy(record, told :+ (Withheld -> "value headers"), keepsKey = true, keepsRest = false)
      lazy val withoutKey =
        copy(record, told :+ (Withheld -> "key value headers"), keepsKey = false, keepsRest = false)
      val limits = limitsOf(batch, target).getOrElse(throw TopicChecks.absentTarget(target))
      Iterator(whole, withoutValue).find(fits(_, limits)).getOrElse(withoutKey)
    }

  /** Asks the brokers again: topics may have changed. */
  def forget(): Unit = known.clear()

  private def refusal(batch: Long, record: Row): Option[(String, Long)] = {
    val bytes = RowSize.ofRequest(record)
    limitsOf(batch, record.topic) match {
      case None => Some(("no-topic", bytes))
      case Some(limits) if !fits(record, limits) => Some(("too-large", bytes))
      case Some(limits) =>
        Option(record.partition).filter(_.intValue >= limits.partitions)
          // Partitions may have been added.
          .filter(p => ask(batch, record.topic).limits.forall(p.intValue >= _.partitions))
          .map(_ => ("no-partition", bytes))
    }
  }

  private def fits(record: Row, limits: TopicLimits): Boolean =
    RowSize.ofRequest(record) <= settings.maxRequestBytes &&
      RowSize.ofBatch(record) <= limits.mostBytes

  private def limitsOf(batch: Long, topic: String): Option[TopicLimits] =
    Option(known.get(topic)).filter(a => a.limits.isDefined || a.batch == batch)
      .getOrElse(ask(batch, topic)).limits

  private def ask(batch: Long, topic: String): Asked = {
    val admin = clients.admin()
    val limits =
      try TopicChecks.limits(admin, topic)
      catch {
        case NonFatal(e) if KafkaFailures.unwrapped(e).isInstanceOf[InvalidTopicException] => None
      } finally admin.close()
    val asked = Asked(batch, limits)
    known.put(topic, asked): Unit
    asked
  }

  private def copy(
      record: Row,
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
      record.timestamp,
      Option(record.key).filter(_ => keepsKey).orNull,
      Option(record.value).filter(_ => keepsRest).orNull,
      headers
    )
  }
}

private[kafka] object RefusedRows {
  type Row = ProducerRecord[Array[Byte], Array[Byte]]

  /** Header: `too-large`, `no-topic` or `no-partition`. */
  val Reason: String = "statemark.refused.reason"

  /** Header: where the row was to go. */
  val Topic: String = "statemark.refused.topic"

  /** Header: the partition that the row named, if it did. */
  val Partition: String = "statemark.refused.partition"

  /** Header: the row's size before compression. */
  val Bytes: String = "statemark.refused.bytes"

  /** Header: the parts that the topic of refused rows cannot take either, and that are left out. */
  val Withheld: String = "statemark.refused.withheld"

  private final case class Asked(batch: Long, limits: Option[TopicLimits])
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
