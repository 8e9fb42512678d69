package statemark.kafka.conf

/** What the sink throws. One class per thing that the caller can do next; a message says the problem, the reason and the
  * remedy, with the values.
  *
  * @param isRetryable whether the same run again, after a pause perhaps, may succeed without anybody changing anything
  */
sealed abstract class SinkException(
    val problem: String,
    val reason: String,
    val remedy: String,
    val values: Map[String, String],
    val isRetryable: Boolean,
    cause: Option[Throwable]
) extends RuntimeException(SinkException.text(problem, reason, remedy, values), cause.orNull)

object SinkException {

  /** An option, or what it asks for together with the topic's own settings, is refused: change it. */
  final class RefusedSetting(
      problem: String,
      reason: String,
      remedy: String,
      values: Map[String, String]
  ) extends SinkException(problem, reason, remedy, values, isRetryable = false, None)

  /** The brokers cannot do what the sink needs, or do not let this user. */
  final class UnfitCluster(
      problem: String,
      reason: String,
      remedy: String,
      values: Map[String, String],
      cause: Option[Throwable] = None
  ) extends SinkException(problem, reason, remedy, values, isRetryable = false, cause)

  /** The commit topic and the checkpoint, or `txnVersion`, do not fit: somebody has to say what is right. */
  final class WrongHistory(
      problem: String,
      reason: String,
      remedy: String,
      values: Map[String, String]
  ) extends SinkException(problem, reason, remedy, values, isRetryable = false, None)

  /** Rows of a decision are not in the log any more. */
  final class LostRows(
      problem: String,
      reason: String,
      remedy: String,
      values: Map[String, String]
  ) extends SinkException(problem, reason, remedy, values, isRetryable = false, None)

  /** Another run of the same identity has taken over: this one has to end. */
  final class Superseded(reason: String, values: Map[String, String], cause: Option[Throwable])
      extends SinkException(
        "Another run writes for the same sink",
        reason,
        "Run one query per sink: stop the other one, or give this one an option 'sinkName' of its " +
          "own",
        values,
        isRetryable = false,
        cause
      )

  /** Kafka ended an attempt's transaction, or did not take a row: the task, or the batch, runs again. */
  final class FailedWrite(
      problem: String,
      reason: String,
      remedy: String,
      values: Map[String, String],
      isRetryable: Boolean,
      cause: Option[Throwable]
  ) extends SinkException(problem, reason, remedy, values, isRetryable, cause)

  /** An answer did not come in time: what was asked for may have been done. The next run finds out. */
  final class Unavailable(
      problem: String,
      reason: String,
      remedy: String,
      values: Map[String, String],
      cause: Option[Throwable] = None
  ) extends SinkException(problem, reason, remedy, values, isRetryable = true, cause)

  /** A record of the commit topic that this release cannot read. */
  final class UnreadableRecord(reason: String, cause: Option[Throwable]) extends SinkException(
        "A record of the commit topic cannot be read",
        reason,
        "Use the release of Statemark that wrote it, or a commit topic that nothing else writes to",
        Map.empty,
        isRetryable = false,
        cause
      )

  /** A call that the state of the object does not allow, such as a write after the attempt has ended. */
  final class IllegalCall(problem: String, reason: String) extends SinkException(
        problem,
        reason,
        "Begin another attempt",
        Map.empty,
        isRetryable = false,
        None
      )

  private[kafka] def superseded(run: Long, laterRun: Long): Superseded = new Superseded(
    "a later run of the sink writes in this process already",
    Map("run" -> run.toString, "laterRun" -> laterRun.toString),
    None
  )

  /** A text of Kafka's without the full stop that ours puts behind it. */
  private[kafka] def sentence(text: String): String = String.valueOf(text).trim.stripSuffix(".")

  private[kafka] def unreadable(of: String, reason: String, cause: Option[Throwable] = None) =
    new UnreadableRecord(s"$of: $reason", cause)

  private def text(
      problem: String,
      reason: String,
      remedy: String,
      values: Map[String, String]
  ): String = {
    val shown = values.toSeq.sorted.map { case (name, value) => s"$name=$value" }
    s"$problem: $reason. $remedy.${if (shown.isEmpty) "" else shown.mkString(" (", ", ", ")")}"
  }
}
