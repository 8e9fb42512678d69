package statemark.kafka.doctor

import scala.util.control.NonFatal
import statemark.kafka.conf.{SinkException, SinkSettings}
import statemark.kafka.tools.BrokerAnswers

/** How grave a check's answer is. */
sealed abstract class CheckState(val name: String)

object CheckState {
  case object Ok extends CheckState("ok")

  /** The sink works, and promises less than it could. */
  case object Warning extends CheckState("warning")

  /** The sink does not work. */
  case object Problem extends CheckState("problem")
}

/** One thing that was looked at.
  * @param name what it is, as `output topic`
  * @param text what was found
  * @param remedy what to do, where it is not as it should be
  */
final case class Check(name: String, state: CheckState, text: String, remedy: Option[String])

private[kafka] object Check {
  def ok(name: String, text: String): Check = Check(name, CheckState.Ok, text, None)

  def warning(name: String, text: String, remedy: String): Check =
    Check(name, CheckState.Warning, text, Some(remedy))

  def problem(name: String, text: String, remedy: String): Check =
    Check(name, CheckState.Problem, text, Some(remedy))

  /** Whether these say only what is as it should be. */
  def areOk(checks: Seq[Check]): Boolean = checks.forall(_.state == CheckState.Ok)

  /** Runs `body`; where Kafka or the sink refuses, that is the answer. */
  def of(name: String, settings: SinkSettings)(body: => Seq[Check]): Seq[Check] =
    try BrokerAnswers.asking(settings, "It cannot be checked")(body)
    catch {
      case e: SinkException => Seq(problem(name, s"${e.problem}: ${e.reason}", e.remedy))
      case NonFatal(e) => Seq(problem(name, s"It cannot be checked: $e", "Report it"))
    }
}
