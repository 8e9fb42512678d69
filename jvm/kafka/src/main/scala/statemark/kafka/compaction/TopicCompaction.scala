package statemark.kafka.compaction

import org.apache.kafka.clients.admin.Admin
import org.apache.kafka.common.TopicPartition
import scala.annotation.tailrec
import scala.util.control.NonFatal
import scala.util.{Failure, Success, Try, Using}
import statemark.common.Clock
import statemark.kafka.clients.{KafkaClients, KafkaFailures, TopicLookup}
import statemark.kafka.compaction.CompactionLag.Lag
import statemark.kafka.conf.{SinkException, SinkSettings}
import statemark.kafka.log.{RecordCodec, RuleCodec}
import statemark.kafka.tools.BrokerAnswers

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

  private val versions = new Versions
  private val note = new RuleNote(
    NotedRules.of(sink, clients, clock, topic),
    settings,
    sink.commitTopic,
    progress,
    clock
  )

  /** Reads the topic, and changes nothing.
    * @throws SinkException where it cannot be read
    */
  def dryRun(): TopicReport = BrokerAnswers.asking(sink, s"Topic $topic cannot be read") {
    val rules = rulesOf(repairs = false)
    note.require()
    withRisk(rules, working(rules, None, new RepairState)(_.scan()))
  }

  /** Reads the topic, and appends winners until none is missing.
    * @throws SinkException where the topic's settings do not allow it, or it does not get to its end: what was appended by
    *   then does no harm if the repair is run again before the cleaner comes
    */
  def repair(): RepairReport =
    BrokerAnswers.asking(sink, s"Topic $topic cannot be repaired") {
      val rules = rulesOf(repairs = true)
      requireNoDecisions(rules)
      note.require()
      val done = Using.resource(clients.admin()) { admin =>
        val lag = new CompactionLag(admin, topic, rule)
        lag.current match {
          case Lag.Plain(ms, _) if !settings.holdsCleaner || isEver(ms) =>
            requireLag(ms, rules)
            beside(admin, lag, rules, neededMs(rules).filterNot(_ => isEver(ms)))
          case Lag.Held(_, _) if !settings.holdsCleaner => throw notPutBack(lag)
          case _ => holding(admin, lag, rules)
        }
      }
      val report = done.copy(found = withRisk(rules, done.found))
      if (done.ends.isDefined && done.found.records > 0) note.end()
      report
    }

  /** Whether a query that repairs the topic for good may run, or go on.
    * @param isRunning whether it runs: a repair beside it may hold the cleaner then
    * @throws SinkException where it may not
    */
  def requireContinuous(isRunning: Boolean = false): Unit =
    BrokerAnswers.asking(sink, s"Topic $topic cannot be repaired") {
      if (settings.holdsCleaner) throw new SinkException.RefusedSetting(
        s"Topic $topic cannot be repaired for good",
        "a lag that is raised for ever lets the log grow without an end",
        "Use --lateness alone, without --set-lag",
        Map("topic" -> topic)
      )
      val rules = rulesOf(repairs = true)
      if (!isRunning) requireNoDecisions(rules)
      val needed = neededMs(rules).getOrElse(throw new SinkException.RefusedSetting(
        s"Topic $topic cannot be repaired for good",
        "the cleaner goes by timestamps, and nobody has said how old producers' are when they are written",
        "Add --lateness, 1h for example",
        Map("topic" -> topic)
      ))
      Using.resource(clients.admin()) { admin =>
        val lag = new CompactionLag(admin, topic, rule)
        lag.current match {
          case Lag.Held(_, _) if !isRunning => throw notPutBack(lag)
          case Lag.Plain(ms, _) if ms < needed => throw shortLag(ms, Some(needed), others = "")
          case _ => ()
        }
      }
      note.require()
      if (!versions.areSeen) versions.lookOn(rules)
      if (versions.areSeen) {
        note.begin()
        // State knows deletions, so that no tombstone is missed while the query runs.
        if (isRunning && note.sinceRepairMs.forall(_ > LeastNotedMs)) note.end()
      } else if (!isRunning && versions.records > 0)
        throw TopicRules.withoutVersions(topic, versions.records, rule)
    }

  /** Reads the topic until a record has a version, before which no rule is noted. What was read is not read again. */
  private final class Versions {
    var areSeen = false
    var records = 0L
    private var next = Map.empty[TopicPartition, Long]

    def lookOn(rules: TopicRules): Unit =
      Using.resource(clients.consumer(committedOnly = true)) { consumer =>
        val places = Vector.tabulate(rules.partitions)(new TopicPartition(topic, _))
        val reader = new TopicReader(consumer, places, clock, TopicRepair.PatienceMs)
        next.foreach { case (place, offset) => consumer.seek(place, offset) }
        reader.readOn(Map.empty) { record =>
          records += 1
          areSeen ||= rule.of(record).isDefined
        }(_ => areSeen): Unit
        next = reader.positions
      }
  }

  private def withRisk(rules: TopicRules, found: TopicReport): TopicReport = found.copy(tombstones =
    TombstoneRisk.of(rules.config, settings.latenessMs, note.sinceRepairMs)
  )

  private def rulesOf(repairs: Boolean): TopicRules = {
    if (repairs && topic == sink.commitTopic) throw TopicRules.ofDecisions(topic)
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

  /** The commit topic of a sink may have any name. Its first record says what it is. */
  private def requireNoDecisions(rules: TopicRules): Unit =
    Using.resource(clients.consumer(committedOnly = true)) { consumer =>
      val places = Vector.tabulate(rules.partitions)(new TopicPartition(topic, _))
      val reader = new TopicReader(consumer, places, clock, TopicRepair.PatienceMs)
      var isSeen = false
      reader.readOn(Map.empty) { record =>
        val isDecision = !isSeen && Option(record.key).isDefined &&
          (RuleCodec.topicOf(record.key).isDefined ||
            Try(RecordCodec.decode(record.key, record.value)).isSuccess)
        isSeen = true
        if (isDecision) throw TopicRules.ofDecisions(topic)
      }(_ => isSeen): Unit
    }

  /** Runs a repair while the topic's own lag keeps the cleaner away.
    * @param neededMs of that lag; None where it is longer than any record is old
    */
  private def beside(
      admin: Admin,
      lag: CompactionLag,
      rules: TopicRules,
      neededMs: Option[Long]
  ): RepairReport = {
    val state = new RepairState
    val watch = new Watch(admin, rules)({
      val ms = lag.current.ms
      if (neededMs.fold(!isEver(ms))(ms < _)) throw changed(ms)
    })
    try attempts(rules, neededMs.map(_ => WindowMs), watch, state)
    catch {
      case NonFatal(e) if !state.isSettled =>
        progress.said(
          s"Better records may lie under copies: run the repair of $topic again at once, with --set-lag, to its end"
        )
        throw e
    }
  }

  /** Runs a repair with the cleaner held. The lag stays raised where better records may lie under copies, of this repair, or
    * of one that has held the lag before and did not come to its end. The next repair, which finds them, knows what the lag
    * was.
    */
  private def holding(admin: Admin, lag: CompactionLag, rules: TopicRules): RepairReport = {
    val hold = lag.hold()
    val before = hold.lag.before.ms
    progress.said(
      if (hold.isInherited)
        s"another repair has raised ${CompactionLag.Setting} from $before, and was killed, or is under way and will fail"
      else s"${CompactionLag.Setting} was $before; it is raised until the repair is done"
    )
    val state = new RepairState
    val watch = new Watch(admin, rules)({
      val now = lag.current
      if (now != hold.lag) throw changed(now.ms)
    })
    val result = Try(attempts(rules, None, watch, state))
    val isWhole = result.toOption.exists(_.ends.isDefined)
    if (state.isSettled && (isWhole || !hold.isInherited)) {
      val isBack = putBack(lag, hold.lag, result.isSuccess)
      if (isBack && !isWhole) progress.said(s"${CompactionLag.Setting} is $before again")
      result.map(_.copy(putBackMs = Option.when(isBack)(before))).get
    } else {
      progress.said(whatRemains(lag, hold.lag))
      result.get
    }
  }

  /** What somebody has to know of the lag where better records may lie under copies. */
  private def whatRemains(lag: CompactionLag, held: Lag.Held): String =
    Try(lag.current).toOption match {
      case Some(`held`) | None =>
        s"${CompactionLag.Setting} of $topic stays raised. Run the repair again, with --set-lag and by the same strategy: " +
          s"it puts it back to ${held.before.ms}, too"
      case Some(Lag.Held(_, _)) =>
        s"Another repair of $topic holds ${CompactionLag.Setting} now: let it come to its end"
      case Some(Lag.Plain(ms, _)) =>
        s"${CompactionLag.Setting} of $topic is $ms, and better records may lie under copies: run the repair again at once, " +
          "with --set-lag, to its end"
    }

  /** Sets the lag to what it was.
    * @param isRight whether the repair has succeeded
    * @return false where somebody has set another value
    * @throws SinkException where the topic is right, and the lag stays raised
    */
  private def putBack(lag: CompactionLag, held: Lag.Held, isRight: Boolean): Boolean =
    Try(lag.putBack(held)) match {
      case Success(isBack) =>
        if (!isBack)
          progress.said(s"${CompactionLag.Setting} is left as it is: somebody has set it since")
        isBack
      case Failure(e) =>
        val before = held.before
        val stays = new SinkException.Unavailable(
          s"${CompactionLag.Setting} of topic $topic stays raised",
          s"it was not put back to ${before.ms}: ${SinkException.sentence(s"${KafkaFailures.unwrapped(e)}")}",
          "Run the repair again with --set-lag. Or " +
            (if (before.isOwn) setLag(before.ms)
             else alterTopic(s"--delete-config ${CompactionLag.Setting}")),
          Map("topic" -> topic),
          Some(e)
        )
        if (isRight) throw stays
        progress.said(stays.getMessage)
        false
    }

  /** Begins anew where a winner was gone before it could be copied: the cleaner had begun before it was held. */
  @tailrec private def attempts(
      rules: TopicRules,
      windowMs: Option[Long],
      watch: TopicWatch,
      state: RepairState,
      before: Int = 0
  ): RepairReport =
    working(rules, windowMs, state)(_.repair(watch)) match {
      case Right(report) => report
      case Left(gone) if before == MostAttempts => throw gone.unburied
      case Left(gone) =>
        watch.requireSame()
        state.gone += gone.offsets.size
        progress.said(s"${gone.unburied.reason}: the topic is read again")
        attempts(rules, windowMs, watch, state, before + 1)
    }

  private def working[A](
      rules: TopicRules,
      windowMs: Option[Long],
      state: RepairState
  )(body: TopicRepair => A): A =
    Using.resources(
      clients.consumer(committedOnly = true),
      clients.consumer(committedOnly = true),
      KeyTable.open(settings.scratch)
    ) { (reading, fetching, table) =>
      body(new TopicRepair(
        settings,
        rules,
        windowMs,
        TopicRepair.Parts(
          reading,
          fetching,
          table,
          KafkaClients.copier(sink, rules.mostBytes, _)
        ),
        state,
        progress,
        clock,
        seams
      ))
    }

  private def requireLag(ms: Long, rules: TopicRules): Unit = {
    val needed = neededMs(rules)
    if (!isEver(ms) && needed.forall(ms < _))
      throw shortLag(
        ms,
        needed,
        "Add --set-lag, which raises it for the time and puts it back. Or "
      )
  }

  private def shortLag(ms: Long, needed: Option[Long], others: String) =
    new SinkException.RefusedSetting(
      s"Topic $topic may be cleaned while it is repaired",
      s"its ${CompactionLag.Setting} is $ms, and " + needed.fold(
        "the cleaner goes by timestamps, of which producers may write any: only a lag that is longer than time " +
          "keeps it from a record that comes in between"
      )(n => s"$n are needed"),
      sentence(others + setLag(needed.getOrElse(Long.MaxValue))) +
        (if (needed.isEmpty)
           ". Or say how old timestamps may be as they are written, as in --lateness 1h"
         else ""),
      Map("topic" -> topic, CompactionLag.Setting -> ms.toString)
    )

  /** How somebody sets the lag. */
  private def setLag(ms: Long): String = alterTopic(s"--add-config ${CompactionLag.Setting}=$ms")

  private def alterTopic(change: String): String =
    s"set it: kafka-configs.sh --bootstrap-server ${sink.bootstrapServers} --alter --entity-type topics " +
      s"--entity-name $topic $change"

  private def sentence(text: String): String = s"${text.head.toUpper}${text.tail}"

  /** Whether a lag is longer than any record is old. */
  private def isEver(ms: Long): Boolean = ms > clock.epochMs()

  private def notPutBack(lag: CompactionLag) = new SinkException.RefusedSetting(
    s"A repair of topic $topic is under way, or was killed",
    s"${CompactionLag.Setting} is ${lag.current.ms}, to which a repair with --set-lag has raised it",
    "If none is under way, run one with --set-lag, which puts back what it was",
    Map("topic" -> topic)
  )

  private def changed(ms: Long) = new SinkException.FailedWrite(
    s"Topic $topic may have been cleaned while it was repaired",
    s"somebody has set ${CompactionLag.Setting} to $ms since: another repair that has ended, perhaps",
    "Run this one again now, and one at a time",
    Map("topic" -> topic),
    None
  )

  /** The lag with which a record that comes during a repair stays until it is read; None for one without end. A record may be
    * late, may lie in an open transaction, where nobody reads it, and is read within a window then.
    */
  private def neededMs(rules: TopicRules): Option[Long] =
    (if (rules.takesTimesOfItsOwn) Some(0L) else settings.latenessMs)
      .map(_ + rules.mostTransactionMs + WindowMs)

  private final class Watch(admin: Admin, rules: TopicRules)(requireAway: => Unit)
      extends TopicWatch {
    override def isRead(): Unit = note.begin()

    override def requireSame(): Unit = {
      if (!TopicLookup.patiently(admin, topic).exists(_.topicId == rules.id))
        throw new SinkException.FailedWrite(
          s"Topic $topic is not the one that was read",
          "it was deleted, and perhaps made anew, since the repair began",
          "Run the repair again, if there is something to repair",
          Map("topic" -> topic),
          None
        )
      requireAway
    }
  }
}

