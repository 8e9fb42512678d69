package statemark.spark.offline.switching

import statemark.spark.checkpoint.StoreFile
import statemark.spark.conf.ProviderClass
import statemark.spark.offline.checkpoint.{Activity, OffsetEntry, QueryCheckpoint, StoreListing}
import statemark.spark.offline.cli.{
  Command,
  CommandContext,
  ExitCode,
  Fields,
  ProgressLines,
  UserError
}
import statemark.spark.offline.ownership.{Ownership, SetAside}
import statemark.spark.offline.verify.ColumnFamilyCheck

/** `switch CHECKPOINT --to statemark|rocksdb [--dry-run]`: pins another provider in the offset log of a stopped
  * query. Statemark and Spark's RocksDB provider read the same state files; from Spark's HDFS-backed
  * provider the state is written anew.
  */
object SwitchCommand extends Command {
  override val name: String = "switch"

  private val Targets = Seq(ProviderClass.Statemark, ProviderClass.RocksDb)

  /** What a switch does.
    *
    * @param entries to change, oldest first
    * @param left entries that keep another provider than the target
    * @param imported the version of the state to write anew
    * @param aside files above the committed version, to be taken out of the checkpoint
    */
  private final case class Plan(
      entries: Seq[OffsetEntry],
      left: Seq[OffsetEntry],
      imported: Option[Long],
      aside: Seq[String]
  )

  /** @param observe how many seconds the checkpoint is watched for signs of a running query
    * @param dryRun whether it is only shown what would be done
    */
  final case class Arguments(
      checkpoint: String,
      to: String,
      observe: Double,
      force: Boolean,
      dryRun: Boolean,
      json: Boolean
  )

  override def read(fields: Fields): Arguments = Arguments(
    fields.checkpoint,
    fields.text("to"),
    fields.number("observe"),
    fields.flag("force"),
    fields.flag("dryRun"),
    fields.flag("json")
  )

  override def run(args: Arguments, context: CommandContext): ExitCode = {
    val report = switched(args, context)
    context.answer(args.json, report.json)(report.lines)
    ExitCode.Ok
  }

  private def switched(args: Arguments, context: CommandContext): SwitchReport = {
    val to = target(args.to)
    val opened = QueryCheckpoint.open(args.checkpoint, context)
    check(opened)
    val isThere = Journal.unfinished(opened).isEmpty && plan(opened, to).entries.isEmpty
    if (isThere && !Ownership.isTaken(opened))
      SwitchReport(opened.root.toString, to, isDry = args.dryRun)
    else {
      val basis = stopped(opened, (args.observe * 1000).toLong, args.force, context)
      if (args.dryRun) dryRun(opened, to, basis, context)
      else Ownership.during(opened) { owner =>
        requireUnchanged(opened, QueryCheckpoint.open(args.checkpoint, context))
        val settled = settleInterrupted(opened, owner)
        // Entries may have been restored.
        val checkpoint = QueryCheckpoint.open(args.checkpoint, context)
        check(checkpoint)
        carryOut(checkpoint, to, basis, settled, owner, context)
      }
    }
  }

  private def target(name: String): ProviderClass =
    Targets.find(_.shortName == name).getOrElse {
      throw UserError(
        s"--to $name",
        "it is no provider that a checkpoint can be switched to",
        s"use ${Targets.mkString(" or ")}"
      )
    }

