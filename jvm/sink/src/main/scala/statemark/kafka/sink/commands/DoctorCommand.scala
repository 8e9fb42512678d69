package statemark.kafka.sink.commands

import org.json4s.JObject
import org.json4s.JsonDSL._
import statemark.kafka.doctor.{Check, CheckState, KafkaDoctor}
import statemark.spark.offline.cli.{CommandContext, ExitCode, Fields}

/** `doctor --kafka BOOTSTRAP [--topic T]`: whether brokers, topics and rights are fit for the sink. */
final class DoctorCommand extends KafkaCommand {
  override type Arguments = DoctorCommand.Arguments
  override val name: String = "doctor"

  override def read(fields: Fields): Arguments = DoctorCommand.Arguments(
    fields.text("kafka"),
    fields.optionalText("topic"),
    fields.optionalText("strategy"),
    fields.optionalText("header"),
    fields.text("commitTopic"),
    fields.text("prefix"),
    fields.optionalText("commandConfig"),
    fields.flag("json")
  )

  override def run(args: Arguments, context: CommandContext): ExitCode = withKafka {
    val options = Map(
      "commitTopic" -> args.commitTopic,
      "transactionalIdPrefix" -> args.prefix
    ) ++ args.topic.map("topic" -> _)
    val settings = KafkaCommand.settings(args.kafka, args.commandConfig, options)
    val rule = args.strategy.map(TopicCompactCommand.ruleOf(_, args.header))
    val checks = KafkaDoctor.open(settings, rule).checks()
    context.answer(args.json, DoctorCommand.json(checks))(DoctorCommand.lines(checks))
    if (checks.exists(_.state == CheckState.Problem)) ExitCode.Findings else ExitCode.Ok
  }
}

object DoctorCommand {

  /** @param kafka addresses of brokers
    * @param strategy by which the topic is to be repaired: `timestamp` or `header`; None where any will do
    * @param header with strategy `header`, the key of the header with the version
    * @param prefix option `transactionalIdPrefix` of the sink
    * @param commandConfig a file of client properties
    */
  final case class Arguments(
      kafka: String,
      topic: Option[String],
      strategy: Option[String],
      header: Option[String],
      commitTopic: String,
      prefix: String,
      commandConfig: Option[String],
      json: Boolean
  )

  private[commands] def lines(checks: Seq[Check]): Seq[String] = {
    val width = checks.map(_.name.length).max
    val counts = Seq(CheckState.Problem -> "problem", CheckState.Warning -> "warning").map {
      case (state, what) => TopicText.counted(checks.count(_.state == state).toLong, what)
    }
    checks.flatMap { c =>
      s"${c.state.name.padTo(9, ' ')}${c.name.padTo(width, ' ')}  ${c.text}" +:
        c.remedy.toSeq.map(r => s"  remedy: $r")
    } :+ s"${checks.size} checks: ${counts.mkString(", ")}"
  }

  private[commands] def json(checks: Seq[Check]): JObject =
    ("ok" -> !checks.exists(_.state == CheckState.Problem)) ~
      ("checks" -> checks.map { c =>
        ("name" -> c.name) ~ ("state" -> c.state.name) ~ ("text" -> c.text) ~
          ("remedy" -> c.remedy)
      })
}
