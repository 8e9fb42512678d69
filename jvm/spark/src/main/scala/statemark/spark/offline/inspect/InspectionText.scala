package statemark.spark.offline.inspect

import statemark.spark.offline.local.LocalListing
import statemark.spark.offline.verify.Sizes

/** What `inspect` tells, for people. */
final class InspectionText(facts: CheckpointFacts) {
  private val Unknown = "not known"
  private val BarWidth = 40
  private val MostBars = 64

  def lines: Seq[String] = head ++ strayed ++ facts.operators.flatMap(operator) ++ skew ++ totals

  private def head: Seq[String] = {
    val changes = facts.providers.drop(1).map { case (b, p) =>
      s"; from batch $b: ${p.getOrElse(Unknown)}"
    }
    val provider = facts.providers.head._2.getOrElse("not pinned") + changes.mkString
    val settings = facts.settings.map { case (k, v) => s"$k ${v.getOrElse("not pinned")}" }
    Seq(
      "checkpoint" -> facts.checkpoint.root.toString,
      "query" -> facts.checkpoint.queryId,
      "provider" -> provider,
      "format" -> facts.formatVersion.fold(s"$Unknown before the first commit")(v =>
        s"checkpoint format v$v"
      ),
      "settings" -> settings.mkString(", "),
      "partitions" -> facts.partitions.fold(Unknown)(_.toString),
      "batches" -> (s"last planned ${facts.lastPlanned}, last committed " +
        facts.lastCommitted.fold("none")(_.toString)),
      "offsets" -> facts.end.fold(Unknown)(LocalListing.shown)
    ).map { case (label, value) => f"$label%-11s $value" }
  }

  /** Stores of this machine that a restart would refuse. */
  private def strayed: Seq[String] = facts.held.filter(_.differs).map { of =>
    s"local store ${of.store}: version ${of.version} holds other offsets: ${LocalListing.shown(of.position)}"
  }

  private def operator(o: OperatorView): Seq[String] = {
    val format = o.stateFormat.fold("")(v => s", state format $v")
    val variables =
      if (o.variables.isEmpty) "" else s", state variables ${o.variables.mkString(", ")}"
    val name = o.name.getOrElse("no metadata names it")
    s"operator ${o.id}: $name$format$variables" +: o.stores.flatMap(store)
  }

  private def store(s: StoreFacts): Seq[String] = {
    val ps = s.partitions
    val families =
      if (s.families.isEmpty) Nil
      else {
        val named = s.families.map(f => f.name + (if (f.isInternal) " (internal)" else ""))
        Seq(s"    column families ${named.mkString(", ")}")
      }
    val newest = ps.flatMap(_.newestSnapshot.toOption.map(_.version))
    val untold = ps.filter(_.newestSnapshot.isLeft)
    val rows = s.rows.map(n => s"$n rows in the newest snapshots").getOrElse {
      val known = ps.flatMap(_.newestSnapshot.toOption.flatMap(_.rows)).sum
      val why = untold.flatMap(_.newestSnapshot.left.toOption).distinct
      val reason = if (why.isEmpty) "rows are not tracked" else why.take(2).mkString("; ")
      s"rows $Unknown ($reason)" + (if (known > 0) s", $known in the other partitions" else "")
    }
    Seq(
      s"  store ${s.name}: ${ps.length} partitions, versions " +
        s"${span(ps.flatMap(_.oldest), ps.length)} .. ${span(ps.flatMap(_.newest), ps.length)}, " +
        s"${ps.map(_.snapshots).sum} snapshots" +
        (if (newest.isEmpty) "" else s", newest of version ${span(newest, newest.length)}"),
      s"    $rows",
      s"    ${Sizes.text(ps.map(_.changelogBytes).sum)} changelogs, " +
        s"${Sizes.text(ps.map(_.snapshotBytes).sum)} snapshots, ${Sizes.text(ps.map(_.sharedBytes).sum)} SST files"
    ) ++ families
  }

  /** One number where all partitions agree. */
  private def span(values: Seq[Long], expected: Int): String = {
    val text =
      if (values.isEmpty) "none"
      else if (values.min == values.max) values.min.toString
      else s"${values.min}-${values.max}"
    if (values.isEmpty || values.length == expected) text
    else s"$text (${expected - values.length} partitions have none)"
  }

  private def skew: Seq[String] = facts.stores.maxByOption(_.bytes).toSeq.flatMap { largest =>
    largest.skew.toSeq.flatMap { skew =>
      val most = largest.partitions.map(_.bytes).max
      val shown = largest.partitions.sortBy(-_.bytes).take(MostBars).sortBy(_.partition)
      val title =
        f"largest store: operator ${largest.operator}, ${largest.name}; its largest partition " +
          "is %.2f times the mean".formatLocal(java.util.Locale.ROOT, skew)
      val rest = largest.partitions.length - shown.length
      (title +: shown.map { p =>
        val bar = "#" * math.max(if (p.bytes > 0) 1 else 0, (p.bytes * BarWidth / most).toInt)
        s"  %5d %-${BarWidth}s %s".formatLocal(
          java.util.Locale.ROOT,
          p.partition,
          bar,
          Sizes.text(p.bytes)
        )
      }) ++ Option.when(rest > 0)(s"  and $rest smaller ones")
    }
  }

  private def totals: Seq[String] = {
    val all = facts.stores
    Seq(s"total: ${all.map(_.partitions.length).sum} stores, ${Sizes.text(all.map(_.bytes).sum)}")
  }
}
