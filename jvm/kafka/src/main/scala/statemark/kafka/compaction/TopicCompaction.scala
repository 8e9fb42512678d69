package statemark.kafka.compaction

import java.nio.file.Path
import scala.annotation.tailrec
import scala.util.Using
import statemark.common.Clock
import statemark.kafka.clients.KafkaClients
import statemark.kafka.compaction.CompactionLag.Lag
import statemark.kafka.conf.{SinkException, SinkSettings}
import statemark.kafka.tools.BrokerAnswers

/** What is to be compacted, and how.
  * @param latenessMs by how much timestamps are older, at most, than the time at which producers write them; None where
  *   nobody knows
  * @param holdsCleaner whether `min.compaction.lag.ms` is raised for the time of the repair
  * @param scratch takes the table of keys; None for the machine's temporary directory
  */
final case class CompactionSettings(
    topic: String,
    rule: VersionRule,
    latenessMs: Option[Long] = None,
    holdsCleaner: Boolean = false,
    scratch: Option[Path] = None
)

/** What a repair did.
  * @param found when it began to write
  * @param appended records that it wrote
  * @param left keys that are wrong at its end: producers have put them wrong since, or it was told to stop
  * @param ends by partition, up to where the topic was put right: the winner of all records before lies behind each that
  *   loses against it, but for records that came later; None where it was told to stop before
  * @param putBackMs what `min.compaction.lag.ms` is set to again; None where it was not touched
  */
final case class RepairReport(
    found: TopicReport,
    appended: Long,
    left: Long,
    ends: Option[Map[Int, Long]],
    putBackMs: Option[Long]
)

/** Hears of a repair, or a dry run, that is under way. */
trait CompactionProgress {

  /** @param ahead records up to the end of the log, or less: of some only the offsets are left */
  def scanned(records: Long, ahead: Long): Unit

  /** @param left keys that are wrong still */
  def repaired(appended: Long, left: Long): Unit

  def said(line: String): Unit

  /** Whether to stop at the next place at which nothing is lost by it. */
  def isStopped: Boolean
}

object CompactionProgress {

  /** Nobody listens. */
  val none: CompactionProgress = new CompactionProgress {
    override def scanned(records: Long, ahead: Long): Unit = ()
    override def repaired(appended: Long, left: Long): Unit = ()
    override def said(line: String): Unit = ()
    override def isStopped: Boolean = false
  }
}

/** `statemark topic compact`: makes Kafka's compaction of a topic that of KIP-280, as it writes winners once more behind
  * what came later (docs/adr/0021).
  *
  * ''Thread:'' one at a time.
  */
