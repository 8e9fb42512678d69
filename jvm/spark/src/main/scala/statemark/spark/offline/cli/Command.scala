package statemark.spark.offline.cli

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.execution.streaming.state.StatemarkBridge
import org.json4s.{JInt, JObject, JString}
import org.json4s.jackson.JsonMethods.{compact, render}
import statemark.common.{Clock, InvalidInputException}

/** What the process says with its exit code. The `statemark` command makes 1 of findings: spark-submit
  * itself exits with 1 where it cannot start the command.
  */
sealed abstract class ExitCode(val value: Int)

object ExitCode {
  case object Ok extends ExitCode(0)

  /** The command did its work and found something that is not as it should be. */
  case object Findings extends ExitCode(10)
  case object Failed extends ExitCode(2)

  /** As a shell has it of a command that SIGPIPE has ended. */
  case object Unread extends ExitCode(128 + 13)
}

/** A tool on what a query keeps: a subcommand of `statemark`. Other modules of the jar name theirs in
  * `META-INF/services`.
  */
trait Command {

  /** Its arguments, whose fields have the names that they have in JSON. */
  type Arguments <: Product

  def name: String

  /** Reads its arguments.
    *
    * @throws InvalidInputException as [[UserError]] makes it
    */
  def read(fields: Fields): Arguments

  /** @throws InvalidInputException as [[UserError]] makes it */
  def run(args: Arguments, context: CommandContext): ExitCode

  /** What there is to run.
    *
    * @throws InvalidInputException where the arguments are not those of the command
    */
  final def prepared(fields: Fields): CommandContext => ExitCode = {
    val args = fields.as(read)
    run(args, _)
  }
}

/** What a command works with.
  * @param session made when a command asks for it: some need none
  */
final class CommandContext(
    session: => SparkSession,
    val console: Console,
    val clock: Clock,
    val waiter: Waiter
) {
  lazy val spark: SparkSession = {
    val made = session
    // Spark's provider reports to the coordinator, which the session makes with this.
    made.streams: Unit
    made
  }

  lazy val hadoopConf: Configuration = StatemarkBridge.hadoopConf(spark)

  /** Shows what a command has come to: in lines, or as one JSON object that begins with the version of its keys.
    *
    * @param json its keys and values
    */
  def answer(asJson: Boolean, json: => JObject)(lines: => Seq[String]): Unit =
    if (asJson) console.result(compact(render(JObject(CommandContext.Schema +: json.obj))))
    else lines.foreach(console.result)
}

object CommandContext {

  /** The first key of every object. The number grows when a key goes away or gets another meaning; a new key leaves it
    * (docs/tools.md).
    */
  val Schema: (String, JInt) = "schema" -> JInt(1)

  private val Told = "(?s)(.*?)\n  reason: (.*?)\n  remedy: (.*)".r

  /** Returns the JSON object of an error, from a message as [[UserError]] makes it. */
  def errorOf(message: String): String = {
    val parts = message match {
      case Told(problem, reason, remedy) =>
        Seq("problem" -> problem, "reason" -> reason, "remedy" -> remedy)
      case _ => Seq("problem" -> message)
    }
    val error = JObject(parts.map { case (name, text) => name -> JString(text) }.toList)
    compact(render(JObject(Schema, "error" -> error)))
  }
}

/** Errors as all of Statemark's: what failed, why, and what to do. */
object UserError {
  def apply(
      problem: String,
      reason: String,
      remedy: String,
      cause: Option[Throwable] = None
  ): InvalidInputException =
    new InvalidInputException(s"$problem\n  reason: $reason\n  remedy: $remedy", cause)
}
