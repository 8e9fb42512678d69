package statemark.spark.offline.repartition

import org.json4s.JObject
import org.json4s.JsonDSL._
import statemark.spark.offline.checkpoint.{Activity, QueryCheckpoint}
import statemark.spark.offline.cli.{
  Command,
  CommandContext,
  ExitCode,
  Fields,
  ProgressLines,
  UserError
}

/** `repartition CHECKPOINT --partitions N [--dry-run]`, or `--rollback` of one that did not finish. */
object RepartitionCommand extends Command {
  override val name: String = "repartition"

  /** @param observe how many seconds the checkpoint is watched for signs of a running query
    * @param fileSink directory of Spark's file sink, whose log gets an entry of the repartition's batch
    * @param dryRun whether it is only shown what would be done
    */
  final case class Arguments(
      checkpoint: String,
      partitions: Option[BigInt],
      rollback: Boolean,
      skipUncommitted: Boolean,
      fileSink: Option[String],
      observe: Double,
      dryRun: Boolean,
      json: Boolean
  )

  override def read(fields: Fields): Arguments = Arguments(
    fields.checkpoint,
    fields.optionalWhole("partitions"),
    fields.flag("rollback"),
    fields.flag("skipUncommitted"),
    fields.optionalText("fileSink"),
    fields.number("observe"),
    fields.flag("dryRun"),
    fields.flag("json")
  )

  override def run(args: Arguments, context: CommandContext): ExitCode = {
    val change = asked(args)
    val checkpoint = QueryCheckpoint.open(args.checkpoint, context)
    requireStopped(checkpoint, (args.observe * 1000).toLong, context)
    val lines = new ProgressLines(context.console, context.clock)
    val repartition = new Repartition(context.spark, checkpoint, show(lines))
    // A directory that is wrong is refused before the state is moved.
    args.fileSink.foreach(repartition.sinkLacks(_): Unit)
    val result = change(repartition)
    val completed = args.fileSink.filterNot(_ => args.dryRun).map(repartition.completeSink)
    context.answer(args.json, json(checkpoint, result) ~ ("fileSinkBatches" -> completed))(
      s"${checkpoint.root}: ${describe(result)}" +: sinkLines(result, completed)
    )
    ExitCode.Ok
  }

  private def asked(args: Arguments): Repartition => RepartitionResult =
    (args.partitions, args.rollback) match {
      case (Some(number), false) =>
        val partitions = Option.when(number.isValidInt && number > 0)(number.toInt).getOrElse(
          throw UserError(s"--partitions is $number", "it is no number from 1 up", "correct it")
        )
        if (args.dryRun) _.dryRun(partitions, args.skipUncommitted)
        else _.run(partitions, args.skipUncommitted)
      case (None, true) => if (args.dryRun) _.dryRollback() else _.rollback()
      case _ =>
        throw UserError(
          "not clear what to do",
          "one of --partitions N and --rollback is needed, and not both",
          "give one of them"
        )
    }

  /** Whether a batch that is not committed may be passed over is for the repartition to judge. */
  private def requireStopped(
      checkpoint: QueryCheckpoint,
      observeMs: Long,
      context: CommandContext
  ): Unit = {
    checkpoint.requireState()
    checkpoint.latestOffset: Unit
    Activity.observe(checkpoint, observeMs, context) match {
      case activity: Activity.Running =>
        throw UserError(
          s"the query of ${checkpoint.root} runs",
          activity.seen,
          "stop it, then run the command again"
        )
      case _ => ()
    }
  }

  /** The end of each store is always shown. */
  private def show(lines: ProgressLines)(at: RepartitionProgress): Unit =
    lines.show(always = at.partitionsDone == at.partitions) {
      s"${at.storesDone} of ${at.stores} stores moved; ${at.store}: ${at.partitionsDone} of " +
        s"${at.partitions} partitions; ${at.rows} rows"
    }

  private def json(checkpoint: QueryCheckpoint, result: RepartitionResult): JObject = {
    val of: JObject = result match {
      case RepartitionResult.Moved(batch, from, to, stores, rows) =>
        ("outcome" -> "moved") ~ ("batch" -> batch) ~ ("from" -> from) ~ ("to" -> to) ~
          ("stores" -> stores) ~ ("rows" -> rows)
      case RepartitionResult.WouldMove(batch, from, to, stores, isBegun, givenUp) =>
        ("outcome" -> "would-move") ~ ("batch" -> batch) ~ ("from" -> from) ~ ("to" -> to) ~
          ("stores" -> stores) ~ ("begun" -> isBegun) ~ ("givenUpBatch" -> givenUp)
      case RepartitionResult.Unchanged(partitions) =>
        ("outcome" -> "unchanged") ~ ("to" -> partitions)
      case RepartitionResult.RolledBack(batch, partitions) =>
        ("outcome" -> "rolled-back") ~ ("batch" -> batch) ~ ("to" -> partitions)
      case RepartitionResult.WouldRollBack(batch, partitions) =>
        ("outcome" -> "would-roll-back") ~ ("batch" -> batch) ~ ("to" -> partitions)
      case RepartitionResult.NothingToRollBack => "outcome" -> "nothing-to-roll-back"
    }
    ("checkpoint" -> checkpoint.root.toString) ~ of
  }

  private def sinkLines(result: RepartitionResult, completed: Option[Seq[Long]]): Seq[String] =
    (result, completed) match {
      case (_, Some(Seq())) => Seq("the log of the file sink lacks nothing")
      case (_, Some(batches)) =>
        Seq(s"the log of the file sink has entries of batches ${batches.mkString(", ")} now")
      case (_: RepartitionResult.Moved, None) =>
        Seq(
          "a query that writes files with Spark's own sink fails after it within ten batches: run this once " +
            "more with --file-sink DIRECTORY before it is started"
        )
      case _ => Nil
    }

  private def describe(result: RepartitionResult): String = result match {
    case RepartitionResult.Moved(batch, from, to, stores, rows) =>
      s"$from to $to partitions in batch $batch, $rows rows in $stores stores; start the query"
    case RepartitionResult.WouldMove(batch, from, to, stores, isBegun, givenUp) =>
      s"would go from $from to $to partitions in batch $batch, $stores stores" +
        (if (isBegun) "; a repartition that was begun would go on" else "") +
        givenUp.fold("")(b => s"; batch $b would be given up, and its input be read again")
    case RepartitionResult.WouldRollBack(batch, partitions) =>
      s"batch $batch would be taken back; the query would have $partitions partitions as before"
    case RepartitionResult.Unchanged(partitions) =>
      s"has $partitions partitions already; nothing was changed"
    case RepartitionResult.RolledBack(batch, partitions) =>
      s"batch $batch is taken back; the query has $partitions partitions as before"
    case RepartitionResult.NothingToRollBack =>
      "no repartition is under way; nothing was changed"
  }
}