object TopicCompaction {

  /** How long a record may wait to be read that came while winners were copied. */
  private[compaction] val WindowMs = 10L * 60 * 1000
  private val MostAttempts = 3

  /** A query that runs for good notes so seldom that it repairs. */
  private val LeastNotedMs = 60L * 60 * 1000

  /** Removes the rule that is noted of a topic, which is compacted by offset from now on, as Kafka does it.
    * @param isDone false where it is only looked what is noted
    * @return what was noted, as a sentence has it; None for nothing
    * @throws SinkException where the commit topic cannot be read, or written
    */
  def forgetRule(sink: SinkSettings, topic: String, isDone: Boolean): Option[String] =
    BrokerAnswers.asking(sink, s"The rule of topic $topic cannot be removed") {
      val notes = NotedRules.of(sink, KafkaClients.of(sink), Clock.system, topic)
      def refused(why: String) = new SinkException.UnfitCluster(
        s"The rule of topic $topic cannot be removed",
        why,
        "Name the commit topic in which it is noted, and let the user read and write it",
        Map("topic" -> topic, "commitTopic" -> sink.commitTopic)
      )
      val noted = notes.read().fold(why => throw refused(why), _.get(topic))
      if (isDone && noted.isDefined) notes.remove(topic).foreach(why => throw refused(why))
      noted.map(RuleNote.text)
    }

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
