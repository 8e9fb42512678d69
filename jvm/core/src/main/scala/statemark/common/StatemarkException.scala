package statemark.common

/** What Statemark's own code throws. One case per thing that the caller can do next. */
sealed abstract class StatemarkException(message: String, cause: Option[Throwable])
    extends RuntimeException(message, cause.orNull)

/** A setting, a call or a file from outside is wrong: change it as the message says. */
final class InvalidInputException(message: String, cause: Option[Throwable] = None)
    extends StatemarkException(message, cause)

/** The local copy of a store cannot be used any more: load it again from the checkpoint. */
final class StoreUnusableException(message: String, cause: Option[Throwable] = None)
    extends StatemarkException(message, cause)

/** What an earlier process left of a store is not used: load it from the checkpoint. */
final class DistrustException(
    val reason: RejectReason,
    message: String,
    cause: Option[Throwable] = None
) extends StatemarkException(message, cause)

/** The local disk does not take staged writes over the limit: the task fails, and nothing is lost. */
final class ScratchFullException(message: String, cause: Option[Throwable])
    extends StatemarkException(message, cause)

/** A live view cannot be read any more, because its store has gone: read again, from where it is now. */
final class ViewClosedException(message: String) extends StatemarkException(message, None)

/** A call that the state of the object does not allow, such as reading a closed scan. */
final class IllegalCallException(message: String) extends StatemarkException(message, None)
