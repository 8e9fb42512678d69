package statemark.kafka.log

import scala.collection.immutable.ArraySeq
import statemark.kafka.conf.SinkIdentity
import statemark.kafka.decision.LastDecision
import statemark.kafka.rows.TransactionName

/** A record of the commit topic. The topic is compacted: the last record of a key counts. */
sealed trait CommitRecord {
  def identity: SinkIdentity
}

/** Who writes for the identity now: one record per identity, written anew at the first batch of each run.
  *
  * @param driverId the transactional id that may decide; whoever comes next fences it, whatever its own is (K7)
  * @param run one more at each run
  * @param queryName name of the query, empty where it has none
  * @param topics that the sink named in its options, ascending
  */
final case class IdentityRecord(
    identity: SinkIdentity,
    queryId: String,
    driverId: String,
    prefix: String,
    run: Long,
    queryName: String,
    topics: Vector[String]
) extends CommitRecord

/** A piece of a decision: one of more than `RecordCodec.PartBytes` is written in several records of one transaction.
  * Records of the next decision may leave old pieces with higher numbers behind, so each says which decision it is of.
  * @param format of the bytes, and of the record
  */
final case class DecisionPart(
    identity: SinkIdentity,
    batch: Long,
    round: Int,
    part: Int,
    parts: Int,
    bytes: ArraySeq[Byte],
    format: Byte = DecisionCodec.Newest
) extends CommitRecord

/** Takes a decision back; it replaces the first part of that. */
final case class ReopenedRecord(identity: SinkIdentity, reopened: LastDecision.Reopened)
    extends CommitRecord

/** One transaction of a decision is with the readers: it was committed, or its rows were copied.
  * @param copied how many rows, in the order of the decision, are copied; None where the transaction itself was committed
  */
final case class Token(
    identity: SinkIdentity,
    slot: Int,
    transaction: TransactionName,
    batch: Long,
    round: Int,
    copied: Option[Long]
) extends CommitRecord
