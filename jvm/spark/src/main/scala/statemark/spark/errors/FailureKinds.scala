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

  /** Returns the message of the first failure of Statemark's among `failure` and its causes, without what Spark has put
    * around it; that of `failure` itself where none is.
    */
  def messageOf(failure: Throwable): String =
    Causes.of(failure).collectFirst { case e: StatemarkException => e }
      .orElse(Option(failure))
      .flatMap(said => Option(said.getMessage))
      .getOrElse(failure.toString)

  /** Returns the names of all kinds, and whether each is retryable. */
  def all: JMap[String, Boolean] = {
    val kinds = new JLinkedHashMap[String, Boolean]()
    (CoreKind.all ++ StoreKind.all).foreach(kind => kinds.put(kind.name, kind.isRetryable))
    kinds
  }
}
