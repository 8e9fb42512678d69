package statemark.kafka.clients

import java.util.concurrent.atomic.AtomicReference
import org.apache.kafka.clients.producer.{ProducerRecord, RecordMetadata}
import org.apache.kafka.common.KafkaException
import scala.util.control.NonFatal
import statemark.kafka.RowProducer
import statemark.kafka.conf.SinkException

/** A record of a transaction was not taken, so that the transaction cannot have been committed: the client asks for that only
  * once each record is acknowledged.
  * @param values where the record was to go
  */
private[kafka] final class RefusedRecord(val values: Map[String, String], cause: Throwable)
    extends KafkaException("A record was not taken", cause)

private[kafka] object RefusedRecord {

  /** Returns the failure of a row of a task, which says which row it is; one that says so already is left as it is. */
  def of(
      record: ProducerRecord[Array[Byte], Array[Byte]],
      metadata: Option[RecordMetadata],
      task: Int,
      cause: Throwable
  ): Throwable = cause match {
    case e: SinkException => e
    case e =>
      new RefusedRecord(KafkaFailures.valuesOf(record, metadata) + ("task" -> task.toString), e)
  }
}

/** Sends the records of one transaction of the driver's, and remembers the first that fails: the transaction's own failure does
  * not say which it was. ''Thread:'' the driver's, and the producer's for what it acknowledges.
  */
private[kafka] final class SentRecords {
  private val refused = new AtomicReference(Option.empty[RefusedRecord])

  def send(producer: RowProducer, record: ProducerRecord[Array[Byte], Array[Byte]]): Unit =
    producer.send(
      record,
      (metadata, failure) =>
        Option(failure).foreach { e =>
          val values = KafkaFailures.valuesOf(record, Option(metadata)) - "key"
          refused.updateAndGet(_.orElse(Some(new RefusedRecord(values, e)))): Unit
        }
    ): Unit

  /** Runs the transaction in which the records are sent.
    * @throws RefusedRecord where one of them was not taken; any other failure comes as it is
    */
  def in[A](transaction: => A): A =
    try transaction
    catch {
      case NonFatal(e) if !KafkaFailures.isInterrupt(e) && !KafkaFailures.isFenced(e) =>
        throw refused.get.getOrElse(e)
    }
}
