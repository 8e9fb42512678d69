package statemark.kafka.decision

import org.apache.kafka.common.TopicPartition
import statemark.kafka.rows.{AttemptMessage, OffsetBitmap, OffsetRuns, TransactionName}

/** What a batch is, once and for all: the rows that count, by their places in the log.
  *
  * @param round 0, and one more each time that rows of a decision were lost and its batch was opened again
  * @param queryId of the query that decided: the same `txnAppId` may come from another one (K3)
  * @param partitions how many partitions the batch had
  * @param missing those that the decision is of, where rows of the others are with the readers since an earlier round;
  *   None for all
  * @param origin what tells the batch from another one of that number
  * @param sources where its sources end, for errors; none where no query was known
  * @param history batches that were decided before, the newest first
  * @param isCommitted whether the record is the token of its only transaction as well (local mode)
  * @param placement of its rows in its partitions; None in a decision of format 1
  * @param ends where its Kafka sources end; none where no query was known, and in decisions of earlier releases
  */
final case class Decision(
    batch: Long,
    round: Int,
    queryId: String,
    partitions: Int,
    missing: Option[Set[Int]],
    origin: BatchOrigin,
    sources: Vector[SourceFingerprint],
    history: Vector[DecidedBatch],
    isCommitted: Boolean,
    transactions: Vector[DecidedTransaction],
    placement: Option[Placement],
    ends: Vector[SourceEnds] = Vector.empty
) {
  def count: Long = transactions.map(_.count).sum

  /** The topics that its rows are in. */
  def topics: Set[String] = transactions.flatMap(_.rows).map(_.topicPartition.topic).toSet

  /** Each transaction with its slot: its place among those of its transactional id. */
  def slots: Vector[(DecidedTransaction, Int)] =
    transactions.zipWithIndex.map { case (transaction, at) =>
      val sameId = transactions.take(at)
        .count(_.name.transactionalId == transaction.name.transactionalId)
      (transaction, sameId)
    }

  /** What later decisions remember of this one. */
  def remembered: DecidedBatch = DecidedBatch(batch, origin)
}

object Decision {

  /** How many earlier batches a decision remembers: a checkpoint that was restored from a backup of so many batches ago
    * is still known.
    */
  val Remembered = 100

  /** How many of the last batch, which may be written in many versions: all of them run again after a crash. */
  val RememberedOfOne = 1000
}

/** The rows of one transaction that count.
  * @param partitions Spark's partitions whose rows they are, ascending
  * @param rows in the order of topic and partition, which is the order of a copy
  */
final case class DecidedTransaction(
    name: TransactionName,
    partitions: Vector[Int],
    rows: Vector[DecidedRows]
) {
  def count: Long = rows.map(_.runs.count).sum
}

/** Rows of one topic partition, and the sum of their hashes. */
final case class DecidedRows(topicPartition: TopicPartition, runs: OffsetRuns, hash: Long)

object DecidedTransaction {
  private val order: Ordering[TopicPartition] = Ordering.by(p => (p.topic, p.partition))

  /** What the attempts wrote, by transaction; their rows in a transaction become runs. */
  def of(messages: Seq[AttemptMessage]): Vector[DecidedTransaction] = {
    val names = messages.flatMap(_.rows.keys).distinct
      .sortBy(name => (name.transactionalId, name.number))
    names.map { name =>
      val writers = messages.filter(_.rows.contains(name))
      val rows = writers.flatMap(_.rows(name)).groupMap(_._1)(_._2).toVector.sortBy(_._1)(order)
        .map { case (topicPartition, written) =>
          val runs = OffsetBitmap.union(written.map(_.offsets))
          DecidedRows(topicPartition, runs, written.map(_.hash).sum)
        }
      DecidedTransaction(name, writers.map(_.attempt.partition).sorted.distinct.toVector, rows)
    }.toVector
  }
}

/** The last thing that was decided of an identity. */
sealed trait LastDecision {

  /** The batches that are decided, the newest first. */
  def decided: Vector[DecidedBatch]
}

object LastDecision {

  case object Nothing extends LastDecision {
    override def decided: Vector[DecidedBatch] = Vector.empty
  }

  final case class Decided(decision: Decision) extends LastDecision {
    override def decided: Vector[DecidedBatch] = {
      val all = decision.remembered +: decision.history
      val ofLast = all.takeWhile(of => batchOf(of).isDefined && batchOf(of) == batchOf(all.head))
      all.take(ofLast.size.max(Decision.Remembered).min(Decision.RememberedOfOne))
    }

    /** The batch of a query's offset log, where one is known. */
    private def batchOf(decided: DecidedBatch): Option[Long] = decided.origin match {
      case of: BatchOrigin.Planned => Some(of.batch)
      case BatchOrigin.Unplanned | BatchOrigin.Unsaid => None
    }
  }

  /** A decision was taken back, as the log does not have its rows any more: the batch runs again.
    * @param round of the decision that comes next
    * @param missing the partitions that have to be written again; None for all of them
    * @param partitions how many the batch had
    * @param origin of the decision: where some partitions are with the readers, no other batch may take their place
    * @param placement of the decision, as those partitions alone are written again
    * @param queryId of the query that decided; None in format 1
    */
  final case class Reopened(
      batch: Long,
      round: Int,
      missing: Option[Set[Int]],
      partitions: Int,
      origin: BatchOrigin,
      decided: Vector[DecidedBatch],
      placement: Option[Placement],
      queryId: Option[String]
  ) extends LastDecision
}