  /** Refuses what this command does not know; nothing was changed yet. */
  private def check(checkpoint: QueryCheckpoint): Unit = {
    checkpoint.requireState()
    checkpoint.offsets.foreach { entry =>
      entry.provider match {
        case Some(ProviderClass.Unknown(className)) =>
          throw UserError(
            s"the offset entry of batch ${entry.batch} pins the state store provider $className",
            s"only ${ProviderClass.known.map(_.className).mkString(", ")} are known",
            "continue the query with the provider that it has"
          )
        case None =>
          throw UserError(
            s"the offset entry of batch ${entry.batch} pins no state store provider",
            "a Spark older than 2.4 wrote it",
            "run one batch of the query with this Spark, until older entries are purged"
          )
        case _ => ()
      }
    }
    if (checkpoint.lastCommit.exists(_ > checkpoint.latestOffset.batch)) {
      throw UserError(
        s"the logs of ${checkpoint.root} disagree",
        s"batch ${checkpoint.lastCommit.mkString} is committed, and the offset log ends with " +
          s"${checkpoint.latestOffset.batch}",
        "bring the missing offset entries back, or delete the commit entries after them"
      )
    }
    val unknown = checkpoint.unknownLogFiles ++
      checkpoint.listedStores.flatMap(s => s.unknownFiles.map(f => s"${s.directory}/${f.name}"))
    if (unknown.nonEmpty) {
      throw UserError(
        s"${checkpoint.root} holds ${unknown.length} files that this command does not know",
        s"they are ${unknown.take(5).mkString(", ")}${if (unknown.length > 5) ", …" else ""}",
        "move them out of the checkpoint if they are not Spark's, else use the Statemark of that Spark"
      )
    }
  }

  private def checkFamilies(checkpoint: QueryCheckpoint, context: CommandContext): Unit =
    ColumnFamilyCheck.foreign(
      committedFiles(checkpoint),
      context.spark,
      context.hadoopConf
    ).headOption
      .foreach { case (snapshot, families) =>
        throw UserError(
          s"Spark's provider could not open the snapshot $snapshot",
          s"it has the column families ${families.mkString(", ")}",
          "run the query on Statemark until there is a newer snapshot, and report this"
        )
      }

  /** The stores as they are without what is set aside. */
  private def committedFiles(checkpoint: QueryCheckpoint): Seq[StoreListing] =
    checkpoint.listedStores.map { store =>
      store.copy(files =
        store.files.filterNot(f =>
          StoreFile.version(f.name).exists(_ > checkpoint.committedVersion)
        )
      )
    }

  private def plan(checkpoint: QueryCheckpoint, to: ProviderClass): Plan = {
    val others = checkpoint.offsets.filterNot(_.provider.contains(to))
    val latest = checkpoint.latestOffset
    val version = checkpoint.committedVersion
    def aside = if (others.isEmpty) Nil else SetAside.above(checkpoint, version)
    if (latest.provider.contains(ProviderClass.Hdfs)) {
      val (from, before) = others.partition(_.batch >= version - 1)
      Plan(from, before, Some(version), aside)
    } else {
      // Entries from before an import read the files of the HDFS-backed provider.
      val (same, hdfs) = others.partition(_.provider.exists(_.usesRocksDbFiles))
      Plan(same, hdfs, None, if (same.isEmpty) Nil else aside)
    }
  }

  /** Why the query is taken for stopped.
    *
    * @throws statemark.common.InvalidInputException where it is not, and the caller does not insist
    */
  private def stopped(
      checkpoint: QueryCheckpoint,
      observeMs: Long,
      isForced: Boolean,
      context: CommandContext
  ): String = Activity.observe(checkpoint, observeMs, context) match {
    case activity: Activity.Stopped => s"the query is taken for stopped: ${activity.seen}"
    case activity if isForced => s"--force was given although ${activity.seen}"
    case activity: Activity.Running =>
      throw UserError(
        s"the query of ${checkpoint.root} runs",
        activity.seen,
        "stop it and run the command again; --force goes on all the same"
      )
    case activity: Activity.OpenBatch =>
      throw UserError(
        s"whether the query of ${checkpoint.root} runs cannot be known",
        activity.seen,
        "start the query and stop it after a batch, or, if you know that it does not run, add " +
          "--force: the batch is then run again by the new provider, from the state before it"
      )
  }

