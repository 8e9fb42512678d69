package statemark.spark.errors

import org.apache.spark.sql.AnalysisException
import statemark.common.{FailureKind, StatemarkException}

/** A use of format `statemark` that Spark cannot plan, or a write of `statemark-kafka` that failed, in Spark's own
  * class: clients of Spark have one of their own for it, also over Connect, and show its message without a stack. Its
  * condition is the kind of the failure.
  *
  * @param problem what cannot be done
  */
final class FormatRefusedException private[spark] (problem: String, failure: StatemarkException)
    extends AnalysisException(
      s"$problem\n  reason: ${failure.why}\n  remedy: ${failure.remedy}",
      None,
      None,
      Some(failure),
      Some(FormatRefusedException.conditionOf(failure.kind)),
      Map.empty,
      Array.empty
    ) {

  /** Returns the kind of the failure, and whether the same call can succeed when it is made again. */
  def kind: FailureKind = failure.kind
  def isRetryable: Boolean = kind.isRetryable
}

object FormatRefusedException {

  /** Returns Spark's condition of a kind, by which clients know it. */
  def conditionOf(kind: FailureKind): String = s"STATEMARK.${kind.name}"

  /** Runs a step of a use, in the thread of the user's call. */
  private[statemark] def where[A](problem: => String)(step: => A): A =
    try step
    catch {
      case e: StatemarkException => throw new FormatRefusedException(problem, e)
    }
}
