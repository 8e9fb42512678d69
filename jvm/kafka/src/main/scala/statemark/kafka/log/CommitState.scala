package statemark.kafka.log

import scala.collection.immutable.ArraySeq
import scala.util.Try
import statemark.kafka.conf.SinkException
import statemark.kafka.decision.{DecidedTransaction, Decision, LastDecision}

/** What the commit topic says of one identity.
  * @param records the last record of each key
  * @param drivers all transactional ids that identity records name, also those that were replaced: any of them may have
  *   been about to decide (K7)
  * @param unreadable why a record cannot be read, by its key: it stops its own sink, and no other
  * @param begunAtMs when the last run began
  * @param decidedAtMs when the last decision was written, or taken back
  */
final case class CommitState(
    records: Map[ArraySeq[Byte], CommitRecord],
    drivers: Set[String],
    unreadable: Map[ArraySeq[Byte], SinkException] = Map.empty,
    begunAtMs: Option[Long] = None,
    decidedAtMs: Option[Long] = None
) {

  /** Returns the state with one record more.
    * @param record what [[CommitState.decoded]] gave; None removes what has the key
    */
  private[kafka] def updated(
      key: Array[Byte],
      record: Either[SinkException.UnreadableRecord, Option[CommitRecord]],
      timestampMs: Long
  ): CommitState = {
    val wrapped = ArraySeq.unsafeWrapArray(key)
    val others = copy(records = records.removed(wrapped), unreadable = unreadable.removed(wrapped))
    record match {
      case Left(e) => others.copy(unreadable = others.unreadable.updated(wrapped, e))
      case Right(Some(record: IdentityRecord)) =>
        others.copy(
          others.records.updated(wrapped, record),
          drivers + record.driverId,
          begunAtMs = Some(timestampMs)
        )
      case Right(Some(record: Token)) => others.copy(others.records.updated(wrapped, record))
      case Right(Some(record)) =>
        others.copy(others.records.updated(wrapped, record), decidedAtMs = Some(timestampMs))
      case Right(None) => others
    }
  }

  /** @throws SinkException.UnreadableRecord where this release cannot read all of it */
  private[kafka] def requireReadable(): CommitState = {
    unreadable.valuesIterator.foreach(throw _)
    this
  }

  def isReadable: Boolean = unreadable.isEmpty && Try(last).isSuccess

  def isEmpty: Boolean = records.isEmpty && unreadable.isEmpty

  def identity: Option[IdentityRecord] =
    records.valuesIterator.collectFirst { case record: IdentityRecord => record }

  /** What was decided last.
    * @throws SinkException.UnreadableRecord where a part of the decision is missing
    */
  lazy val last: LastDecision = {
    val parts = records.valuesIterator.collect { case part: DecisionPart => part }.toVector
    records.valuesIterator.collectFirst { case ReopenedRecord(_, reopened) => reopened }
      .orElse(parts.find(_.part == 0).map(first => LastDecision.Decided(joined(first, parts))))
      .getOrElse(LastDecision.Nothing)
  }

  /** How much of a transaction is with the readers. */
  def progress(decision: Decision, transaction: DecidedTransaction, slot: Int): Progress =
    if (decision.isCommitted) Progress.Complete
    else {
      val token = records.valuesIterator.collectFirst {
        case t: Token
            if t.transaction == transaction.name && t.slot == slot &&
              t.batch == decision.batch && t.round == decision.round =>
          t
      }
      token match {
        case None => Progress.None
        case Some(Token(_, _, _, _, _, Some(copied))) if copied < transaction.count =>
          Progress.Copied(copied)
        case Some(_) => Progress.Complete
      }
    }

  /** Transactions of the decision that are not wholly with the readers, each with its slot. */
  def unfinished(decision: Decision): Vector[(DecidedTransaction, Int)] =
    decision.slots.filter { case (transaction, slot) =>
      progress(decision, transaction, slot) != Progress.Complete
    }

  /** Keys of tokens that say nothing of the last decision, and never will: an executor that is launched anew each time
    * leaves one. Those of the transactional ids and slots that it names stay, as its own token may be on the way.
    */
  private[kafka] def staleTokens: Vector[Array[Byte]] = {
    val named = last match {
      case LastDecision.Decided(of) =>
        of.slots.map { case (t, slot) => (t.name.transactionalId, slot) }.toSet
      case _ => Set.empty[(String, Int)]
    }
    records.collect {
      case (key, token: Token) if !named((token.transaction.transactionalId, token.slot)) =>
        key.toArray
    }.toVector
  }

  private def joined(first: DecisionPart, parts: Vector[DecisionPart]): Decision = {
    val own = parts.filter(p => p.batch == first.batch && p.round == first.round)
      .sortBy(_.part)
    if (own.map(_.part) != (0 until first.parts).toVector) throw SinkException.unreadable(
      s"decision of batch ${first.batch} of ${first.identity}",
      s"of its ${first.parts} parts there are ${own.map(_.part).mkString(", ")}"
    )
    DecisionCodec.decode(own.flatMap(_.bytes).toArray, first.format)
  }
}

object CommitState {
  val empty: CommitState = CommitState(Map.empty, Set.empty)

  /** Returns the record of a key, None where it has no value, or why this release cannot read it. */
  private[kafka] def decoded(
      key: Array[Byte],
      value: Option[Array[Byte]]
  ): Either[SinkException.UnreadableRecord, Option[CommitRecord]] =
    try Right(value.map(RecordCodec.decode(key, _)))
    catch { case e: SinkException.UnreadableRecord => Left(e) }
}

/** How much of a transaction is with the readers. */
sealed trait Progress {

  /** How many of its rows readers have by a copy of a part of them. */
  def copied: Long = 0
}

object Progress {
  case object None extends Progress

  /** So many of its rows, in the order of the decision. */
  final case class Copied(override val copied: Long) extends Progress
  case object Complete extends Progress
}
