package statemark.spark.errors

import java.util.{LinkedHashMap => JLinkedHashMap, Map => JMap}
import org.apache.spark.SparkThrowable
import statemark.common.{Causes, CoreKind, FailureKind, Interrupts, StatemarkException}

/** Tells the kinds of failures to Python, which calls it over py4j.
  *
  * ''Thread:'' any.
  */
object FailureKinds {

  /** Returns the kind of the first failure of Statemark's among `failure` and its causes; None where none is. A failure
    * that an interrupt has caused is an interrupt, whatever else it says; a file of a checkpoint that Spark misses is
    * damage.
    */
  def find(failure: Throwable): Option[FailureKind] = {
    val causes = Causes.of(failure).toSeq
    if (Interrupts.isInterrupt(failure)) Some(CoreKind.CallInterrupted)
    else
      causes.collectFirst { case e: StatemarkException => e.kind }
        .orElse(causes.collectFirst {
          case e: SparkThrowable if isOfDamage(e) => StoreKind.CheckpointDamaged
        })
        .orElse(causes.collectFirst { case _: LookupException => StoreKind.LiveRead })
  }

  /** Tells whether a failure is Spark's own, of a file in the checkpoint that is missing. */
  private def isOfDamage(failure: SparkThrowable): Boolean =
    Option(failure.getCondition).contains(MissingFile)

  private val MissingFile = "CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE"

  /** Returns the name of a failure's kind; empty where it is none of Statemark's. */
  def nameOf(failure: Throwable): String = find(failure).fold("")(_.name)

  /** Returns what has failed and why, by the first failure of Statemark's among `failure` and its causes, without what
    * Spark has put around it; the message of `failure` itself where none is.
    */
  def whyOf(failure: Throwable): String =
    ours(failure).map(_.why).orElse(Option(failure.getMessage)).getOrElse(failure.toString)

  /** Returns what is to be done about it, as its kind has it where it does not say so itself; empty where it has none. */
  def remedyOf(failure: Throwable): String = find(failure) match {
    case Some(CoreKind.CallInterrupted) => CoreKind.CallInterrupted.remedy
    case Some(kind) => ours(failure).map(_.remedy).getOrElse(
        if (kind == StoreKind.CheckpointDamaged)
          "bring the file back from a copy: `statemark verify` shows which batches can be restored"
        else ""
      )
    case None => ""
  }

  /** Returns both for who gets nothing but a message. */
  private[errors] def linesOf(failure: Throwable): String =
    ours(failure).fold(whyOf(failure))(e => s"${e.why}\n  remedy: ${e.remedy}")

  private def ours(failure: Throwable): Option[StatemarkException] =
    Causes.of(failure).collectFirst { case e: StatemarkException => e }

  /** Returns the names of all kinds, and whether each is retryable. */
  def all: JMap[String, Boolean] = {
    val kinds = new JLinkedHashMap[String, Boolean]()
    (CoreKind.all ++ StoreKind.all).foreach(kind => kinds.put(kind.name, kind.isRetryable))
    kinds
  }
}
