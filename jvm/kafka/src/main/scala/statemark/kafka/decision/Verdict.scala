package statemark.kafka.decision

import statemark.kafka.conf.SinkException.Repeats
import statemark.kafka.conf.{SinkException, SinkIdentity}

/** What the driver knows of a batch before it runs.
  * @param batch its number, or `txnVersion`
  * @param queryId of the query that runs it
  * @param planned the batch of the query's offset log that runs; None for a batch write of which no query is known
  * @param isRerun whether Spark has planned it before: an entry in the offset log, none in the commit log
  * @param earlier a batch of the offset log by its number there, as far as the checkpoint still knows it
  * @param isWrite whether it is a batch write, whose caller may go on where it fails
  * @param placement of its rows, asked for once its plan is made
  */
final case class BatchStart(
    batch: Long,
    queryId: String,
    planned: Option[QueryBatch],
    isRerun: Boolean,
    earlier: Long => Option[QueryBatch] = _ => None,
    isWrite: Boolean = false,
    placement: () => Option[Placement] = () => None
) {

  /** Where the Kafka sources end. */
  def ends: Vector[SourceEnds] = planned.toVector.flatMap(_.ends)
}

/** Whether a batch is to be written, by what was decided before. */
sealed trait Verdict

object Verdict {
  private val Anew = "its sources end elsewhere now, or it was planned anew"
  private val ByNoQuery = "a write outside of queries has decided it, or one whose query was not " +
    "known, and nothing says that this query's batch has the same rows"

  /** @param round of the decision to come; @param reopened what the batch was when it was taken back */
  final case class Write(round: Int, reopened: Option[LastDecision.Reopened]) extends Verdict

  /** It is decided: its rows are dropped.
    * @param isOld whether later batches are decided, too: the checkpoint was restored from a backup
    */
  final case class Discard(isOld: Boolean) extends Verdict

  /** Compares a batch with the last decision.
    * @throws SinkException.WrongHistory where its number is taken by another batch
    */
  def of(identity: SinkIdentity, start: BatchStart, last: LastDecision): Verdict = {
    val newest = last.decided.headOption
    last match {
      case open: LastDecision.Reopened if start.batch == open.batch =>
        // Without rows at the readers, any batch may take the place.
        if (open.missing.isDefined) {
          if (start.planned.isDefined && open.origin == BatchOrigin.Unplanned)
            throw otherBatch(identity, start, open.batch, ByNoQuery, Some(open.batch))
          requireSame(identity, start, open.batch, start.planned, open.origin)
          requirePlacement(identity, open, start.placement())
        }
        Write(open.round, Some(open))
      case open: LastDecision.Reopened if open.missing.isDefined =>
        throw otherBatch(
          identity,
          start,
          start.batch,
          s"rows of batch ${open.batch} were lost, the others of it are with the readers, and it has to " +
            "be written again first",
          Some(open.batch)
        )
      // A query runs it again by itself.
      case open: LastDecision.Reopened if start.isWrite && start.batch > open.batch =>
        throw wrong(
          s"Version ${open.batch} of txnAppId ${identity.appId} is to be written first",
          "it was decided, and its rows were lost before readers had any: later ones would hide that",
          s"Write version ${open.batch} again, then this one; or give it up with `statemark topic forget`",
          identity,
          start,
          newest.map(_.batch)
        )
      case _ if newest.forall(start.batch > _.batch) =>
        // A copy of the checkpoint may have decided batches that this one has run without rows, and others.
        if (deciderOf(last).forall(_ == start.queryId)) newest.foreach { n =>
          n.origin match {
            case planned: BatchOrigin.Planned =>
              requireSame(identity, start, n.batch, start.earlier(planned.batch), planned)
            case BatchOrigin.Unplanned | BatchOrigin.Unsaid => ()
          }
        }
        Write(0, None)
      case _ => ofTaken(identity, start, last)
    }
  }

