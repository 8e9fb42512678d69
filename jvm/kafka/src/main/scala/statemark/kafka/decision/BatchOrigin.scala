package statemark.kafka.decision

import scala.collection.immutable.ArraySeq

/** What the rows of a batch depend on, as the plan of its query says. A query may be changed so that the next run has
  * another one, and a fingerprint is made for one: hence a decision has the kind that its batch had.
  */
sealed trait PlanKind

object PlanKind {

  /** The same input gives the same rows. */
  case object OfInput extends PlanKind

  /** The same input gives other rows at another time: timers, or time to live, of processing time. */
  case object OfTime extends PlanKind

  val all: Vector[PlanKind] = Vector(OfInput, OfTime)
}

/** A batch of a query, as its offset log has it.
  * @param batch its number in the offset log; a batch write may have another as its `txnVersion`
  * @param kind of the plan that runs it now
  * @param fingerprintOf where its sources end, as a fingerprint for a kind of plan
  * @param ends where its Kafka sources end
  */
final case class QueryBatch(
    batch: Long,
    kind: PlanKind,
    fingerprintOf: PlanKind => BatchFingerprint,
    ends: Vector[SourceEnds] = Vector.empty
) {
  def fingerprint: BatchFingerprint = fingerprintOf(kind)

  /** Tells whether this is the batch that was decided, whatever the plan is now. A batch that has no new input, as its
    * query only fires timers, ends where the one before does.
    */
  def is(decided: BatchOrigin.Planned): Boolean =
    batch == decided.batch && decided.kinds.exists(fingerprintOf(_).digest == decided.digest)
}

/** What a batch is besides its number, so that another one under that number is known as such. */
sealed trait BatchOrigin

object BatchOrigin {

  /** A batch of a query's offset log.
    * @param batch its number there
    * @param kind of the plan that ran it; None where a decision of format 1 does not say it
    * @param digest of its fingerprint for that kind
    * @param namesContent whether equal digests are equal rows
    */
  final case class Planned(
      batch: Long,
      kind: Option[PlanKind],
      digest: ArraySeq[Byte],
      namesContent: Boolean
  ) extends BatchOrigin {

    /** The kinds for which the fingerprint may have been made. */
    def kinds: Vector[PlanKind] = kind.fold(PlanKind.all)(Vector(_))
  }

  /** A batch write of which no query was known: its number is all that it has. */
  case object Unplanned extends BatchOrigin

  /** A batch write in format 1, which does not say whether a query was known. */
  case object Unsaid extends BatchOrigin

  /** Returns the origin of a batch that is about to be decided. */
  def of(planned: Option[QueryBatch]): BatchOrigin = planned.fold[BatchOrigin](Unplanned) { of =>
    val fingerprint = of.fingerprint
    Planned(of.batch, Some(of.kind), fingerprint.digest, fingerprint.namesContent)
  }
}

/** What a decision remembers of a batch that was decided before. */
final case class DecidedBatch(batch: Long, origin: BatchOrigin)
