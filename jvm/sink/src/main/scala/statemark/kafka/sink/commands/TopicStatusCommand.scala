package statemark.kafka.sink.commands

import statemark.spark.offline.cli.{CommandContext, ExitCode, Fields}

/** `topic status [IDENTITY]`: what the commit topic knows of sinks, and what their next start does. */
final class TopicStatusCommand extends KafkaCommand {
  override type Arguments = TopicStatusCommand.Arguments
  override val name: String = "topic status"

  override def read(fields: Fields): Arguments = TopicStatusCommand.Arguments(
    fields.text("bootstrapServers"),
    fields.text("commitTopic"),
    fields.optionalText("commandConfig"),
    fields.optionalText("identity"),
    fields.optionalText("prefix"),
    fields.flag("json")
  )

  override def run(args: Arguments, context: CommandContext): ExitCode = withKafka {
    val report =
      KafkaCommand.ask(args.bootstrapServers, args.commitTopic, args.commandConfig, context)(
        _.status(args.identity, args.prefix)
      )
    context.answer(args.json, TopicText.json(report))(TopicText.lines(report))
    ExitCode.Ok
  }
}

object TopicStatusCommand {

  /** @param commandConfig a file of client properties
    * @param identity of the sinks wanted; None for all
    * @param prefix of the transactional ids of those; None for any
    */
  final case class Arguments(
      bootstrapServers: String,
      commitTopic: String,
      commandConfig: Option[String],
      identity: Option[String],
      prefix: Option[String],
      json: Boolean
  )
}
