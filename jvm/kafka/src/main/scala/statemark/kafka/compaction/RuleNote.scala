package statemark.kafka.compaction

import java.time.Instant
import java.time.temporal.ChronoUnit
import statemark.common.Clock
import statemark.kafka.conf.SinkException
import statemark.kafka.log.RuleRecord

/** The rule that is noted of a topic, as its repair compares it with its own, and notes that. Where the commit topic does
  * not take it, work goes on without.
  *
  * ''Thread:'' one at a time.
  */
private[compaction] final class RuleNote(
    notes: NotedRules,
    settings: CompactionSettings,
    commitTopic: String,
    progress: CompactionProgress,
    clock: Clock
) {
  import settings.{rule, topic}

  private var noted = Option.empty[RuleRecord]
  private var isKnown = false
  private var isSaid = false
  private var mayChange = settings.changesRule

  /** Compares the rule that is noted with the repair's.
    * @throws SinkException.RefusedSetting where it is another one, and is not to be changed
    */
  def require(): Unit = {
    val found = notes.read()
    found.left.foreach(sayOnce)
    isKnown = found.isRight
    noted = found.toOption.flatMap(_.get(topic))
    noted.filter(VersionRule.of(_) != rule).foreach { other =>
      if (!mayChange) throw new SinkException.RefusedSetting(
        s"Topic $topic is not repaired by ${rule.name}",
        s"${RuleNote.text(other)}, and a winner by one rule may lose by another",
        s"Give it --strategy ${RuleNote.asked(other)}. Or change the rule, with --change-rule, once all producers write " +
          "what the new one reads",
        Map("topic" -> topic, "commitTopic" -> commitTopic)
      )
    }
  }

  /** How long ago the last repair came to its end; None where none is known of. */
  def sinceRepairMs: Option[Long] =
    noted.flatMap(_.repairedMs).map(ms => math.max(0L, clock.epochMs() - ms))

  /** Notes the repair's rule, where it is not noted yet. */
  def begin(): Unit =
    if (noted.exists(VersionRule.of(_) == rule)) mayChange = false else write(current)

  /** Notes that the topic was repaired up to now, with what others have noted since it began.
    * @throws SinkException.RefusedSetting where that is another rule
    */
  def end(): Unit = {
    require()
    write(current.copy(repairedMs = Some(clock.epochMs())))
  }

  private def current: RuleRecord = noted.filter(VersionRule.of(_) == rule).getOrElse(RuleRecord(
    topic,
    VersionRule.headerOf(rule),
    settings.by,
    clock.epochMs(),
    held = noted.flatMap(_.held)
  ))

  private def write(record: RuleRecord): Unit = if (isKnown) notes.write(record) match {
    case None =>
      noted = Some(record)
      mayChange = false
    case Some(why) => sayOnce(why)
  }

  private def sayOnce(why: String): Unit = if (!isSaid) {
    isSaid = true
    progress.said(s"the rule by which $topic is repaired is not noted in $commitTopic: $why")
  }
}

private[kafka] object RuleNote {

  /** Says what is noted. */
  def text(record: RuleRecord): String = {
    val since = Instant.ofEpochMilli(record.sinceMs).truncatedTo(ChronoUnit.SECONDS)
    s"it is repaired by ${VersionRule.of(record).name}, as ${record.by} has set it at $since"
  }

  /** The rule as arguments name it. */
  private def asked(record: RuleRecord): String =
    record.header.fold("timestamp")(key => s"header --header $key")
}
