package statemark.spark.offline.local

import java.io.File
import java.time.Instant
import java.time.temporal.ChronoUnit
import org.json4s.{JObject, JValue}
import org.json4s.JsonDSL._
import statemark.common.Position
import statemark.spark.conf.{LocalRoot, StoreSettings}
import statemark.spark.local.{DiskUse, LocalCollector}
import statemark.spark.offline.cli.{Command, CommandContext, ExitCode, Fields, UserError}
import statemark.spark.offline.verify.Sizes

/** `local [--local-dir D] [--stores] [--json] [--prune [--dry-run] [--max-age A] [--max-bytes B]]`: what lies in the
  * local directory of this machine, and the deletion of what no process uses.
  */
object LocalCommand extends Command {
  override val name: String = "local"

  /** @param maxAge in place of the setting localDirMaxAge
    * @param maxBytes in place of the setting localDirMaxBytes
    * @param stores whether each store has a line, and not each query
    * @param dryRun whether it is only shown what `prune` would delete
    */
  final case class Arguments(
      localDir: Option[String],
      maxAge: Option[String],
      maxBytes: Option[String],
      stores: Boolean,
      prune: Boolean,
      dryRun: Boolean,
      json: Boolean
  )

  override def read(fields: Fields): Arguments = Arguments(
    fields.optionalText("localDir"),
    fields.optionalText("maxAge"),
    fields.optionalText("maxBytes"),
    fields.flag("stores"),
    fields.flag("prune"),
    fields.flag("dryRun"),
    fields.flag("json")
  )

  override def run(args: Arguments, context: CommandContext): ExitCode = {
    val limits = Seq(
      "--max-age" -> args.maxAge,
      "--max-bytes" -> args.maxBytes,
      "--dry-run" -> Option.when(args.dryRun)("")
    )
    if (!args.prune) limits.collectFirst { case (option, Some(_)) => option }.foreach { option =>
      throw UserError(
        s"$option is given without --prune",
        "it says what is deleted, and nothing is",
        s"add --prune, or leave $option away"
      )
    }
    val settings = settingsOf(args, context)
    val root = checked(rootOf(settings))
    hidden(root).foreach(d => context.console.progress(s"$d cannot be read and is not shown"))
    val homes = new LocalStores(root).all
    val deleted = Option.when(args.prune) {
      val now = context.clock.epochMs()
      val paths =
        if (args.dryRun) LocalCollector.due(root, settings, now)
        else LocalCollector.collect(root, settings, now)
      homes.filter(h => paths.contains(h.path))
    }
    val listing =
      LocalListing(root, homes.filterNot(deleted.toSeq.flatten.contains), deleted, args.dryRun)
    context.answer(args.json, listing.json)(listing.lines(args.stores))
    ExitCode.Ok
  }

  /** Options of the command before the settings of the session. */
  private def settingsOf(args: Arguments, context: CommandContext): StoreSettings = {
    val localDir = args.localDir.map { place =>
      if (place.startsWith("file:")) place else new File(place).getAbsolutePath
    }
    val own = Map(
      StoreSettings.LocalDir -> localDir,
      StoreSettings.LocalDirMaxAge -> args.maxAge,
      StoreSettings.LocalDirMaxBytes -> args.maxBytes
    ).collect { case (setting, Some(value)) => setting.key -> value }
    val ownKeys = own.keySet.map(_.toLowerCase(java.util.Locale.ROOT))
    val session = context.spark.conf.getAll
      .filterNot(c => ownKeys(c._1.toLowerCase(java.util.Locale.ROOT)))
    StoreSettings.from(session ++ own, Runtime.getRuntime.maxMemory)
  }

  private def rootOf(settings: StoreSettings): File =
    settings.localDir.map(new File(_)).orElse(LocalRoot.place(settings).map(_.directory)).getOrElse(
      throw UserError(
        "no local directory is known",
        s"${StoreSettings.Prefix}localDir is not set, and only on a local master one stays without it",
        "name it with --local-dir"
      )
    )

  private def checked(root: File): File = {
    def refused(reason: String): Nothing = throw UserError(
      s"$root cannot be listed",
      reason,
      "name the local directory of a query with --local-dir; on a cluster run this on the machine of an " +
        "executor, as its user"
    )
    if (!root.exists) refused("it does not exist: no store was kept there on this machine")
    if (!root.isDirectory) refused("it is not a directory")
    if (root.listFiles == null)
      refused(s"it may not be read by ${System.getProperty("user.name")}")
    root
  }

  /** Directories of queries that this user may not look into. */
  private def hidden(root: File): Seq[File] =
    root.listFiles.toSeq.filter(d => d.isDirectory && d.listFiles == null).sorted
}

/** Homes as `local` shows them.
  *
  * @param homes that are there, without `deleted`
  * @param deleted those that were deleted, where that was asked for
  * @param isDry whether `deleted` are there too, and were only to be shown
  */