  /** Whether the query runs was judged by the last entries of the logs. */
  private def requireUnchanged(before: QueryCheckpoint, now: QueryCheckpoint): Unit = {
    def last(of: QueryCheckpoint) = (of.latestOffset.batch, of.lastCommit)
    if (last(before) != last(now)) {
      throw UserError(
        s"the logs of ${now.root} went on while this command began",
        s"batch ${now.latestOffset.batch} is the last now, and ${before.latestOffset.batch} was: the query runs, " +
          "or another command does",
        "wait until it has ended, then run the command again"
      )
    }
  }

  /** What became of switches that were interrupted. */
  private def settleInterrupted(checkpoint: QueryCheckpoint, owner: Ownership): Seq[String] =
    Journal.unfinished(checkpoint).map { journal =>
      val how = journal.settle(owner) match {
        case Journal.Finished => "had changed every entry"
        case Journal.Undone => "was undone: its entries are as they were before it"
      }
      s"an interrupted switch to ${journal.to}, ${journal.directory}, $how"
    }

  /** The report of a plan, before anything is done. */
  private def reportOf(checkpoint: QueryCheckpoint, to: ProviderClass, todo: Plan): SwitchReport =
    SwitchReport(
      checkpoint.root.toString,
      to,
      todo.entries,
      todo.left,
      checkpoint.offsets.length,
      todo.imported,
      committed = checkpoint.committedVersion,
      aside = todo.aside.length,
      asideFolder =
        Option.when(todo.aside.nonEmpty)(Journal.nextAside(checkpoint).toString)
    )

  /** What stands in the way of a plan; nothing was changed yet. */
  private def checked(
      checkpoint: QueryCheckpoint,
      to: ProviderClass,
      todo: Plan,
      context: CommandContext
  ): Option[StateImport] = {
    if (to == ProviderClass.RocksDb && todo.imported.isEmpty) checkFamilies(checkpoint, context)
    val stateImport = todo.imported.map(new StateImport(checkpoint, _, context))
    stateImport.foreach(_.check())
    stateImport
  }

  /** What a switch would do. An interrupted one would be settled first, and what it has to do is known then. */
  private def dryRun(
      checkpoint: QueryCheckpoint,
      to: ProviderClass,
      basis: String,
      context: CommandContext
  ): SwitchReport = {
    val todo = plan(checkpoint, to)
    if (todo.entries.nonEmpty) checked(checkpoint, to, todo, context): Unit
    val before = Journal.unfinished(checkpoint).map(journal =>
      s"an interrupted switch to ${journal.to}, ${journal.directory}, would be ended first; entries are shown as " +
        "they are before that"
    )
    reportOf(checkpoint, to, todo).copy(basis = Some(basis), settled = before, isDry = true)
  }

  private def carryOut(
      checkpoint: QueryCheckpoint,
      to: ProviderClass,
      basis: String,
      settled: Seq[String],
      owner: Ownership,
      context: CommandContext
  ): SwitchReport = {
    val todo = plan(checkpoint, to)
    val report = reportOf(checkpoint, to, todo).copy(basis = Some(basis), settled = settled)
    if (todo.entries.isEmpty) report
    else {
      val stateImport = checked(checkpoint, to, todo, context)
      // The stores were listed meanwhile: of a query that goes on, a file of its last batch may be among those above.
      if (todo.aside.nonEmpty)
        requireUnchanged(checkpoint, QueryCheckpoint.open(checkpoint.root.toString, context))
      val journal = Journal.begin(
        checkpoint,
        todo.entries.flatMap(_.provider).distinct,
        to,
        todo.entries,
        todo.aside,
        todo.imported,
        context.clock.epochMs(),
        owner
      )
      val lines = new ProgressLines(context.console, context.clock)
      journal.prepare(owner) { done =>
        lines.show(always = done == todo.aside.length) {
          s"set aside $done of ${todo.aside.length} files"
        }
      }
      val imported = stateImport.map(_.run(owner))
      journal.carryOut(owner)
      report.copy(imported = imported, journal = Some(journal.directory.toString))
    }
  }
}
