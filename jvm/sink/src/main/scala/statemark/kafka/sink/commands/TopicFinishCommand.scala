package statemark.kafka.sink.commands

import statemark.kafka.decision.Outcome
import statemark.kafka.tools.{NextStart, SinkStatus, StatusReport}
import statemark.spark.offline.cli.{CommandContext, ExitCode, Fields}

/** `topic finish IDENTITY [--yes]`: completes what a sink has decided, where its query does not come back to do it. */
final class TopicFinishCommand extends KafkaCommand {
  override type Arguments = TopicFinishCommand.Arguments
  override val name: String = "topic finish"

  override def read(fields: Fields): Arguments = TopicFinishCommand.Arguments(
    fields.text("bootstrapServers"),
    fields.text("commitTopic"),
    fields.optionalText("commandConfig"),
    fields.text("identity"),
    fields.flag("yes"),
    fields.flag("json")
  )

  override def run(args: Arguments, context: CommandContext): ExitCode = withKafka {
    KafkaCommand.ask(args.bootstrapServers, args.commitTopic, args.commandConfig, context) {
      tools =>
        val (sink, report) = tools.one(args.identity)
        def show(outcome: String, notes: Seq[String])(lines: Seq[String]): Unit =
          context.answer(args.json, TopicText.json(sink.identity, outcome, notes))(lines)
        if (!isUnfinished(sink, report)) {
          show("nothing-to-finish", Seq(sink.next.text))(
            Seq(s"${sink.identity}: ${sink.next.text}. There is nothing to finish")
          )
          ExitCode.Ok
        } else if (!args.yes) {
          show("would-finish", Seq(sink.next.text))(
            TopicText.ofSink(sink, report.openOf(sink.identity)) :+
              s"nothing was done: ${TopicFinishCommand.Takeover}. Add --yes to do it"
          )
          ExitCode.Findings
        } else {
          context.console.progress(
            s"${sink.identity} is taken over: a query that runs for it fails"
          )
          val done = tools.finish(sink)
          val isLost = done.outcome == Outcome.Lost
          show(if (isLost) "lost" else "finished", done.line +: done.notes)(
            (done.line +: done.notes.map(note => s"note: $note")) ++ Option.when(isLost)(
              "not finished: rows of the decision are not in the log any more. A query writes them again when it runs; " +
                "a job with txnVersion when it writes that version again; a write without one has to be repeated"
            )
          )
          if (isLost) ExitCode.Findings else ExitCode.Ok
        }
    }
  }

  /** Whether there is something to do, or to find behind a transaction that hides it. */
  private def isUnfinished(sink: SinkStatus, report: StatusReport): Boolean = {
    val isDone = sink.next match {
      case NextStart.Completes(_, _, _) | NextStart.Fails(_) => false
      case NextStart.Begins | NextStart.GoesOn(_) | NextStart.RunsAgain(_, _) => true
    }
    val isHidden = report.open.exists(_.held.exists(h =>
      h.topicPartition.topic == report.commitTopic &&
        h.topicPartition.partition == sink.identity.commitPartition
    ))
    !isDone || isHidden || report.openOf(sink.identity).nonEmpty
  }
}

object TopicFinishCommand {

  /** What it means to a query. */
  private[commands] val Takeover: String =
    "this takes the sink from a query that runs for it, which fails with 'Another run writes for the " +
      "same sink'"

  /** @param yes whether it is done; false only shows it */
  final case class Arguments(
      bootstrapServers: String,
      commitTopic: String,
      commandConfig: Option[String],
      identity: String,
      yes: Boolean,
      json: Boolean
  )
}
