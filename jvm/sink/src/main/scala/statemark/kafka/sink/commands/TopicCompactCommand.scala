package statemark.kafka.sink.commands

import java.nio.file.Path
import java.util.concurrent.TimeUnit
import org.apache.spark.network.util.JavaUtils
import statemark.kafka.compaction.{CompactionSettings, MissingVersion, TopicCompaction, VersionRule}
import statemark.kafka.conf.SinkSettings
import statemark.kafka.sink.compaction.ContinuousCompaction
import statemark.spark.offline.cli.{CommandContext, ExitCode, Fields, UserError}

/** `topic compact TOPIC --strategy …`: finds keys of which Kafka keeps another record than KIP-280 would, and repairs them.
  */
final class TopicCompactCommand extends KafkaCommand {
  override type Arguments = TopicCompactCommand.Arguments
  override val name: String = "topic compact"

  override def read(fields: Fields): Arguments = TopicCompactCommand.Arguments(
    fields.text("topic"),
    fields.text("bootstrapServers"),
    fields.text("commitTopic"),
    fields.optionalText("commandConfig"),
    fields.text("strategy"),
    fields.optionalText("header"),
    fields.text("missing"),
    fields.flag("changeRule"),
    fields.flag("dryRun"),
    fields.flag("setLag"),
    fields.optionalText("lateness"),
    fields.optionalText("scratchDir"),
    fields.flag("continuous"),
    fields.optionalText("checkpoint"),
    fields.text("trigger"),
    fields.flag("json")
  )

  override def run(args: Arguments, context: CommandContext): ExitCode = withKafka {
    val sink = KafkaCommand.settings(
      args.bootstrapServers,
      args.commandConfig,
      Map("commitTopic" -> args.commitTopic)
    )
    if (args.strategy == "offset" && args.changeRule) {
      val noted = TopicCompaction.forgetRule(sink, args.topic, isDone = !args.dryRun)
      context.answer(args.json, CompactionText.json(noted, args))(CompactionText.lines(noted, args))
      ExitCode.Ok
    } else repaired(args, sink, context)
  }

  private def repaired(
      args: Arguments,
      sink: SinkSettings,
      context: CommandContext
  ): ExitCode = {
    val settings = TopicCompactCommand.settings(args)
    CompactionConsole.listening(context) { console =>
      val compaction = TopicCompaction.open(sink, settings, console)
      if (args.continuous) {
        val trigger = TopicCompactCommand.durationMs("trigger", args.trigger)
        val checkpoint = args.checkpoint.getOrElse(
          throw UserError(
            "--continuous needs --checkpoint",
            "the query keeps there what it has read, and the winners",
            "name a directory, or a URI that Spark can write to"
          )
        )
        compaction.requireContinuous()
        ContinuousCompaction(settings, sink, checkpoint, trigger)
          .run(context.spark, console)(() => compaction.requireContinuous(isRunning = true))
        ExitCode.Ok
      } else if (args.dryRun) {
        val found = compaction.dryRun()
        if (!found.isWhole) console.said("stopped: only a part of the topic was read")
        context.answer(args.json, CompactionText.json(found))(CompactionText.lines(settings, found))
        if (found.wrong == 0) ExitCode.Ok else ExitCode.Findings
      } else {
        val done = compaction.repair()
        context.answer(args.json, CompactionText.json(done))(CompactionText.lines(settings, done))
        ExitCode.Ok
      }
    }
  }
}

object TopicCompactCommand {

  /** @param commandConfig a file of client properties
    * @param strategy `timestamp` or `header`
    * @param header with strategy `header`, the key of the header with the version
    * @param missing what becomes of records without that header: `oldest` or `refuse`
    * @param changeRule whether the topic may have been repaired by another rule until now
    * @param dryRun whether it only says what is wrong
    * @param setLag whether `min.compaction.lag.ms` is raised for the time
    * @param lateness by how much timestamps may be older than the time at which they are written
    * @param scratchDir takes the table of keys
    * @param continuous whether a query repairs the topic until it is stopped
    * @param checkpoint of that query
    * @param trigger of that query
    */
  final case class Arguments(
      topic: String,
      bootstrapServers: String,
      commitTopic: String,
      commandConfig: Option[String],
      strategy: String,
      header: Option[String],
      missing: String,
      changeRule: Boolean,
      dryRun: Boolean,
      setLag: Boolean,
      lateness: Option[String],
      scratchDir: Option[String],
      continuous: Boolean,
      checkpoint: Option[String],
      trigger: String,
      json: Boolean
  )

  private def settings(args: Arguments): CompactionSettings = CompactionSettings(
    args.topic,
    ruleOf(args.strategy, args.header),
    args.lateness.map(durationMs("lateness", _)),
    args.setLag,
    args.scratchDir.map(Path.of(_)),
    args.missing match {
      case "oldest" => MissingVersion.Oldest
      case "refuse" => MissingVersion.Refuse
      case other => throw UserError(
          s"--missing is $other",
          "a record without the header loses against all others, or is refused",
          "use --missing oldest or --missing refuse"
        )
    },
    args.changeRule,
    sys.props("user.name")
  )

  /** The rule that options name. */
  private[commands] def ruleOf(strategy: String, header: Option[String]): VersionRule =
    (strategy, header.filter(_.nonEmpty)) match {
      case ("timestamp", None) => VersionRule.Timestamp
      case ("header", Some(key)) => VersionRule.Header(key)
      case _ => throw UserError(
          s"--strategy $strategy${header.fold("")(h => s" --header $h")} says of no record which version it has",
          "there are 'timestamp', and 'header' with the header's key",
          "add --strategy header --header KEY, or --strategy timestamp. Offsets are what Kafka itself goes by"
        )
    }

  private def durationMs(option: String, text: String): Long =
    try Some(JavaUtils.timeStringAs(text, TimeUnit.MILLISECONDS)).filter(_ >= 0).get
    catch {
      case e @ (_: NumberFormatException | _: NoSuchElementException) => throw UserError(
          s"--$option is $text",
          "it is no duration",
          "write a number with a unit, such as 30s, 10min, 12h or 7d",
          Some(e)
        )
    }
}
