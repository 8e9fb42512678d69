package statemark.kafka.conf

/** The points that a batch passes on its way to its readers. Tests make drivers and executors die at each of them; the
  * lists are closed, so that none is forgotten.
  */
sealed abstract class SinkPhase(val name: String)

object SinkPhase {

  /** Executor: the first row of an attempt is with the producer. */
  case object RowSent extends SinkPhase("row-sent")

  /** Executor: every row of an attempt is acknowledged; the driver has no message yet. */
  case object AttemptFinished extends SinkPhase("attempt-finished")

  /** Driver: all messages are there; nothing is decided. */
  case object BeforeDecision extends SinkPhase("before-decision")

  /** Driver: the decision is sent, its transaction is still open. */
  case object DecisionSent extends SinkPhase("decision-sent")

  /** Driver: the decision is committed. From here on the batch is what it says, whatever dies. */
  case object DecisionDurable extends SinkPhase("decision-durable")

  /** Executor: the token is sent, the transaction is still open. */
  case object TokenSent extends SinkPhase("token-sent")

  /** Executor: the transaction is committed; the driver has no answer yet. */
  case object TransactionCommitted extends SinkPhase("transaction-committed")

  /** Driver: the executors have answered, or will not. */
  case object OrdersAnswered extends SinkPhase("orders-answered")

  /** Driver: the ids of what is not committed are fenced. */
  case object Fenced extends SinkPhase("fenced")

  /** Driver: the first row of a copy is with the producer. */
  case object CopyOpen extends SinkPhase("copy-open")

  /** Driver: all rows of a copy and its tokens are sent, the transaction is still open. */
  case object Copied extends SinkPhase("copied")

  /** Driver: one transaction of a copy is committed. */
  case object CopyCommitted extends SinkPhase("copy-committed")

  /** Driver: readers can see the whole batch; Spark has not noted it. */
  case object BeforeCommitLog extends SinkPhase("before-commit-log")

  /** Driver: its id is initialized at the first batch of a run; nothing is read. */
  case object DriverInitialized extends SinkPhase("driver-initialized")

  /** Driver: the run is noted in the commit topic, and open transactions of earlier runs are fenced. */
  case object RunBegun extends SinkPhase("run-begun")

  /** Those of a batch that the driver passes, in this order. */
  val ofDriver: Seq[SinkPhase] = Seq(
    BeforeDecision,
    DecisionSent,
    DecisionDurable,
    OrdersAnswered,
    Fenced,
    CopyOpen,
    Copied,
    CopyCommitted,
    BeforeCommitLog
  )

  /** Those of an executor. */
  val ofExecutor: Seq[SinkPhase] = Seq(RowSent, AttemptFinished, TokenSent, TransactionCommitted)

  /** Those of the first batch of a run, before the others. */
  val ofRecovery: Seq[SinkPhase] = Seq(DriverInitialized, RunBegun)

  val all: Seq[SinkPhase] = ofRecovery ++ ofDriver ++ ofExecutor
}

/** Is told of every phase, on the thread that passes it; what it throws fails that thread's work. */
trait SinkObserver {
  def reached(phase: SinkPhase): Unit
}

object SinkObserver {
  val none: SinkObserver = (_: SinkPhase) => ()
}
