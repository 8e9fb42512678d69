package statemark.kafka.decision

import statemark.kafka.conf.SinkIdentity

/** What a batch was, for the metrics of the sink.
  * @param rows that were decided
  * @param transactions that hold them
  * @param decisionMs until the decision was durable
  * @param commitMs from then on until readers could see all of it
  * @param copiedRows of `rows`, those that came to the readers by a copy
  * @param isDiscarded whether the batch was decided before, so that its rows were dropped
  * @param openTransactions of earlier runs, that the recovery before the batch ended; 0 where there was none
  * @param refusedRows of `rows`, those that went to the topic of refused rows
  */
final case class BatchFigures(
    batch: Long,
    rows: Long,
    transactions: Int,
    decisionMs: Long,
    commitMs: Long,
    copiedRows: Long,
    isDiscarded: Boolean,
    openTransactions: Int,
    refusedRows: Long = 0
)

/** What became of a decision that was not complete.
  * @param found transactions that had their token after all
  * @param copiedTransactions and `copiedRows`: what was copied
  * @param reopened where rows were lost, what has to be written again
  */
final case class CompletionReport(
    found: Int,
    copiedTransactions: Int,
    copiedRows: Long,
    reopened: Option[LastDecision.Reopened]
)

object CompletionReport {
  val nothing: CompletionReport = CompletionReport(0, 0, 0, None)
}

/** What became of the batch that was decided last. */
sealed trait Outcome

object Outcome {

  /** All of it is with the readers. */
  case object Complete extends Outcome

  /** Nothing was decided, and nothing will be seen. */
  case object Undecided extends Outcome

  /** Rows of it are not in the log any more, and the decision was taken back. */
  case object Lost extends Outcome
}

/** What a run found before its first batch, or a retry after a failure, and what was done.
  * @param decided the batch that was decided last
  * @param outcome what became of it
  * @param fenced transactional ids whose transactions were open
  * @param completion of that batch, where it was not complete
  * @param notes warnings, and checks that were not allowed; a line each
  */
final case class RecoveryReport(
    identity: SinkIdentity,
    run: Long,
    decided: Option[Long],
    outcome: Outcome,
    fenced: Set[String],
    completion: Option[CompletionReport],
    notes: Vector[String]
) {

  private[kafka] def noting(note: String): RecoveryReport = copy(notes = notes :+ note)

  /** One line for the log. */
  def line: String = {
    val batch = decided.fold("nothing is decided yet")(b => s"batch $b was decided last")
    val open = s"${fenced.size} open transactions of earlier runs ended"
    val whole = decided.fold("")(_ => ", it is complete")
    val completed = completion.fold(whole) { c =>
      val again = c.reopened.fold("")(r => s", batch ${r.batch} runs again")
      s", ${c.found} transactions were committed, ${c.copiedTransactions} copied " +
        s"(${c.copiedRows} rows)$again"
    }
    s"Sink $identity, run $run: $batch$completed; $open"
  }
}
