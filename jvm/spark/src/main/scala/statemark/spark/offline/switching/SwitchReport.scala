package statemark.spark.offline.switching

import org.json4s.JObject
import org.json4s.JsonDSL._
import statemark.spark.conf.ProviderClass
import statemark.spark.offline.checkpoint.OffsetEntry

/** What a switch has come to, or would.
  *
  * @param checkpoint its location
  * @param entries that were changed, as they were before, or would be
  * @param left entries that keep another provider than `to`
  * @param offsets how many entries the log has
  * @param imports the version of the state that is written anew, where it is
  * @param imported what that came to
  * @param committed the version of the state after the last committed batch
  * @param aside how many files of later versions were taken out of the checkpoint, or would be
  * @param asideFolder where they lie then
  * @param journal where the entries are kept as they were
  * @param basis why the query is taken for stopped, where that was looked at
  * @param settled what became of switches that were interrupted before
  * @param isDry whether nothing was done
  */
final case class SwitchReport(
    checkpoint: String,
    to: ProviderClass,
    entries: Seq[OffsetEntry] = Nil,
    left: Seq[OffsetEntry] = Nil,
    offsets: Int = 0,
    imports: Option[Long] = None,
    imported: Option[Imported] = None,
    committed: Long = 0,
    aside: Int = 0,
    asideFolder: Option[String] = None,
    journal: Option[String] = None,
    basis: Option[String] = None,
    settled: Seq[String] = Nil,
    isDry: Boolean = false
) {
  private val from = entries.flatMap(_.provider).distinct

  def lines: Seq[String] = settled ++ (
    if (entries.nonEmpty) changes
    else if (settled.isEmpty) Seq(s"$checkpoint is on $to already; nothing was changed")
    else Seq(s"$checkpoint is on $to now")
  )

  private def changes: Seq[String] = {
    val names = from.mkString(" and ")
    val (did, changed, kept, moved) =
      if (isDry) ("would be switched", "to be changed", "to be left", "would be set aside")
      else ("was switched", "changed", "left", "were set aside")
    Seq(s"$checkpoint $did from $names to $to") ++
      imported.map(i => s"  ${i.summary}") ++
      Option.when(isDry)(imports).flatten.map(v =>
        s"  version $v of the state would be written anew"
      ) ++
      Seq(s"  offset entries $changed: ${ranges(entries)}, of $offsets") ++
      (if (from.length > 1) entries.groupBy(_.provider).map { case (provider, of) =>
         s"  ${ranges(of)} had ${provider.mkString}"
       }
       else Nil) ++
      Option.when(left.nonEmpty)(
        s"  offset entries $kept on ${left.flatMap(_.provider).distinct.mkString(" and ")}: ${ranges(left)}"
      ) ++
      asideFolder.map(folder =>
        s"  $aside files above version $committed, which no committed batch has written, $moved in $folder"
      ) ++
      journal.map(j => s"  the entries as they were: $j") ++
      basis.map(b => s"  $b") ++
      Option.when(isDry)("nothing was done")
  }

  def json: JObject =
    ("checkpoint" -> checkpoint) ~ ("to" -> to.shortName) ~ ("dryRun" -> isDry) ~
      ("from" -> from.map(_.shortName)) ~
      ("changedBatches" -> entries.map(_.batch).sorted) ~
      ("leftBatches" -> left.map(_.batch).sorted) ~
      ("importedVersion" -> imports) ~ ("importedStores" -> imported.map(_.stores)) ~
      ("importedRows" -> imported.map(_.rows)) ~ ("asideFiles" -> aside) ~
      ("aside" -> asideFolder) ~ ("journal" -> journal) ~ ("basis" -> basis) ~
      ("settled" -> settled)

  /** `3 to 7, 9`. */
  private def ranges(of: Seq[OffsetEntry]): String =
    of.map(_.batch).sorted.foldLeft(List.empty[(Long, Long)]) {
      case ((start, end) :: rest, b) if b == end + 1 => (start, b) :: rest
      case (done, b) => (b, b) :: done
    }.reverse.map { case (a, b) => if (a == b) s"$a" else s"$a to $b" }.mkString(", ")
}