final case class LocalListing(
    root: File,
    homes: Seq[DirectoryFacts],
    deleted: Option[Seq[DirectoryFacts]],
    isDry: Boolean
) {

  /** Returns a line for each query, or for each home, and one for all.
    *
    * @param ofHomes whether each home has a line
    */
  def lines(ofHomes: Boolean): Seq[String] = {
    val all = deleted.toSeq.flatten.map(verb -> _) ++ homes.map("" -> _)
    val removal = deleted.map { d =>
      s"$verb ${count(d)}${if (d.isEmpty) "" else s", ${Sizes.text(freedBy(d))}"}"
    }
    table(if (ofHomes) homeRows(all) else queryRows(all)) :+
      (Seq(s"$root: ${count(homes)}, ${Sizes.text(bytesOf(homes))}") ++
        inUse.map(n => s"$n in use") ++ removal).mkString(", ")
  }

  def json: JObject =
    ("localDir" -> root.getPath) ~
      ("homes" -> homes.map(homeJson)) ~
      ("totals" -> (("homes" -> homes.length) ~ ("bytes" -> bytesOf(homes)) ~
        ("inUse" -> inUse.getOrElse(0)))) ~
      ("dryRun" -> deleted.map(_ => isDry)) ~
      ("deleted" -> deleted.map(_.map(homeJson))) ~
      ("deletedBytes" -> deleted.map(freedBy))

  private def homeJson(h: DirectoryFacts): JObject =
    ("path" -> h.path.getPath) ~ ("queryId" -> h.queryId) ~ ("store" -> h.store) ~
      ("version" -> h.version) ~ ("checkpointId" -> h.checkpointId) ~
      ("partitions" -> h.partitions) ~ ("offsets" -> h.position.map(LocalListing.offsets)) ~
      ("bytes" -> h.bytes) ~ ("usedAt" -> h.usedAt.toString) ~
      ("state" -> h.state.name) ~ ("problem" -> h.problem) ~ ("owner" -> h.otherOwner)

  private def verb = if (isDry) "would delete" else "deleted"

  private def inUse: Option[Int] =
    Some(homes.count(_.state == DirectoryState.InUse)).filter(_ > 0)

  private def count(of: Seq[DirectoryFacts]) =
    if (of.length == 1) "1 store" else s"${of.length} stores"

  private def useOf(of: Seq[DirectoryFacts]): DiskUse = of.map(_.use).foldLeft(DiskUse.none)(_ ++ _)

  private def bytesOf(of: Seq[DirectoryFacts]): Long = useOf(of).bytes

  /** A file to which a home that stays has a link is not gone. */
  private def freedBy(gone: Seq[DirectoryFacts]): Long = (useOf(gone) -- useOf(homes)).bytes

  private def homeRows(of: Seq[(String, DirectoryFacts)]): Seq[Seq[String]] =
    Seq("", "query", "store", "version", "checkpoint id", "offsets", "size", "last use", "state") +:
      of.map { case (done, h) =>
        Seq(
          done,
          h.queryId,
          h.store,
          h.version.fold("not known")(_.toString),
          h.checkpointId.getOrElse("-"),
          h.position.fold("not known")(LocalListing.shown),
          Sizes.text(h.bytes),
          timeOf(h.usedAt),
          stateOf(h)
        )
      }

  /** Returns a row for each query, and another for what was deleted of a query of which homes stay. */
  private def queryRows(of: Seq[(String, DirectoryFacts)]): Seq[Seq[String]] = {
    val found = of.groupMap { case (done, h) => done -> h.queryId }(_._2)
    val rows = of.map { case (done, h) => done -> h.queryId }.distinct.map { key =>
      val own = found(key)
      Seq(
        key._1,
        key._2,
        own.length.toString,
        Sizes.text(bytesOf(own)),
        timeOf(own.maxBy(_.usedAtMs).usedAt),
        statesOf(own)
      )
    }
    Seq("", "query", "stores", "size", "last use", "state") +: rows
  }

  private def timeOf(at: Instant): String = at.truncatedTo(ChronoUnit.SECONDS).toString

  private def stateOf(h: DirectoryFacts): String =
    h.state.name + h.problem.fold("")(p => s" (${p.takeWhile(_ != ':')})") +
      h.otherOwner.fold("")(user => s", of $user")

  /** Returns the one state of all homes, or how many are in each. */
  private def statesOf(of: Seq[DirectoryFacts]): String = {
    val found = of.map(stateOf)
    val states = found.distinct
    if (states.length == 1) states.head
    else states.map(state => s"${found.count(_ == state)} $state").mkString("; ")
  }

  /** Returns a line for each row, in columns; none for headers alone. The first column is there where something is in
    * it.
    */
  private def table(rows: Seq[Seq[String]]): Seq[String] = if (rows.length == 1) Nil
  else {
    val shown = if (rows.forall(_.head.isEmpty)) rows.map(_.tail) else rows
    val widths = shown.transpose.map(_.map(_.length).max)
    shown.map(_.zip(widths).map { case (text, width) => text.padTo(width, ' ') }.mkString("  ")
      .stripTrailing)
  }
}

object LocalListing {
  private val MaxChars = 80

  /** Returns the source offsets that a store holds, by what the offset log calls the source. */
  def offsets(position: Position): JObject =
    JObject(position.sources.map(of => of.source -> (of.end.text: JValue)).toList)

  /** Returns the same as a line shows them. */
  def shown(position: Position): String =
    position.sources.map(of => s"${of.source}: ${of.end.shown(MaxChars)}").mkString(", ")
}
