package statemark.common

/** Says what a caller can do about a failure. Each kind has one class of exceptions, and a class of errors in Python.
  * A kind belongs to a module, which closes its list: [[CoreKind]] here, `StoreKind` in jvm/spark, `SinkKind` in
  * jvm/kafka.
  */
trait FailureKind extends Serializable {

  /** Returns the name, to which Python adds `Error`. */
  def name: String

  /** Tells whether the same call can succeed when it is made again, and nothing else is changed before. */
  def isRetryable: Boolean
}

/** The base of the exceptions that Statemark's own code throws. A module has one sealed class below it, and that one a
  * class for each kind of failure. A message says the problem, the reason, the remedy, and the values.
  */
abstract class StatemarkException(
    val kind: FailureKind,
    message: String,
    cause: Option[Throwable]
) extends RuntimeException(message, cause.orNull) {
  final def isRetryable: Boolean = kind.isRetryable

  /** Returns what has failed, and why. */
  def why: String

  /** Returns what to do about it. */
  def remedy: String
}

object Causes {

  /** Returns the failure, its cause, and so on. */
  def of(failure: Throwable): Iterator[Throwable] =
    Iterator.iterate(failure)(_.getCause).takeWhile(_ != null)
}
