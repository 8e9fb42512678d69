package statemark.spark

import org.apache.spark.sql.execution.streaming.state.StateStoreErrors

/** Where a store handle stands in its life, and what it may do there. Spark calls abort and release
  * several times for one failed task, so that both are allowed again in the state that they lead to.
  */
sealed trait HandleState

object HandleState {
  case object Updating extends HandleState { override def toString: String = "UPDATING" }
  case object Committed extends HandleState { override def toString: String = "COMMITTED" }
  case object Aborted extends HandleState { override def toString: String = "ABORTED" }
  case object Released extends HandleState { override def toString: String = "RELEASED" }

  sealed abstract class Operation(val verb: String)
  case object Update extends Operation("update")
  case object Commit extends Operation("commit")
  case object Abort extends Operation("abort")
  case object Release extends Operation("release")
  case object Metrics extends Operation("get metrics")

  private val allowed: Map[(HandleState, Operation), HandleState] = Map(
    (Updating, Update) -> Updating,
    (Updating, Commit) -> Committed,
    (Updating, Abort) -> Aborted,
    (Updating, Release) -> Released,
    (Aborted, Abort) -> Aborted,
    (Released, Release) -> Released,
    (Committed, Metrics) -> Committed,
    (Aborted, Metrics) -> Aborted,
    (Released, Metrics) -> Released
  )

  /** @throws StateStoreOperationOutOfOrder where `operation` is not allowed in `state` */
  def next(state: HandleState, operation: Operation): HandleState =
    allowed.getOrElse(
      (state, operation),
      throw StateStoreErrors.stateStoreOperationOutOfOrder(s"Cannot ${operation.verb} after $state")
    )
}