  /** What a second write of a batch is refused with, where this run has written it itself (K2). */
  def repeated(identity: SinkIdentity, batch: Long): SinkException = new SinkException.WrongHistory(
    s"Batch $batch is written a second time",
    "this run has decided and completed it: rows of another write with the same number would be dropped",
    "Give this write a 'sinkName' of its own, and leave the first one as it is: its rows are there " +
      "under its name, and under another they would be written again",
    Map("sink" -> identity.toString, "batch" -> batch.toString)
  )

  /** @throws SinkException.WrongHistory where a batch that was taken back in part has another number of partitions now */
  def requirePartitions(
      identity: SinkIdentity,
      reopened: LastDecision.Reopened,
      found: Int
  ): Unit =
    if (found != reopened.partitions)
      throw misplaced(
        identity,
        reopened,
        s"it has $found partitions, and had ${reopened.partitions}"
      )

  private def requirePlacement(
      identity: SinkIdentity,
      reopened: LastDecision.Reopened,
      found: Option[Placement]
  ): Unit =
    Placement.lack(reopened.placement)
      .orElse(reopened.placement.zip(found).flatMap { case (decided, now) =>
        decided.difference(now)
      }).orElse(Option.when(found.isEmpty)("nothing says where its rows are placed now"))
      .foreach(reason => throw misplaced(identity, reopened, reason))

  private def misplaced(
      identity: SinkIdentity,
      reopened: LastDecision.Reopened,
      reason: String
  ) = new SinkException.WrongHistory(
    s"Batch ${reopened.batch} cannot be written again in part",
    s"$reason, so nobody knows which rows its lost partitions have: with others, readers would have rows twice, or " +
      "never",
    "Run it as it ran: with the settings that it had, spark.sql.adaptive.enabled=false, " +
      "spark.sql.shuffle.partitions and what splits its input among them. Another 'sinkName', or " +
      "`statemark topic forget --force`, writes the batch whole once more",
    Map("sink" -> identity.toString, "batch" -> reopened.batch.toString)
  )

  private def requireSame(
      identity: SinkIdentity,
      start: BatchStart,
      batch: Long,
      here: Option[QueryBatch],
      decided: BatchOrigin
  ): Unit = (here, decided) match {
    case (Some(mine), theirs: BatchOrigin.Planned) if !mine.is(theirs) =>
      throw otherBatch(identity, start, batch, Anew, Some(batch))
    case _ => ()
  }

  /** The query that made the last decision, where that says it. */
  private def deciderOf(last: LastDecision): Option[String] = last match {
    case LastDecision.Decided(decision) => Some(decision.queryId)
    case open: LastDecision.Reopened => open.queryId
    case LastDecision.Nothing => None
  }

