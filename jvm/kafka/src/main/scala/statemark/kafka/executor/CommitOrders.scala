package statemark.kafka.executor

import org.apache.kafka.common.TopicPartition
import statemark.kafka.conf.SinkIdentity
import statemark.kafka.log.Token
import statemark.kafka.rows.{AttemptId, TransactionName}

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

  /** Has every executor that can be reached abort its open transactions of the identity that hold rows of batches up to
    * `batch` and of no later one (`ExecutorSinks.abort`). Best effort: waits for nobody, throws nothing.
    */
  def abort(identity: SinkIdentity, batch: Long): Unit
}

object CommitOrders {

  /** Without executors in other processes. */
  val none: CommitOrders = new CommitOrders {
    override def commit(orders: Seq[CommitOrder]): Map[TransactionName, CommitAnswer] = Map.empty
    override def abort(identity: SinkIdentity, batch: Long): Unit = ()
  }
}
