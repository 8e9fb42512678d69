package statemark.kafka.tools

import scala.util.Try
import statemark.kafka.conf.{SinkException, SinkIdentity}
import statemark.kafka.decision.{Decision, LastDecision, SourceEnds}
import statemark.kafka.log.{CommitState, IdentityRecord}
import statemark.kafka.rows.TransactionName

/** One sink, as the commit topic knows it.
  * @param record who writes for it; None where that cannot be read
  * @param begunAtMs when its last run began
  * @param decision the batch that was decided last, unless that was taken back
  * @param next what the next run does first
  */
final case class SinkStatus(
    identity: SinkIdentity,
    record: Option[IdentityRecord],
    begunAtMs: Option[Long],
    decision: Option[DecisionStatus],
    next: NextStart
) {

  /** Output topics, as far as they are known: the one of option `topic`, and those of the last decision. */
  def topics: Set[String] = record.toSet.flatMap((r: IdentityRecord) => r.topics) ++
    decision.toSet.flatMap((d: DecisionStatus) => d.topics)
}

/** A decided batch.
  * @param transactions how many hold its rows
  * @param topics that the rows are in
  * @param input where the Kafka sources of its query end
  * @param unfinished those that are not wholly with the readers
  */
final case class DecisionStatus(
    batch: Long,
    decidedAtMs: Option[Long],
    rows: Long,
    transactions: Int,
    topics: Set[String],
    input: Vector[SourceEnds],
    unfinished: Vector[UnfinishedTransaction]
)

/** A transaction of a decision that is not wholly with the readers.
  * @param rows how many of its rows readers do not have
  * @param isCommitting whether the brokers have its commit, and readers see it soon
  */
final case class UnfinishedTransaction(name: TransactionName, rows: Long, isCommitting: Boolean)

/** What a run, or `statemark topic finish`, does first with a sink. */
sealed abstract class NextStart(val name: String) {

  /** In words. */
  def text: String
}

object NextStart {

  case object Begins extends NextStart("begins") {
    override def text: String = "nothing is decided: writes the next batch, whatever its number"
  }

  final case class GoesOn(batch: Long) extends NextStart("goes-on") {
    override def text: String =
      s"batch $batch is complete: goes on with ${batch + 1}, or a later one"
  }

  /** @param transactions of the decision, those that are complete included */
  final case class Completes(
      batch: Long,
      transactions: Int,
      unfinished: Vector[UnfinishedTransaction]
  ) extends NextStart("completes") {
    override def text: String = {
      val (committing, open) = unfinished.partition(_.isCommitting)
      val done = transactions - unfinished.size
      val parts = Vector(
        Option.when(done > 0)(s"$done ${isAre(done)} with the readers"),
        Option.when(committing.nonEmpty)(
          s"${committing.size} ${isAre(committing.size)} being committed"
        ),
        Option.when(open.nonEmpty)(
          s"${open.size} ${isAre(open.size)} to be copied (${counted(open.map(_.rows).sum, "row")})"
        )
      ).flatten
      s"batch $batch is decided, not complete: of ${counted(transactions.toLong, "transaction")} " +
        parts.mkString(", ")
    }
  }

  /** @param missing partitions of the query that are written again; None for all */
  final case class RunsAgain(batch: Long, missing: Option[Set[Int]])
      extends NextStart("runs-again") {
    override def text: String = {
      val which = missing.fold("the batch")(p => s"partitions ${p.toSeq.sorted.mkString(", ")}")
      s"batch $batch was decided, and rows of it were lost: writes $which again"
    }
  }

  final case class Fails(why: String) extends NextStart("fails") {
    override def text: String = s"fails: $why"
  }

  private[kafka] def counted(count: Long, what: String): String =
    if (count == 1) s"1 $what" else s"$count ${what}s"

  private[kafka] def isAre(count: Int): String = if (count == 1) "is" else "are"
}

private[kafka] object SinkStatus {

  /** @param isCommitting of a transactional id: whether the brokers have a commit of it that is not through */
  def of(identity: SinkIdentity, state: CommitState)(
      isCommitting: String => Boolean
  ): SinkStatus = {
    val record = Try(state.requireReadable()).toOption.flatMap(_.identity)
    try
      state.requireReadable().last match {
        case LastDecision.Nothing =>
          SinkStatus(identity, record, state.begunAtMs, None, NextStart.Begins)
        case open: LastDecision.Reopened =>
          SinkStatus(
            identity,
            record,
            state.begunAtMs,
            None,
            NextStart.RunsAgain(open.batch, open.missing)
          )
        case LastDecision.Decided(decision) =>
          val decided = decisionOf(state, decision, isCommitting)
          val next =
            if (decided.unfinished.isEmpty) NextStart.GoesOn(decision.batch)
            else NextStart.Completes(decision.batch, decided.transactions, decided.unfinished)
          SinkStatus(identity, record, state.begunAtMs, Some(decided), next)
      }
    catch {
      case e: SinkException.UnreadableRecord =>
        SinkStatus(identity, record, state.begunAtMs, None, NextStart.Fails(e.getMessage))
    }
  }

  private def decisionOf(
      state: CommitState,
      decision: Decision,
      isCommitting: String => Boolean
  ): DecisionStatus = DecisionStatus(
    decision.batch,
    state.decidedAtMs,
    decision.count,
    decision.transactions.size,
    decision.topics,
    decision.ends,
    state.unfinished(decision).map { case (transaction, slot) =>
      UnfinishedTransaction(
        transaction.name,
        transaction.count - state.progress(decision, transaction, slot).copied,
        isCommitting(transaction.name.transactionalId)
      )
    }
  )
}
