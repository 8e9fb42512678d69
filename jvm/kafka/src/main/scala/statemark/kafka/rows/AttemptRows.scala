package statemark.kafka.rows

import org.apache.kafka.clients.producer.RecordMetadata
import org.apache.kafka.common.TopicPartition
import scala.collection.mutable

/** The rows of one attempt: sent, acknowledged and where they lie. ''Thread:'' the task's, and the producer's for what
  * it acknowledges.
  */
private[kafka] final class AttemptRows(val attempt: AttemptId) {
  private val written = mutable.Map.empty[(TransactionName, TopicPartition), RowCollector]
  private var pending = 0L
  private var count = 0L
  private var failed: Option[FirstFailure] = None

  /** A row is about to be sent. */
  def sending(): Unit = synchronized(pending += 1)

  /** The row that was about to be sent was not. */
  def unsent(failure: FirstFailure): Unit = synchronized {
    pending -= 1
    fail(failure)
  }

  /** What Kafka says of a row that was sent.
    * @param failure of its transaction, where the row was not taken
    */
  def acknowledged(
      transaction: TransactionName,
      metadata: RecordMetadata,
      failure: Option[FirstFailure],
      hash: Long
  ): Unit = synchronized {
    pending -= 1
    failure match {
      case Some(e) => fail(e)
      // The broker had the row already and does not say where.
      case None if !metadata.hasOffset =>
        fail(
          FirstFailure.of(new IllegalStateException("A row was acknowledged without its offset"))
        )
      case None =>
        count += 1
        val place = (transaction, new TopicPartition(metadata.topic, metadata.partition))
        written.getOrElseUpdate(place, new RowCollector).add(metadata.offset, hash)
    }
  }

  private def fail(failure: FirstFailure): Unit = failed = failed.orElse(Some(failure))

  /** Returns why a row was not taken. Until all that was sent is acknowledged, another answer may follow that says more. */
  def failure: Option[Throwable] = synchronized(failed.flatMap(_.get))

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
