package statemark.common

/** The kinds of failures of the transactional store.
  *
  * @param remedy what to do about a failure that does not say itself
  */
sealed abstract class CoreKind(
    override val name: String,
    override val isRetryable: Boolean,
    val remedy: String
) extends FailureKind

object CoreKind {
  case object InvalidInput
      extends CoreKind(
        "InvalidInput",
        isRetryable = false,
        remedy = "correct it as the reason says"
      )

  case object StoreUnusable
      extends CoreKind(
        "StoreUnusable",
        isRetryable = true,
        remedy =
          "start the query again, which loads the store from the checkpoint; where it recurs, check the disk, " +
            "and the checkpoint with `statemark verify`"
      )

  case object LocalRejected
      extends CoreKind(
        "LocalRejected",
        isRetryable = true,
        remedy = "do nothing: the store is loaded from the next source, in the end the checkpoint"
      )

  case object ScratchFull
      extends CoreKind(
        "ScratchFull",
        isRetryable = false,
        remedy = "make room, raise maxUncommittedBytes, or make batches smaller; nothing is lost"
      )

  case object DiskUnwritable
      extends CoreKind(
        "DiskUnwritable",
        isRetryable = false,
        remedy = "make room on the disk that the reason names; nothing is lost"
      )

  case object ViewClosed
      extends CoreKind(
        "ViewClosed",
        isRetryable = true,
        remedy = "read again"
      )

  case object IllegalCall
      extends CoreKind(
        "IllegalCall",
        isRetryable = false,
        remedy = "correct the code that calls"
      )

  /** The kind of `InterruptedException`: handlers of `NonFatal` failures leave that class alone, and Spark knows it.
    * Nothing is damaged. Not to be retried, as the caller of the interrupt wants an end.
    */
  case object CallInterrupted
      extends CoreKind(
        "CallInterrupted",
        isRetryable = false,
        remedy = "do nothing, if the stop was intended"
      )

  val all: Seq[CoreKind] = Seq(
    InvalidInput,
    StoreUnusable,
    LocalRejected,
    ScratchFull,
    DiskUnwritable,
    ViewClosed,
    IllegalCall,
    CallInterrupted
  )
}

/** An exception of the transactional store: one class for each thing that the caller can do next. */
sealed abstract class CoreException(
    kind: CoreKind,
    val problem: String,
    cause: Option[Throwable],
    ownRemedy: Option[String] = None
) extends StatemarkException(kind, (problem +: ownRemedy.toSeq).mkString(" "), cause) {

  // Some have all three lines, as users see them, in one text.
  final override def why: String =
    problem.split(CoreException.Remedy).head.replace(CoreException.Reason, ": ")

  /** Returns what to do about it: the remedy of its kind, where it has none of its own. */
  final override def remedy: String =
    ownRemedy.orElse(problem.split(CoreException.Remedy).lift(1)).getOrElse(kind.remedy)
}

private object CoreException {
  private val Reason = "\n  reason: "
  private val Remedy = "\n  remedy: "
}

/** A setting, an argument or an option is wrong: change it as the message says.
  *
  * @param remedy what to do about it, where `message` does not say it
  */
final class InvalidInputException(
    message: String,
    cause: Option[Throwable] = None,
    remedy: Option[String] = None
) extends CoreException(CoreKind.InvalidInput, message, cause, remedy)

/** The local copy of a store is damaged: load the store again from the checkpoint, as the next attempt does. */
final class StoreUnusableException(message: String, cause: Option[Throwable] = None)
    extends CoreException(CoreKind.StoreUnusable, message, cause)

/** A home that an earlier process left is of no use: load the store from the checkpoint, as the loader does.
  *
  * @param reason as a metric counts it
  */
final class LocalRejectedException(
    val reason: RejectReason,
    message: String,
    cause: Option[Throwable] = None
) extends CoreException(CoreKind.LocalRejected, message, cause)

/** The local disk does not take staged writes over the limit: make room. The task fails, and nothing is lost. */
final class ScratchFullException(message: String, cause: Option[Throwable])
    extends CoreException(CoreKind.ScratchFull, message, cause)

/** A disk takes no more, as it is full, has used up its quota, or is read-only: make room, as the message says. No file
  * is damaged, and nothing is lost. [[DiskWrites]] makes it.
  */
final class DiskUnwritableException(problem: String, remedy: String, cause: Throwable)
    extends CoreException(CoreKind.DiskUnwritable, problem, Some(cause), Some(remedy))

/** A view is closed, as its store has gone: read again, from where the store is now. */
final class ViewClosedException(message: String)
    extends CoreException(CoreKind.ViewClosed, message, None)

/** The state of an object does not allow a call, such as one to a closed scan: correct the code. */
final class IllegalCallException(message: String)
    extends CoreException(CoreKind.IllegalCall, message, None)
