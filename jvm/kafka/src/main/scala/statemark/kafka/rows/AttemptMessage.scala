package statemark.kafka.rows

import org.apache.kafka.common.TopicPartition

/** One try at one partition of one batch.
  * @param attempt Spark's task attempt id, never given twice in an application
  */
final case class AttemptId(batch: Long, partition: Int, attempt: Long)

/** A transaction: numbers of one transactional id ascend in a process, and never begin again there. */
final case class TransactionName(transactionalId: String, number: Long) {
  override def toString: String = s"$transactionalId#$number"
}

/** What a finished attempt wrote; it travels to the driver as Spark's commit message. An attempt that wrote nothing names
  * no transaction; a long one may name several (K9).
  * @param refused how many of the rows went to the topic of refused rows
  */
final case class AttemptMessage(
    attempt: AttemptId,
    executorId: String,
    rows: Map[TransactionName, Map[TopicPartition, WrittenRows]],
    refused: Long = 0
) {
  def count: Long = rows.valuesIterator.flatMap(_.valuesIterator).map(_.count).sum
}
