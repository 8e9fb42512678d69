package statemark.spark.reads

import java.util.UUID
import statemark.common.Position
import statemark.spark.checkpoint.StoreAddress
import statemark.spark.cluster.SourcePosition

/** No committed batch of a query includes what a read asks for, in the time that it would wait. */
final class PositionBoundException(
    queryId: UUID,
    reached: Option[Position],
    bound: Option[Position],
    timeoutMs: Long
) extends RuntimeException(
      s"Query $queryId is at ${reached.fold("no committed batch")(SourcePosition.encode)} after $timeoutMs ms" +
        s"${bound.fold("")(b => s", and the read is bound to ${SourcePosition.encode(b)}")}. Wait longer with option " +
        "timeout, or look at why the query makes no progress."
    )

/** A store is open, and the version that a read was pinned to is not kept any more. */
final class VersionGoneException(store: StoreAddress, version: Long, newest: Long)
    extends RuntimeException(
      s"Version $version of $store is not kept any more: the query is at version $newest. Read again; for reads that " +
        "begin later raise readRetentionTime."
    )

/** A lookup has no answer; the message is that of what went wrong.
  *
  * Python is told the same over py4j and over Spark Connect because of its base class, of which both pass the message
  * on and nothing else. Of classes that Spark Connect does not know it passes the name as well; and where an error is
  * Spark's own, py4j raises it as that.
  */
final class LookupException(cause: Throwable)
    extends IllegalArgumentException(Option(cause.getMessage).getOrElse(cause.toString), cause)

/** The executor that has a store open does not answer as it should. */
final class StoreUnreachableException(store: StoreAddress, executorId: String, cause: Throwable)
    extends RuntimeException(
      s"Executor $executorId, which has $store open, did not answer: ${cause.getMessage}. Read again; where it is " +
        "busy, raise spark.rpc.askTimeout.",
      cause
    )

/** A store was open on an executor and is not any more. */
final class StoreMovedException(store: StoreAddress)
    extends RuntimeException(
      s"$store was closed while it was read: its query has stopped, or the store has moved to another executor. Read again."
    )
