package statemark.spark.errors

import org.apache.spark.sql.AnalysisException
import statemark.common.{FailureKind, StatemarkException}

/** A failure of a call of a user's, in Spark's own class: clients of Spark have one of their own for it, also over Connect,
  * which passes on its message and its condition and nothing else, and show the message without a stack. The condition is
  * the kind of the failure.
  *
  * @param kind of the failure
  */
abstract class RefusedCallException private[errors] (
    message: String,
    failure: Throwable,
    val kind: FailureKind
) extends AnalysisException(
      message,
      None,
      None,
      Some(failure),
      Some(s"STATEMARK.${kind.name}"),
      Map.empty,
      Array.empty
    ) {

  /** Tells whether the same call can succeed when it is made again. */
  def isRetryable: Boolean = kind.isRetryable
}

/** A use of format `statemark` that Spark cannot plan, or a write of `statemark-kafka` that failed.
  *
  * @param problem what cannot be done
  */
final class FormatRefusedException private[spark] (problem: String, failure: StatemarkException)
    extends RefusedCallException(
      s"$problem\n  reason: ${failure.why}\n  remedy: ${failure.remedy}",
      failure,
      failure.kind
    )

object FormatRefusedException {

  /** Runs a step of a use, in the thread of the user's call. */
  private[statemark] def where[A](problem: => String)(step: => A): A =
    try step
    catch {
      case e: StatemarkException => throw new FormatRefusedException(problem, e)
    }
}
