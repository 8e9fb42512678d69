package statemark.spark.errors

import statemark.common.{FailureKind, SourceOffset, StatemarkException}

/** The kinds of failures of the provider, and of reads of running queries. */
sealed abstract class StoreKind(override val name: String, override val isRetryable: Boolean)
    extends FailureKind

object StoreKind {
  case object StoreMoved extends StoreKind("StoreMoved", isRetryable = true)
  case object StoreUnreachable extends StoreKind("StoreUnreachable", isRetryable = true)
  case object LookupTimeout extends StoreKind("LookupTimeout", isRetryable = true)
  case object VersionGone extends StoreKind("VersionGone", isRetryable = true)
  case object PositionBound extends StoreKind("PositionBound", isRetryable = true)
  case object OffsetsDiffer extends StoreKind("OffsetsDiffer", isRetryable = false)
  case object StaleTask extends StoreKind("StaleTask", isRetryable = false)
  case object CheckpointDamaged extends StoreKind("CheckpointDamaged", isRetryable = false)

  /** The kind of a [[LookupException]] that is caused by no other kind, as by a refusal of Spark's. */
  case object LiveRead extends StoreKind("LiveRead", isRetryable = false)

  val all: Seq[StoreKind] = Seq(
    StoreMoved,
    StoreUnreachable,
    LookupTimeout,
    VersionGone,
    PositionBound,
    OffsetsDiffer,
    StaleTask,
    CheckpointDamaged,
    LiveRead
  )
}

/** An exception of the provider, or of a read: one class for each thing that the caller can do next.
  *
  * @param problem what has failed and why, with the values
  * @param remedy what to do about it
  */
sealed abstract class StoreException(
    kind: StoreKind,
    val problem: String,
    override val remedy: String,
    cause: Option[Throwable]
) extends StatemarkException(kind, s"$problem $remedy", cause) {
  final override def why: String = problem
}

/** A store was open on an executor and is not any more: read again. */
final class StoreMovedException(store: String)
    extends StoreException(
      StoreKind.StoreMoved,
      s"$store was closed while it was read: its query has stopped, or the store has moved to another executor.",
      "Read again.",
      None
    )

/** The executor that has a store open, or the driver that knows which one has, does not answer as it should: read
  * again.
  *
  * @param asked the JVM that was asked, and why that one
  */
final class StoreUnreachableException(store: String, asked: String, cause: Throwable)
    extends StoreException(
      StoreKind.StoreUnreachable,
      s"$asked did not answer a read of $store: ${Option(cause.getMessage).getOrElse(cause)}.",
      "Read again; where it is busy, raise spark.rpc.askTimeout.",
      Some(cause)
    )

/** Stores are open nowhere, and no executor has read them in the time that a lookup would wait: read again, or wait
  * longer.
  */
final class LookupTimeoutException(partitions: Int, timeoutMs: Long)
    extends StoreException(
      StoreKind.LookupTimeout,
      (if (partitions == 1)
         "A partition of a lookup has its store open nowhere, and no executor has read it"
       else
         s"$partitions partitions of a lookup have their stores open nowhere, and no executor has read them") +
        s" within $timeoutMs ms. The tasks of a batch may have all executors, as those of the first one after a restart.",
      "Read again when that batch is through, or wait longer with option timeout; where it comes again, give the " +
        "application an executor or a core more.",
      None
    )

/** A store is open, and does not keep the version any more that a read was pinned to: read again. */
final class VersionGoneException(store: String, version: Long, newest: Long)
    extends StoreException(
      StoreKind.VersionGone,
      s"Version $version of $store is not kept any more: the query is at version $newest.",
      "Read again; for reads that begin later raise readRetentionTime.",
      None
    )

/** No committed batch of a query includes what a read asks for, in the time that it would wait: wait longer.
  *
  * @param of who has to get so far: a query, or the output of one
  * @param reached the position of the last committed batch
  * @param bound the position that the read asks for
  */
final class PositionBoundException(
    of: String,
    reached: Option[String],
    bound: Option[String],
    timeoutMs: Long
) extends StoreException(
      StoreKind.PositionBound,
      s"$of is at ${reached.getOrElse("no committed batch")} after $timeoutMs ms" +
        s"${bound.fold("")(b => s", and the read is bound to $b")}.",
      "Wait longer with option timeout, or look at why the query makes no progress.",
      None
    )

/** A store holds other source offsets than its query's offset log has for that version: one of the two is of another
  * history, and rows would be counted twice, or not at all.
  *
  * @param differences a source as the store has it, and as the log has it
  * @param remedy one of the object's, for who is refused
  */
final class OffsetsDifferException(
    store: String,
    version: Long,
    differences: Seq[(SourceOffset, SourceOffset)],
    remedy: String
) extends StoreException(
      StoreKind.OffsetsDiffer,
      s"Version $version of $store holds the source offsets " +
        s"${OffsetsDifferException.shown(differences.map(_._1))}, and entry ${version - 1} of its query's offset log " +
        s"has ${OffsetsDifferException.shown(differences.map(_._2))}.",
      remedy,
      None
    )

object OffsetsDifferException {
  private val MaxChars = 200

  /** Tells what to do where a task is refused that begins a batch. */
  val OfTask: String =
    "If the entry was changed, bring it back from a copy of the checkpoint. If the entry is right, stop the query and " +
      "delete its stores in the local directory (statemark local --prune --max-age 1s): they are loaded from the " +
      "checkpoint then. With checkOffsets=warn the query goes on as it is."

  /** Tells what to do where a live read is refused. */
  val OfRead: String =
    "Its rows are of another history than the query's offset log. Read again after the next batch, which the query " +
      "refuses unless checkOffsets is 'warn'; docs/restarts.md says what to do."

  private def shown(sources: Seq[SourceOffset]): String =
    sources.map(of => s"${of.end.shown(MaxChars)} of source ${of.source}").mkString(", ")
}

/** A task builds on a version that its query has left behind: do nothing, another attempt has replaced the task. */
final class StaleTaskException(store: String, version: Long, newest: Long)
    extends StoreException(
      StoreKind.StaleTask,
      s"A task comes too late to build on version $version of $store: the query is at version $newest.",
      "Another attempt has replaced it, and there is nothing to do.",
      None
    )

/** A file in the checkpoint location is missing or damaged: bring it back from a copy.
  *
  * @param problem names the file
  */
final class CheckpointDamagedException(problem: String, remedy: String, cause: Option[Throwable])
    extends StoreException(StoreKind.CheckpointDamaged, problem, remedy, cause)

/** A lookup has no answer. The message is what [[FailureKinds]] finds in the cause, with a line for the remedy. */
final class LookupException(cause: Throwable)
    extends RefusedCallException(
      FailureKinds.linesOf(cause),
      cause,
      FailureKinds.find(cause).getOrElse(StoreKind.LiveRead)
    )
