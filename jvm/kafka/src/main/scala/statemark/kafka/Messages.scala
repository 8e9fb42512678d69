package statemark.kafka

import org.apache.kafka.common.TopicPartition

/** One try at one partition of one batch.
  * @param attempt Spark's task attempt id, never given twice in an application
  */
final case class AttemptId(batch: Long, partition: Int, attempt: Long)

/** A transaction: numbers of one transactional id ascend in a process, and never begin again there. */
final case class TransactionName(transactionalId: String, number: Long) {
  override def toString: String = s"$transactionalId#$number"
}

/** Rows of an attempt in one topic partition, and the sum of their hashes. */
final case class WrittenRows(offsets: OffsetBitmap, hash: Long) {
  def count: Long = offsets.count
}

/** What a finished attempt wrote; it travels to the driver as Spark's commit message. An attempt that wrote nothing names
  * no transaction; a long one may name several (K9).
  */
final case class AttemptMessage(
    attempt: AttemptId,
    executorId: String,
    rows: Map[TransactionName, Map[TopicPartition, WrittenRows]]
) {
  def count: Long = rows.valuesIterator.flatMap(_.valuesIterator).map(_.count).sum
}

/** The driver's order to commit one transaction: given only after the decision that names it is durable.
  * @param commitPartition where the token goes
  * @param round of the decision
  * @param slot what the token of the transaction has in its key: its place among those of its id
  * @param attempts those whose rows were decided; the transaction may hold rows of no other
  */
final case class CommitOrder(
    identity: SinkIdentity,
    executorId: String,
    commitPartition: TopicPartition,
    transaction: TransactionName,
    batch: Long,
    round: Int,
    slot: Int,
    attempts: Set[AttemptId]
) {

  /** What the executor sends as the last record of the transaction. */
  private[kafka] def token: Token = Token(identity, slot, transaction, batch, round, None)
}

/** What became of a transaction (K5). The driver copies only after it has seen for itself, whatever is answered. */
sealed trait CommitAnswer

object CommitAnswer {

  /** `commitTransaction` returned. */
  case object Committed extends CommitAnswer

  /** `abortTransaction` returned: the rows will be copied. */
  case object Aborted extends CommitAnswer

  /** Nobody here knows. */
  case object Unknown extends CommitAnswer
}

/** How the driver reaches executors. The session's own connections carry it in Spark, calls of objects in tests.
  *
  * ''Thread:'' the driver's, one call at a time for an identity.
  */
trait CommitOrders {

  /** Hands each order to `ExecutorSinks.commit` of its executor, all side by side, and waits for the answers. An executor
    * that is gone, or does not answer in time, answers nothing, which counts as [[CommitAnswer.Unknown]]; nothing is
    * thrown for it.
    */
  def commit(orders: Seq[CommitOrder]): Map[TransactionName, CommitAnswer]

  /** Has every executor that can be reached abort its open transaction of the identity (`ExecutorSinks.abort`). Best
    * effort: waits for nobody, throws nothing.
    */
  def abort(identity: SinkIdentity): Unit
}

object CommitOrders {

  /** Without executors in other processes. */
  val none: CommitOrders = new CommitOrders {
    override def commit(orders: Seq[CommitOrder]): Map[TransactionName, CommitAnswer] = Map.empty
    override def abort(identity: SinkIdentity): Unit = ()
  }
}