final class TopicCompaction private[kafka] (
    sink: SinkSettings,
    settings: CompactionSettings,
    progress: CompactionProgress,
    clients: KafkaClients,
    clock: Clock,
    seams: RepairSeams
) {
  import TopicCompaction._
  import settings.{rule, topic}

  /** Reads the topic, and changes nothing.
    * @throws SinkException where it cannot be read
    */
  def dryRun(): TopicReport = BrokerAnswers.asking(sink, s"Topic $topic cannot be read") {
    val rules = rulesOf(repairs = false)
    working(rules, None)(_.scan())
  }

  /** Reads the topic, and appends winners until none is missing.
    * @throws SinkException where the topic's settings do not allow it, or it does not get to its end: what was appended by
    *   then does no harm if the repair is run again before the cleaner comes
    */
  def repair(): RepairReport =
    BrokerAnswers.asking(sink, s"Topic $topic cannot be repaired") {
      val rules = rulesOf(repairs = true)
      Using.resource(clients.admin()) { admin =>
        val lag = new CompactionLag(admin, topic)
        lag.current match {
          case Lag.Plain(ms, _) if !settings.holdsCleaner || isEver(ms) =>
            requireLag(ms, rules)
            attempts(
              rules,
              neededMs(rules).filterNot(_ => isEver(ms)).map(_ => WindowMs),
              Elsewhere
            )
          case Lag.Held(_) if !settings.holdsCleaner => throw notPutBack(lag)
          case _ => holding(lag)(attempts(rules, None, _))
        }
      }
    }

  /** Whether a query that repairs the topic for good may run.
    * @throws SinkException where it may not
    */
  def requireContinuous(): Unit =
    BrokerAnswers.asking(sink, s"Topic $topic cannot be repaired") {
      val rules = rulesOf(repairs = true)
      if (neededMs(rules).isEmpty) throw new SinkException.RefusedSetting(
        s"Topic $topic cannot be repaired for good",
        "the cleaner goes by timestamps, and nobody has said how old producers' are when they are written",
        "Add --lateness, 1h for example",
        Map("topic" -> topic)
      )
      Using.resource(clients.admin()) { admin =>
        requireLag(new CompactionLag(admin, topic).current.ms, rules)
      }
    }

  private def rulesOf(repairs: Boolean): TopicRules = {
    if (repairs && topic == sink.commitTopic) throw TopicRules.refused(
      topic,
      "the exactly-once sink keeps its decisions there, and copies of old ones would count",
      "Name a topic with records of yours"
    )
    val rules = Using.resource(clients.admin())(TopicRules.of(_, topic, rule, repairs))
    if (repairs && settings.holdsCleaner) rules.mostLagMs.foreach(most =>
      throw TopicRules.refused(
        topic,
        s"its max.compaction.lag.ms is $most, and ${CompactionLag.Setting} cannot be raised above it",
        "Raise max.compaction.lag.ms for the time of the repair, or use --lateness instead of --set-lag"
      )
    )
    rules
  }

  /** Runs a repair with the cleaner held. Where it fails and has copied, the lag stays raised: better records may lie under
    * copies, and the next repair, which finds them, knows what the lag was.
    */
  private def holding(lag: CompactionLag)(body: Cleaner => RepairReport): RepairReport = {
    val before = lag.hold()
    progress.said(
      s"${CompactionLag.Setting} was ${before.ms}; it is raised until the repair is done"
    )
    val cleaner = new HeldCleaner(lag)
    var isWhole = false
    try {
      val report = body(cleaner)
      isWhole = true
      report.copy(putBackMs = Some(before.ms))
    } finally
      if (isWhole || !cleaner.hasCopies) lag.putBack(before)
      else progress.said(
        s"Run the repair of $topic again, with --set-lag: it puts ${CompactionLag.Setting} back to ${before.ms}, too"
      )
  }

  /** Begins anew where a winner was gone before it could be copied: the cleaner had begun before it was held. */
  @tailrec private def attempts(
      rules: TopicRules,
      windowMs: Option[Long],
      cleaner: Cleaner,
      before: Int = 0
  ): RepairReport =
    working(rules, windowMs)(_.repair(cleaner)) match {
      case Right(report) => report
      case Left(gone) if before == MostAttempts => throw gone
      case Left(gone) =>
        progress.said(s"${gone.reason}: the topic is read again")
        attempts(rules, windowMs, cleaner, before + 1)
    }

  private def working[A](rules: TopicRules, windowMs: Option[Long])(body: TopicRepair => A): A =
    Using.resources(
      clients.consumer(committedOnly = true),
      clients.consumer(committedOnly = true),
      KeyTable.open(settings.scratch)
    ) { (reading, fetching, table) =>
      body(new TopicRepair(
        topic,
        rule,
        rules,
        windowMs,
        TopicRepair.Parts(
          reading,
          fetching,
          table,
          () => KafkaClients.copier(sink, rules.mostBytes)
        ),
        progress,
        clock,
        seams
      ))
    }

  private def requireLag(ms: Long, rules: TopicRules): Unit = {
    val needed = neededMs(rules)
    if (!isEver(ms) && needed.forall(ms < _)) throw new SinkException.RefusedSetting(
      s"Topic $topic may be cleaned while it is repaired",
      s"its ${CompactionLag.Setting} is $ms, and " + needed.fold(
        "the cleaner goes by timestamps, of which producers may write any: only a lag that is longer than time " +
          "keeps it from a record that comes in between"
      )(n => s"$n are needed"),
      "Add --set-lag, which raises it for the time and puts it back. Or set it: kafka-configs.sh --bootstrap-server " +
        s"${sink.bootstrapServers} --alter --entity-type topics --entity-name $topic --add-config " +
        s"${CompactionLag.Setting}=${needed.getOrElse(Long.MaxValue)}" +
        (if (needed.isEmpty)
           ". Or say how old timestamps may be as they are written, as in --lateness 1h"
         else ""),
      Map("topic" -> topic, CompactionLag.Setting -> ms.toString)
    )
  }

  /** Whether a lag is longer than any record is old. */
  private def isEver(ms: Long): Boolean = ms > clock.epochMs()

  private def notPutBack(lag: CompactionLag) = new SinkException.RefusedSetting(
    s"A repair of topic $topic is under way, or was killed",
    s"${CompactionLag.Setting} is ${lag.current.ms}, to which a repair with --set-lag has raised it",
    "If none is under way, add --set-lag, which puts back what it was",
    Map("topic" -> topic)
  )

  /** The lag with which a record that comes during a repair stays until it is read; None for one without end. */
  private def neededMs(rules: TopicRules): Option[Long] =
    if (rules.takesTimesOfItsOwn) Some(WindowMs) else settings.latenessMs.map(_ + WindowMs)

  /** The topic's lag says how long it stays away. */
  private object Elsewhere extends Cleaner {
    override def copying(): Unit = ()
    override def requireAway(): Unit = ()
  }

  private final class HeldCleaner(lag: CompactionLag) extends Cleaner {
    var hasCopies = false

    override def copying(): Unit = hasCopies = true

    override def requireAway(): Unit = lag.current match {
      case Lag.Held(_) => ()
      case Lag.Plain(ms, _) =>
        throw new SinkException.FailedWrite(
          s"Topic $topic may have been cleaned while it was repaired",
          s"somebody has set ${CompactionLag.Setting} to $ms since: another repair that has ended, perhaps",
          "Run this one again now, and one at a time",
          Map("topic" -> topic),
          None
        )
    }
  }
}

object TopicCompaction {

  /** How long a record may wait to be read that came while winners were copied. */
  private[compaction] val WindowMs = 10L * 60 * 1000
  private val MostAttempts = 3

  def open(
      sink: SinkSettings,
      settings: CompactionSettings,
      progress: CompactionProgress
  ): TopicCompaction = new TopicCompaction(
    sink,
    settings,
    progress,
    KafkaClients.of(sink),
    Clock.system,
    RepairSeams()
  )
}
