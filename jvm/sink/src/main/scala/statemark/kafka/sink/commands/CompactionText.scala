package statemark.kafka.sink.commands

import java.nio.ByteBuffer
import java.nio.charset.{CharacterCodingException, StandardCharsets}
import java.util.HexFormat
import org.json4s.JObject
import org.json4s.JsonDSL._
import statemark.kafka.compaction.{
  CompactionSettings,
  RepairReport,
  TopicReport,
  VersionRule,
  WrongRecord
}
import statemark.kafka.sink.commands.TopicText.counted

/** What `topic compact` has found and done, as it prints it. */
private[commands] object CompactionText {
  private val DayMs = 24L * 3600 * 1000

  /** Of a dry run. */
  def lines(settings: CompactionSettings, found: TopicReport): Seq[String] =
    ofRecords(settings, found) ++ ofWrong(found) ++ ofTombstones(found) :+
      (if (found.wrong == 0) s"${settings.topic}: every key has its winner"
       else s"${settings.topic}: nothing was done; without --dry-run they are repaired")

  /** Of a repair. */
  def lines(settings: CompactionSettings, done: RepairReport): Seq[String] = {
    val written = s"${settings.topic}: ${counted(done.appended, "winner")} written again"
    val end = done.ends match {
      case None if !done.found.isWhole => s"$written; stopped before all of it was read"
      case None => s"$written; stopped, with ${counted(done.left, "key")} left for the next time"
      case Some(ends) =>
        val offsets = ends.toSeq.sorted.map { case (p, offset) => s"$p:$offset" }.mkString(" ")
        s"$written; every key has its winner, up to the offsets $offsets" +
          (if (done.left == 0) ""
           else
             s". Producers have put ${counted(done.left, "key")} wrong since: run this again, or --continuous")
    }
    val gone = Option.when(done.gone > 0)(
      s"${counted(done.gone, "winner")} removed before it could be copied: of these keys the best record that was left wins"
    )
    ofRecords(settings, done.found) ++ ofWrong(done.found) ++ gone ++
      ofTombstones(done.found) ++ done.putBackMs.toSeq.flatMap(lagAgain) :+ end
  }

  /** Of a rule that was removed, or would be. */
  def lines(noted: Option[String], args: TopicCompactCommand.Arguments): Seq[String] =
    Seq(noted.fold(s"${args.topic}: no rule is noted in ${args.commitTopic}")(text =>
      if (args.dryRun) s"${args.topic}: nothing was done; $text"
      else s"${args.topic}: its rule is removed; until now $text"
    ))

  def json(noted: Option[String], args: TopicCompactCommand.Arguments): JObject =
    ("rule" -> noted) ~ ("removed" -> (noted.isDefined && !args.dryRun))

  private def ofTombstones(found: TopicReport): Seq[String] =
    found.tombstones.toSeq.flatMap(risk =>
      Seq(s"warning: ${risk.text}", s"  remedy: ${risk.remedy}")
    )

  private def lagAgain(ms: Long): Seq[String] =
    s"min.compaction.lag.ms is $ms again" +:
      (if (ms >= DayMs) Nil
       else Seq(
         "  records that come out of order from now on may be cleaned before the next repair: a lag that is longer than the time " +
           "between repairs keeps them"
       ))

  private def ofRecords(settings: CompactionSettings, found: TopicReport): Seq[String] = {
    val header = settings.rule match {
      case VersionRule.Header(key) => Seq(
          found.withoutVersion -> s"without header $key",
          found.unreadable -> s"with a value of header $key that has not 8 bytes, as without"
        )
      case VersionRule.Timestamp => Nil
    }
    val odd = (found.withoutKey -> "without a key, left alone") +: header :+
      (found.negative -> "with a version below 0")
    val head =
      s"${counted(found.records, "record")}, ${counted(found.keys, "key")} in " +
        s"${counted(found.ends.size.toLong, "partition")}, by ${settings.rule.name}"
    head +: odd.collect {
      case (count, what) if count > 0 => s"  ${counted(count, "record")} $what"
    }
  }

  private def ofWrong(found: TopicReport): Seq[String] =
    if (found.wrong == 0) Nil
    else {
      val more = found.wrong - found.firstWrong.size
      (s"${counted(found.wrong, "key")} of which Kafka keeps another record than the winner" +:
        found.firstWrong.map { w =>
          s"  partition ${w.partition}, ${shown(w.key)}: offset ${w.winnerOffset} (${version(w.winnerVersion)}) " +
            s"wins, offset ${w.lastOffset} (${version(w.lastVersion)}) is kept"
        }) ++ Option.when(more > 0)(s"  and $more more")
    }

  private def version(of: Option[Long]): String = of.fold("no version")(v => s"version $v")

  /** A key as text, where it is one. */
  private def shown(key: Array[Byte]): String =
    text(key).filterNot(_.exists(_.isControl)).fold(s"0x${hex(key)}")(t => s"'$t'")

  private def text(key: Array[Byte]): Option[String] =
    try Some(StandardCharsets.UTF_8.newDecoder.decode(ByteBuffer.wrap(key)).toString)
    catch { case _: CharacterCodingException => None }

  private def hex(key: Array[Byte]): String = HexFormat.of.formatHex(key)

  def json(done: RepairReport): JObject =
    json(
      done.found
    ) ~ ("appended" -> done.appended) ~ ("left" -> done.left) ~ ("gone" -> done.gone) ~
      ("minCompactionLagMs" -> done.putBackMs) ~ ("upTo" -> done.ends.map(offsets))

  def json(found: TopicReport): JObject =
    ("records" -> found.records) ~ ("withoutKey" -> found.withoutKey) ~ ("keys" -> found.keys) ~
      ("wrong" -> found.wrong) ~ ("withoutHeader" -> found.withoutVersion) ~
      ("otherLength" -> found.unreadable) ~ ("negative" -> found.negative) ~
      ("firstWrong" -> found.firstWrong.map(json)) ~ ("read" -> offsets(found.ends)) ~
      ("isWhole" -> found.isWhole) ~
      ("tombstones" -> found.tombstones.map(risk =>
        ("keptMs" -> risk.keptMs) ~ ("neededMs" -> risk.neededMs)
      ))

  private def json(w: WrongRecord): JObject =
    ("partition" -> w.partition) ~ ("key" -> text(w.key)) ~ ("keyHex" -> hex(w.key)) ~
      ("winnerOffset" -> w.winnerOffset) ~ ("winnerVersion" -> w.winnerVersion) ~
      ("lastOffset" -> w.lastOffset) ~ ("lastVersion" -> w.lastVersion)

  private def offsets(of: Map[Int, Long]): Map[String, Long] =
    of.map { case (partition, offset) => partition.toString -> offset }
}
