package statemark.kafka.sink.commands

import statemark.kafka.tools.{NextStart, SinkStatus}
import statemark.spark.offline.cli.{CommandContext, ExitCode, Fields, UserError}

/** `topic forget IDENTITY [--all] [--force] [--yes]`: removes what the commit topic knows of a sink. */
final class TopicForgetCommand extends KafkaCommand {
  override type Arguments = TopicForgetCommand.Arguments
  override val name: String = "topic forget"

  override def read(fields: Fields): Arguments = TopicForgetCommand.Arguments(
    fields.text("bootstrapServers"),
    fields.text("commitTopic"),
    fields.optionalText("commandConfig"),
    fields.text("identity"),
    fields.flag("all"),
    fields.flag("force"),
    fields.flag("yes"),
    fields.flag("json")
  )

  override def run(args: Arguments, context: CommandContext): ExitCode = withKafka {
    KafkaCommand.ask(args.bootstrapServers, args.commitTopic, args.commandConfig, context) {
      tools =>
        val (sink, report) = tools.one(args.identity)
        def show(outcome: String, notes: Seq[String])(lines: Seq[String]): Unit =
          context.answer(args.json, TopicText.json(sink.identity, outcome, notes))(lines)
        if (!args.force) TopicForgetCommand.requireComplete(sink)
        if (!args.yes) {
          show("would-forget", Seq(effect(args, sink)))(
            TopicText.ofSink(sink, report.openOf(sink.identity)) ++ Seq(
              s"would remove ${effect(args, sink)}",
              s"nothing was done: ${TopicFinishCommand.Takeover}. Add --yes to do it"
            )
          )
        } else {
          context.console.progress(
            s"${sink.identity} is taken over: a query that runs for it fails"
          )
          val done = tools.forget(sink, isGivenUp = args.force, isWhole = args.all)
          show("forgotten", effect(args, sink) +: done.notes)(
            done.notes.map(note => s"note: $note") :+ s"removed ${effect(args, sink)}"
          )
        }
        ExitCode.Ok
    }
  }

  private def effect(args: Arguments, sink: SinkStatus): String = {
    val what = if (args.all) "everything that is known of" else "what was decided by"
    val after =
      if (args.all) "a query whose checkpoint knows it does not start any more"
      else "the next batch is written whatever its number, also where its rows are there already"
    val lost = sink.next match {
      case NextStart.Completes(batch, _, unfinished) =>
        s"; ${TopicText.counted(unfinished.map(_.rows).sum, "row")} of batch $batch are given up"
      case _ => ""
    }
    s"$what ${sink.identity}: $after$lost"
  }
}

object TopicForgetCommand {

  /** Refuses to give up rows that somebody has not said are given up.
    * @throws InvalidInputException saying what is left to do
    */
  private[commands] def requireComplete(sink: SinkStatus): Unit = sink.next match {
    case NextStart.Completes(batch, _, _) => throw UserError(
        s"the last decision of ${sink.identity} would be given up",
        sink.next.text,
        s"complete it first: statemark topic finish ${sink.identity}; or add --force, and readers " +
          "never get those rows. Where `finish` says that rows are lost, nothing completes it: with --force " +
          s"readers keep what they have of batch $batch, and a query that writes it again writes all of it, so " +
          "that those rows are there twice"
      )
    case NextStart.RunsAgain(_, Some(_)) => throw UserError(
        s"rows of ${sink.identity} that are with the readers would be written again",
        sink.next.text,
        "let the query run, which writes the others; or add --force"
      )
    case NextStart.Begins | NextStart.GoesOn(_) | NextStart.RunsAgain(
          _,
          None
        ) | NextStart.Fails(_) =>
      ()
  }

  /** @param all whether the sink itself is removed, and not only what it has decided
    * @param force whether a decision that is not complete is given up
    * @param yes whether it is done; false only shows it
    */
  final case class Arguments(
      bootstrapServers: String,
      commitTopic: String,
      commandConfig: Option[String],
      identity: String,
      all: Boolean,
      force: Boolean,
      yes: Boolean,
      json: Boolean
  )
}
