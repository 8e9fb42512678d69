package statemark.kafka.rows

import org.apache.kafka.clients.producer.RecordMetadata
import org.apache.kafka.common.TopicPartition
import scala.collection.mutable
import statemark.kafka.clients.KafkaFailures

/** The rows of one attempt: sent, acknowledged and where they lie. ''Thread:'' the task's, and the producer's for what
  * it acknowledges.
  */
private[kafka] final class AttemptRows(val attempt: AttemptId) {
  private val written = mutable.Map.empty[(TransactionName, TopicPartition), RowCollector]
  private var pending = 0L
  private var count = 0L
  private var firstFailure: Option[Throwable] = None
  private var refused = Map.empty[String, String]

  /** A row is about to be sent. */
  def sending(): Unit = synchronized(pending += 1)

  /** The row that was about to be sent was not. */
  def unsent(failure: Throwable): Unit = synchronized {
    pending -= 1
    failed(failure)
  }

  /** What Kafka says of a row that was sent. */
  def acknowledged(
      transaction: TransactionName,
      metadata: RecordMetadata,
      failure: Option[Throwable],
      hash: Long
  ): Unit = synchronized {
    pending -= 1
    failure match {
      case Some(e) => failed(e)
      // The broker had the row already and does not say where.
      case None if !metadata.hasOffset =>
        failed(new IllegalStateException("A row was acknowledged without its offset"))
      case None =>
        count += 1
        val place = (transaction, new TopicPartition(metadata.topic, metadata.partition))
        written.getOrElseUpdate(place, new RowCollector).add(metadata.offset, hash)
    }
  }

  def failed(failure: Throwable): Unit = synchronized {
    firstFailure = Some(KafkaFailures.firstOf(firstFailure, failure))
  }

  def failure: Option[Throwable] = synchronized(firstFailure)

  /** Kafka did not take a row of the attempt, and no failure before it was the reason.
    * @param row what tells which it is
    */
  def refuse(row: Map[String, String]): Unit = synchronized { refused = row }

  /** The row that made the attempt fail; empty where it was none of its own. */
  def refusedRow: Map[String, String] = synchronized(refused)

  /** Rows that are acknowledged. */
  def acknowledgedRows: Long = synchronized(count)

  /** What the driver has to know.
    * @throws IllegalStateException where not every row is acknowledged
    */
  def message(executorId: String): AttemptMessage = synchronized {
    if (pending != 0) throw new IllegalStateException(s"$pending rows are not acknowledged")
    // An offset that could not be noted, in a callback of the producer, would be missing from the decision.
    val noted = written.valuesIterator.map(_.count).sum
    if (noted != count)
      throw new IllegalStateException(s"$count rows are acknowledged, and $noted offsets noted")
    val rows = written.toSeq.groupMap(_._1._1) { case ((_, topicPartition), collector) =>
      topicPartition -> collector.result()
    }
    AttemptMessage(attempt, executorId, rows.map { case (name, of) => name -> of.toMap })
  }
}
