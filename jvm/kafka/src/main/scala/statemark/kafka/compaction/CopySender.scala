package statemark.kafka.compaction

import org.apache.kafka.clients.consumer.ConsumerRecord
import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.errors.{
  InvalidTimestampException,
  RecordBatchTooLargeException,
  RecordTooLargeException
}
import org.apache.kafka.common.{InvalidRecordException, KafkaException}
import scala.util.{Failure, Success, Try}
import statemark.kafka.RowProducer
import statemark.kafka.clients.KafkaFailures
import statemark.kafka.conf.SinkException

/** A copy of a winner.
  * @param key as it was when its winner was copied
  * @param offset of the copy
  * @param before how many copies of the key came before it, each too late
  */
private[compaction] final case class WinnerCopy(key: WrongKey, offset: Long, before: Int)

private[compaction] object WinnerCopy {

  /** A winner that is to be copied for the first time. */
  def first(key: WrongKey): WinnerCopy = WinnerCopy(key, offset = 0L, before = 0)
}

/** Appends copies of records to the partitions that they are in. ''Thread:'' one at a time. Whoever makes it closes it. */
private[compaction] final class CopySender(topic: String, producer: RowProducer)
    extends AutoCloseable {
  import CopySender._

  /** Sends records, and waits until the brokers have answered for each.
    * @param of the winners that the records are, with the copies that came before
    * @return what was taken, also where something was not
    * @throws Throwable where nobody knows whether a record was taken
    */
  def send(of: Vector[WinnerCopy], records: Vector[Record]): Sent = {
    val sent = sendAll(of, records)
    // Brokers refuse a whole batch for one record of it: the others are sent one by one.
    val refusing = sent.failures.filter(f => isRefusal(f.cause)).map(_.record.partition).toSet
    val (innocent, failures) = sent.failures.partition(f =>
      refusing(f.record.partition) && f.cause.getClass == classOf[KafkaException]
    )
    val again = innocent.map(f => sendAll(Vector(f.of), Vector(f.record)))
    val refused = failures ++ again.flatMap(_.failures)
    // A record whose answer is missing may be in the log.
    refused.find(f => !isRefusal(f.cause)).foreach(f => throw f.cause)
    Sent(sent.copies ++ again.flatMap(_.copies), refused.headOption.map(refusal))
  }

  override def close(): Unit = producer.close()

  private def sendAll(of: Vector[WinnerCopy], records: Vector[Record]): Answers = {
    val sent = records.map { record =>
      val time = Option.when(record.timestamp >= 0)(Long.box(record.timestamp)).orNull
      Try(producer.send(new ProducerRecord(
        topic,
        Int.box(record.partition),
        time,
        record.key,
        record.value,
        record.headers
      )))
    }
    producer.flush()
    val (failures, taken) = of.lazyZip(records).lazyZip(sent).map { (winner, record, result) =>
      result.flatMap(answer => Try(answer.get())) match {
        case Success(at) if at.hasOffset =>
          Right(winner.copy(offset = at.offset, before = winner.before + 1))
        // It is there, and nobody knows where: what lies before it is not known either.
        case Success(_) => throw new SinkException.FailedWrite(
            s"Topic $topic cannot be repaired for now",
            "a copy was acknowledged without its offset",
            "Run the repair again",
            Map("topic" -> topic, "partition" -> record.partition.toString),
            None
          )
        case Failure(e) => Left(NotTaken(winner, record, KafkaFailures.unwrapped(e)))
      }
    }.partitionMap(identity)
    Answers(taken, failures)
  }

  private def isRefusal(e: Throwable): Boolean = isTooLarge(e) || (e match {
    case _: InvalidTimestampException | _: InvalidRecordException => true
    case _ => false
  })

  private def isTooLarge(e: Throwable): Boolean = e match {
    case _: RecordTooLargeException | _: RecordBatchTooLargeException => true
    case _ => false
  }

  private def refusal(of: NotTaken): SinkException = new SinkException.RefusedSetting(
    s"Topic $topic cannot be repaired",
    s"a winner is not taken again: ${SinkException.sentence(of.cause.getMessage)}",
    if (isTooLarge(of.cause))
      "Raise max.message.bytes of the topic for the time of the repair, or set compression.type in --command-config to what " +
        "its producers use"
    else s"Is its timestamp within ${TopicRules.TooOld} and ${TopicRules.TooNew} of the topic?",
    Map(
      "topic" -> topic,
      "partition" -> of.record.partition.toString,
      "offset" -> of.record.offset.toString
    )
  )
}

private[compaction] object CopySender {
  private type Record = ConsumerRecord[Array[Byte], Array[Byte]]

  /** @param refused why a record was not taken */
  final case class Sent(copies: Vector[WinnerCopy], refused: Option[SinkException])

  private final case class NotTaken(of: WinnerCopy, record: Record, cause: Throwable)

  private final case class Answers(copies: Vector[WinnerCopy], failures: Vector[NotTaken])
}
