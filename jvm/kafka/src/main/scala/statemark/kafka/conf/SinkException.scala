package statemark.kafka.conf

import java.util.{Map => JMap}
import scala.jdk.CollectionConverters._
import statemark.common.{CoreKind, FailureKind, StatemarkException}

/** The kinds of failures of the sink. */
sealed abstract class SinkKind(override val name: String, override val isRetryable: Boolean)
    extends FailureKind

object SinkKind {
  case object MissingLibrary extends SinkKind("MissingLibrary", isRetryable = false)
  case object RefusedSetting extends SinkKind("RefusedSetting", isRetryable = false)
  case object UnfitCluster extends SinkKind("UnfitCluster", isRetryable = false)
  case object WrongHistory extends SinkKind("WrongHistory", isRetryable = false)
  case object LostRows extends SinkKind("LostRows", isRetryable = false)
  case object Superseded extends SinkKind("Superseded", isRetryable = false)
  case object FailedWrite extends SinkKind("FailedWrite", isRetryable = true)
  case object UnsendableRow extends SinkKind("UnsendableRow", isRetryable = false)
  case object UnfinishedWrite extends SinkKind("UnfinishedWrite", isRetryable = false)
  case object Unavailable extends SinkKind("Unavailable", isRetryable = true)
  case object BrokenLog extends SinkKind("BrokenLog", isRetryable = false)
  case object UnreadableRecord extends SinkKind("UnreadableRecord", isRetryable = false)

  val kinds: Seq[SinkKind] = Seq(
    MissingLibrary,
    RefusedSetting,
    UnfitCluster,
    WrongHistory,
    LostRows,
    Superseded,
    FailedWrite,
    UnsendableRow,
    UnfinishedWrite,
    Unavailable,
    BrokenLog,
    UnreadableRecord
  )

  /** Returns the names of all kinds, and whether each is retryable. Python calls it over py4j. */
  def all: JMap[String, Boolean] = kinds.map(kind => kind.name -> kind.isRetryable).toMap.asJava
}

/** What the sink throws. One class per thing that the caller can do next; a message says the problem, the reason and the
  * remedy, with the values.
  */
sealed abstract class SinkException(
    kind: FailureKind,
    val problem: String,
    val reason: String,
    override val remedy: String,
    val values: Map[String, String],
    cause: Option[Throwable]
) extends StatemarkException(kind, SinkException.text(problem, reason, remedy, values), cause) {
  final override def why: String = SinkException.why(problem, reason, values)
}

object SinkException {

  /** What a remedy has to say that begins a new history of a sink. */
  private[kafka] val Repeats =
    "the batch that was not finished may then be written twice"

  /** Kafka's client library is not there: give Spark its jar. */
  final class MissingLibrary(reason: String, remedy: String, cause: Throwable)
      extends SinkException(
        SinkKind.MissingLibrary,
        "Rows cannot be written to Kafka",
        reason,
        remedy,
        Map.empty,
        Some(cause)
      )

  /** An option, or what it asks for together with the topic's own settings, is refused: change it. */
  final class RefusedSetting(
      problem: String,
      reason: String,
      remedy: String,
      values: Map[String, String],
      cause: Option[Throwable] = None
  ) extends SinkException(SinkKind.RefusedSetting, problem, reason, remedy, values, cause)

  /** The brokers cannot do what the sink needs, or do not let this user. */
  final class UnfitCluster(
      problem: String,
      reason: String,
      remedy: String,
      values: Map[String, String],
      cause: Option[Throwable] = None
  ) extends SinkException(SinkKind.UnfitCluster, problem, reason, remedy, values, cause)

  /** The commit topic and the checkpoint, or `txnVersion`, do not fit: somebody has to say what is right. */
  final class WrongHistory(
      problem: String,
      reason: String,
      remedy: String,
      values: Map[String, String]
  ) extends SinkException(SinkKind.WrongHistory, problem, reason, remedy, values, None)

  /** Rows of a decision are not in the log any more. */
  final class LostRows(
      problem: String,
      reason: String,
      remedy: String,
      values: Map[String, String]
  ) extends SinkException(SinkKind.LostRows, problem, reason, remedy, values, None)

  /** Another run of the same identity has taken over: this one has to end. */
  final class Superseded(reason: String, values: Map[String, String], cause: Option[Throwable])
      extends SinkException(
        SinkKind.Superseded,
        "Another run writes for the same sink",
        reason,
        "Stop the other one, and start this one again as it was. An option 'sinkName' is only for a " +
          s"copy that is to be a query of its own: $Repeats",
        values,
        cause
      )

  /** Kafka ended an attempt's transaction, or did not take a row for now: the task, or the batch, runs again. */
  final class FailedWrite(
      problem: String,
      reason: String,
      remedy: String,
      values: Map[String, String],
      cause: Option[Throwable]
  ) extends SinkException(SinkKind.FailedWrite, problem, reason, remedy, values, cause)

  /** Kafka will never take a row: leave it out, or name a topic for such rows. */
  final class UnsendableRow(
      problem: String,
      reason: String,
      remedy: String,
      values: Map[String, String],
      cause: Option[Throwable]
  ) extends SinkException(SinkKind.UnsendableRow, problem, reason, remedy, values, cause)

  /** Parts of a write that has no number may show: whoever repeats it writes all of its rows again. */
  final class UnfinishedWrite(
      problem: String,
      reason: String,
      remedy: String,
      values: Map[String, String],
      cause: Option[Throwable]
  ) extends SinkException(SinkKind.UnfinishedWrite, problem, reason, remedy, values, cause)

  /** An answer did not come in time: what was asked for may have been done. The next run finds out. */
  final class Unavailable(
      problem: String,
      reason: String,
      remedy: String,
      values: Map[String, String],
      cause: Option[Throwable] = None
  ) extends SinkException(SinkKind.Unavailable, problem, reason, remedy, values, cause)

  /** A partition does not have what it has acknowledged: rows of earlier batches may be gone as well. */
  final class BrokenLog(
      problem: String,
      reason: String,
      remedy: String,
      values: Map[String, String],
      cause: Option[Throwable]
  ) extends SinkException(SinkKind.BrokenLog, problem, reason, remedy, values, cause)

  /** A record of the commit topic that this release cannot read. */
  final class UnreadableRecord(reason: String, cause: Option[Throwable]) extends SinkException(
        SinkKind.UnreadableRecord,
        "A record of the commit topic cannot be read",
        reason,
        s"Use the release of Statemark that wrote it, or a commit topic that nothing else writes to: $Repeats",
        Map.empty,
        cause
      )

  /** A call that the state of the object does not allow, such as a write after the attempt has ended. */
  final class IllegalCall(problem: String, reason: String) extends SinkException(
        CoreKind.IllegalCall,
        problem,
        reason,
        "Begin another attempt",
        Map.empty,
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
  ): String =
    s"$problem: $reason. $remedy.${shown(values)}"

  private def why(problem: String, reason: String, values: Map[String, String]): String =
    s"$problem: $reason.${shown(values)}"

  /** The values as an error ends with them. */
  private[kafka] def shown(values: Map[String, String]): String = {
    val pairs = values.toSeq.sorted.map { case (name, value) => s"$name=$value" }
    if (pairs.isEmpty) "" else pairs.mkString(" (", ", ", ")")
  }
}
