package statemark.kafka.decision

import scala.collection.immutable.ArraySeq
import statemark.kafka.conf.SinkException.Repeats
import statemark.kafka.conf.{SinkException, SinkIdentity}

/** What the driver knows of a batch before it runs.
  * @param queryId of the query that runs it
  * @param fingerprint of its end offsets; None for a batch write, where `batch` is `txnVersion`
  * @param isRerun whether Spark has planned it before: an entry in the offset log, none in the commit log
  * @param earlier the fingerprint of an earlier batch, as far as the checkpoint still knows it
  */
final case class BatchStart(
    batch: Long,
    queryId: String,
    fingerprint: Option[BatchFingerprint],
    isRerun: Boolean,
    earlier: Long => Option[BatchFingerprint] = _ => None
)

/** Whether a batch is to be written, by what was decided before. */
sealed trait Verdict

object Verdict {

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
        if (open.missing.isDefined)
          requireSame(identity, start, open.batch, start.fingerprint, open.digest)
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
      // A query runs it again; of a job nobody knows.
      case open: LastDecision.Reopened
          if start.fingerprint.isEmpty && start.batch > open.batch =>
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
        newest.foreach(n => requireSame(identity, start, n.batch, start.earlier(n.batch), n.digest))
        Write(0, None)
      case _ =>
        start.fingerprint match {
          case None => ofVersion(identity, start, last)
          case Some(fingerprint) => ofOffsets(identity, start, fingerprint, last)
        }
    }
  }

  /** @throws SinkException.WrongHistory where a batch that was taken back in part has another number of partitions now */
  def requirePartitions(
      identity: SinkIdentity,
      reopened: LastDecision.Reopened,
      found: Int
  ): Unit =
    if (found != reopened.partitions) throw new SinkException.WrongHistory(
      s"Batch ${reopened.batch} has $found partitions, and had ${reopened.partitions}",
      "only those whose rows were lost are written again, and with another number of partitions " +
        "nobody knows which rows they have",
      "Run it with the number of partitions that it had: set spark.sql.adaptive.enabled to false " +
        "and spark.sql.shuffle.partitions as it was",
      Map("sink" -> identity.toString, "batch" -> reopened.batch.toString)
    )

  private def requireSame(
      identity: SinkIdentity,
      start: BatchStart,
      batch: Long,
      here: Option[BatchFingerprint],
      decided: Option[ArraySeq[Byte]]
  ): Unit =
    if (here.map(_.digest).zip(decided).exists { case (mine, theirs) => mine != theirs })
      throw otherBatch(
        identity,
        start,
        batch,
        "its sources end elsewhere now, or it was planned anew",
        Some(batch)
      )

  private def ofVersion(identity: SinkIdentity, start: BatchStart, last: LastDecision): Verdict =
    last match {
      // Where the query was not known, the owner is the name of the job, which any query of it has.
      case LastDecision.Decided(decision)
          if decision.queryId != start.queryId &&
            !Set(decision.queryId, start.queryId)(identity.appId) =>
        throw wrong(
          s"txnVersion ${start.batch} of txnAppId ${identity.appId} is not of this query",
          s"query ${decision.queryId} has decided versions up to ${decision.batch}, and this one " +
            "begins anew: its rows would be dropped",
          "Use another txnAppId, such as the query id, or remove what the other query has decided " +
            "with `statemark topic forget`; rows that it wrote stay",
          identity,
          start,
          Some(decision.batch)
        )
      case _ if last.decided.exists(_.batch == start.batch) =>
        Discard(last.decided.headOption.exists(_.batch > start.batch))
      case _ => throw wrong(
          s"Version ${start.batch} of txnAppId ${identity.appId} comes too late",
          "later ones are decided, and nothing is known of a decision about it: it would be dropped",
          "Write versions one after another, each above the last; of writes that go on side by side, the " +
            s"second one needs a 'sinkName'. With a new one for a write of before, $Repeats",
          identity,
          start,
          last.decided.headOption.map(_.batch)
        )
    }

  private def ofOffsets(
      identity: SinkIdentity,
      start: BatchStart,
      fingerprint: BatchFingerprint,
      last: LastDecision
  ): Verdict = {
    val newest = last.decided.headOption.map(_.batch)
    val isOld = newest.exists(_ > start.batch)
    def other(reason: String) = otherBatch(identity, start, start.batch, reason, newest)
    last.decided.find(_.batch == start.batch) match {
      case Some(DecidedBatch(_, Some(digest), _)) if digest != fingerprint.digest =>
        val where = last match {
          case LastDecision.Decided(d) if d.batch == start.batch =>
            d.fingerprint.toVector.flatMap(fingerprint.differences)
          case _ => Vector.empty
        }
        throw other(
          "its sources end elsewhere now, or it was planned anew" +
            (if (where.isEmpty) "" else where.mkString(": ", ", ", ""))
        )
      case Some(DecidedBatch(_, Some(_), namesContent)) if !isOld || namesContent =>
        Discard(isOld)
      case Some(DecidedBatch(_, Some(_), _)) =>
        throw other(
          "later batches are decided as well, and the offsets of a source are only counters, " +
            "which do not say what was read"
        )
      case _ => throw other("nothing is known of a decision about it, and later ones were decided")
    }
  }

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