  /** The number of the batch is not above the last that was decided. */
  private def ofTaken(identity: SinkIdentity, start: BatchStart, last: LastDecision): Verdict = {
    val newest = last.decided.headOption
    def other(reason: String) =
      otherBatch(identity, start, start.batch, reason, newest.map(_.batch))
    // Where the query was not known, the owner is the name of the job, which any query of it has.
    deciderOf(last).filter(decider =>
      decider != start.queryId && !Set(decider, start.queryId)(identity.appId)
    ).foreach(decider => throw notOfQuery(identity, start, decider, newest.map(_.batch)))
    val found = last.decided.find(_.batch == start.batch).map(_.origin)
    (start.planned, found) match {
      case (_, None) if start.isWrite => throw tooLate(identity, start, newest.map(_.batch))
      case (_, None) =>
        throw other("nothing is known of a decision about it, and later ones were decided")
      case (Some(mine), Some(theirs: BatchOrigin.Planned)) if mine.batch != theirs.batch =>
        throw other(
          s"it was batch ${theirs.batch} of the query, and is batch ${mine.batch} now: versions are counted in " +
            "another way, or by nothing that stays the same when a batch runs again"
        )
      case (Some(mine), Some(theirs: BatchOrigin.Planned)) =>
        if (!mine.is(theirs)) throw other(Anew + elsewhere(mine, theirs, start, last))
        // A query's batch may have several versions.
        val isOld = newest.exists(n =>
          n.batch > start.batch && (n.origin match {
            case of: BatchOrigin.Planned => of.batch != mine.batch
            case BatchOrigin.Unplanned | BatchOrigin.Unsaid => true
          })
        )
        if (isOld && !theirs.namesContent) throw other(
          "later batches are decided as well, and the offsets of a source are only counters, " +
            "which do not say what was read"
        )
        Discard(isOld)
      case (Some(_), Some(BatchOrigin.Unplanned)) => throw other(ByNoQuery)
      // It may be this batch, which an earlier release has decided; only of the last one that is likely.
      case (Some(_), Some(BatchOrigin.Unsaid))
          if start.isWrite && newest.exists(_.batch == start.batch) &&
            deciderOf(last).forall(_ == start.queryId) =>
        Discard(isOld = false)
      case (Some(_), Some(BatchOrigin.Unsaid)) => throw other(
          "an earlier release has decided it in a batch write, and did not note which batch it was"
        )
      // Of such a write nobody knows more than its number.
      case (None, Some(_)) => Discard(newest.exists(_.batch > start.batch))
    }
  }

  /** The sources that end elsewhere now, where the last decision has them. */
  private def elsewhere(
      mine: QueryBatch,
      theirs: BatchOrigin.Planned,
      start: BatchStart,
      last: LastDecision
  ): String = last match {
    case LastDecision.Decided(decision) if decision.batch == start.batch =>
      val decided = BatchFingerprint(decision.sources)
      theirs.kinds.map(mine.fingerprintOf(_).differences(decided)).minByOption(_.size)
        .filter(_.nonEmpty).fold("")(_.mkString(": ", ", ", ""))
    case _ => ""
  }

  private def notOfQuery(
      identity: SinkIdentity,
      start: BatchStart,
      decider: String,
      newest: Option[Long]
  ) = wrong(
    s"txnVersion ${start.batch} of txnAppId ${identity.appId} is not of this query",
    s"query $decider has decided versions up to ${newest.getOrElse(start.batch)}, and this one " +
      "begins anew: its rows would be dropped",
    "Use another txnAppId, such as the query id, or remove what the other query has decided " +
      "with `statemark topic forget`; rows that it wrote stay",
    identity,
    start,
    newest
  )

  private def tooLate(identity: SinkIdentity, start: BatchStart, newest: Option[Long]) = wrong(
    s"Version ${start.batch} of txnAppId ${identity.appId} comes too late",
    "later ones are decided, and nothing is known of a decision about it: it would be dropped",
    "Write versions one after another, each above the last; of writes that go on side by side, the " +
      s"second one needs a 'sinkName'. With a new one for a write of before, $Repeats",
    identity,
    start,
    newest
  )

  private def otherBatch(
      identity: SinkIdentity,
      start: BatchStart,
      batch: Long,
      reason: String,
      newest: Option[Long]
  ) = wrong(
    s"Batch $batch is not the one that was decided",
    reason,
    "Was the checkpoint copied, or set back? Stop the copy, start the query on its own checkpoint, and " +
      "give a copy that is to be a query of its own another 'sinkName'. On a checkpoint that was set " +
      "back, another 'sinkName', or `statemark topic forget`, writes again what came after it",
    identity,
    start,
    newest
  )

  private def wrong(
      problem: String,
      reason: String,
      remedy: String,
      identity: SinkIdentity,
      start: BatchStart,
      newest: Option[Long]
  ) = new SinkException.WrongHistory(
    problem,
    reason,
    remedy,
    Map("sink" -> identity.toString, "batch" -> start.batch.toString) ++
      newest.map("lastDecided" -> _.toString)
  )
}
