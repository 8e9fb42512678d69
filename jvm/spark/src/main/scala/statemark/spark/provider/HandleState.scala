package statemark.spark.provider

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

  /** @param refusal what Spark's own store says where the operation is not allowed */
  sealed abstract class Operation(val refusal: HandleState => String)
  case object Update extends Operation(state => s"Cannot update after $state")
  case object CommitResult
      extends Operation(state => s"Expected possible states (UPDATING) but found $state")
  case object Abort
      extends Operation(state => s"Expected possible states (UPDATING, ABORTED) but found $state")
  case object Release extends Operation(state => s"Cannot release after $state")
  case object Metrics extends Operation(state => s"Cannot get metrics in $state state")

  private val allowed: Map[(HandleState, Operation), HandleState] = Map(
    (Updating, Update) -> Updating,
    (Updating, CommitResult) -> Committed,
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
      throw StateStoreErrors.stateStoreOperationOutOfOrder(operation.refusal(state))
    )
}
