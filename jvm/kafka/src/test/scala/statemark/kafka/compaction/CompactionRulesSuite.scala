package statemark.kafka.compaction

import org.apache.kafka.clients.producer.ProducerRecord
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.mutable
import statemark.common.Clock
import statemark.kafka.clients.KafkaClients
import statemark.kafka.conf.{SinkException, SinkSettings}
import statemark.kafka.doctor.{Check, CheckState, KafkaDoctor}
import statemark.kafka.log.{CommitTopicSigns, HeldLag, RuleCodec, RuleRecord, TopicCommitLog}

/** The rule of a topic, which its repairs note in the commit topic; deletions that may be lost; headers that are missing. */
class CompactionRulesSuite extends AnyFunSuite with CompactionTopics {
  private def commits(name: String): SinkSettings = SinkSettings.of(Map(
    "kafka.bootstrap.servers" -> brokers.bootstrap,
    "commitTopic" -> brokers.topic(
      s"rules-$name",
      partitions = 16,
      Map("cleanup.policy" -> "compact")
    )
  ))
  private lazy val sink = commits("commits")

  private val DayMs = 24L * 3600 * 1000

  /** Days later. */
  private def later(days: Long): Clock = new Clock {
    override def nanos(): Long = Clock.system.nanos()
    override def epochMs(): Long = Clock.system.epochMs() + days * DayMs
  }

  private class Lines extends CompactionListener {
    val lines: mutable.Buffer[String] = mutable.Buffer.empty
    override def said(line: String): Unit = lines += line
  }

  private def refused(body: => Any): SinkException.RefusedSetting =
    intercept[SinkException.RefusedSetting](body)

  test(
    "a repair by another rule than the one that is noted is refused by name, until it is changed"
  ) {
    val of = topic("noted-rule")
    disordered(of, "k")
    val other = VersionRule.Timestamp
    assert(compaction(of, other, sink = sink).dryRun().wrong == 0, "a dry run notes nothing")
    assert(compaction(of, sink = sink).repair().appended == 1)
    val late = Some(0L)
    for (
      run <- Seq[TopicCompaction => Any](
        _.dryRun(),
        _.repair(),
        _.requireContinuous(),
        _.requireContinuous(isRunning = true)
      )
    ) {
      val e = refused(run(compaction(of, other, sink = sink, lateness = late)))
      assert(e.problem == s"Topic $of is not repaired by timestamp")
      assert(e.reason.startsWith("it is repaired by header version, as alice has set it at 2"))
      assert(e.remedy.contains("--strategy header --header version") && e.remedy.contains(
        "--change-rule"
      ))
      run(compaction(of, sink = sink, lateness = late))
    }
    assert(refused(compaction(
      of,
      VersionRule.Header("v"),
      sink = sink
    ).dryRun()).problem.contains("header v"))
    compaction(of, other, sink = sink, changesRule = true).dryRun(): Unit
    assert(refused(compaction(of, other, sink = sink).repair()).reason.contains("header version"))
    // Whoever may change a rule does so once: another change while it runs is refused.
    val changing = compaction(of, other, sink = sink, lateness = late, changesRule = true)
    changing.requireContinuous()
    // Also one that has found its rule noted.
    val same = compaction(of, other, sink = sink, lateness = late, changesRule = true)
    same.requireContinuous()
    assert(refused(compaction(of, sink = sink).repair()).reason.contains("by timestamp, as alice"))
    compaction(of, sink = sink, changesRule = true).repair(): Unit
    for (run <- Seq(changing, same))
      assert(refused(run.requireContinuous(isRunning = true)).reason.contains("header version"))

    assert(TopicCompaction.forgetRule(
      sink,
      of,
      isDone = false
    ).exists(_.contains("header version")))
    assert(TopicCompaction.forgetRule(sink, of, isDone = true).isDefined)
    assert(TopicCompaction.forgetRule(sink, of, isDone = true).isEmpty)
    compaction(of, other, sink = sink).repair(): Unit
  }

  test("a mistyped header is not noted, and a rule is before the first copy") {
    val of = topic("noted-mistyped")
    disordered(of, "k")
    def mistyped(of: String) =
      compaction(of, VersionRule.Header("verison"), sink = sink, lateness = Some(0L))
    refused(mistyped(of).repair())
    assert(refused(mistyped(of).requireContinuous()).reason.contains("none of its 2 records has"))
    val dies = RepairSeams(copying = () => throw new IllegalStateException("killed"))
    intercept[IllegalStateException](compaction(of, sink = sink, seams = dies).repair())
    // It may have copied something.
    assert(refused(compaction(
      of,
      VersionRule.Timestamp,
      sink = sink
    ).repair()).reason.contains("header version"))

    val empty = topic("noted-empty")
    compaction(empty, sink = sink).repair(): Unit
    val typo = mistyped(empty)
    val right = compaction(empty, sink = sink, lateness = Some(0L))
    Seq(typo, right).foreach(_.requireContinuous())
    disordered(empty, "k")
    typo.requireContinuous(isRunning = true)
    assert(noted(empty).isEmpty)
    right.requireContinuous(isRunning = true)
    assert(noted(empty).exists(r => r.header.contains("version") && r.repairedMs.isDefined))
  }

  private def notes(of: String) = NotedRules.of(sink, KafkaClients.of(sink), Clock.system, of)

  private def noted(of: String): Option[RuleRecord] =
    notes(of).read().fold(fail(_), _.get(of))

  test("rules are looked for where they lie, and no longer than somebody waits") {
    val of = topic("noted-looked")
    // More than one answer of the brokers holds.
    val sent = (1L to 600L).map(since =>
      producer.send(new ProducerRecord(
        sink.commitTopic,
        Int.box(RuleCodec.partitionOf(of)),
        RuleCodec.key(of),
        RuleCodec.value(RuleRecord(of, None, "bob", since))
      ))
    )
    sent.foreach(_.get())
    def looked(names: Option[Seq[String]], mostMs: Long) =
      NotedRules.of(sink, names, mostMs)(_ == of).read()
    for (names <- Seq(None, Some(Seq(of, "another"))))
      assert(looked(names, 60000).exists(_(of).sinceMs == 600))
    assert(looked(None, 0).left.exists(_.endsWith("was not read to its end within 0 ms")))
  }

  test("what others note while a repair runs is kept, and their rule is not written over") {
    val of = topic("noted-meanwhile")
    def repairing(record: RuleRecord): RepairReport = {
      disordered(of, "k")
      val seams = RepairSeams(copying = () => assert(notes(of).write(record).isEmpty))
      compaction(of, sink = sink, seams = seams).repair()
    }
    val held = Some(HeldLag(42, isOwn = true, "hold"))
    val theirs = RuleRecord(of, Some("version"), "bob", 1, None, held)
    repairing(theirs): Unit
    assert(noted(of).exists(r => r.repairedMs.isDefined && r.copy(repairedMs = None) == theirs))
    val other = theirs.copy(header = None)
    assert(refused(repairing(other)).reason.contains("by timestamp, as bob"))
    assert(noted(of).contains(other))
  }

  test(
    "where the commit topic is not there, or does not take the rule, work goes on, and it is said once"
  ) {
    val of = topic("noted-unnoted")
    disordered(of, "k")
    def said(sink: SinkSettings): Seq[String] = {
      val listener = new Lines
      compaction(of, sink = sink, progress = listener).repair(): Unit
      listener.lines.toSeq
    }
    val Seq(absent) = said(sink.copy(commitTopic = "rules-absent")): @unchecked
    assert(absent.endsWith("is not noted in rules-absent: topic rules-absent is not there"))
    assert(!brokers.has("rules-absent"))
    val few = said(sink.copy(commitTopic = brokers.topic("rules-few", 4)))
    assert(few.size == 1 && few.head.contains("has 4 partitions, and is no commit topic"))
    val small = brokers.topic(
      "rules-small",
      partitions = 16,
      Map("cleanup.policy" -> "compact", "max.message.bytes" -> "1")
    )
    val Seq(full) = said(sink.copy(commitTopic = small)): @unchecked
    assert(full.contains("larger than the max message size"), full)
  }

  test("sinks pass rules over, a topic with rules is a commit topic, and is not repaired") {
    val own = commits("signs")
    val of = topic("noted-signs")
    disordered(of, "k")
    compaction(of, sink = own).repair(): Unit
    val clients = KafkaClients.of(own)
    val log = new TopicCommitLog(clients, brokers.admin, own, Clock.system)
    assert(log.readAll(_ => true)((identity, _) => identity).isEmpty && log.foreign.isEmpty)
    assert(CommitTopicSigns.isCommitTopic(clients, own.commitTopic, 16))
    configure(own.commitTopic, "min.compaction.lag.ms", s"${Long.MaxValue}")
    val e = refused(compaction(own.commitTopic, VersionRule.Timestamp, sink = sink).repair())
    assert(e.reason.contains("the exactly-once sink keeps its decisions there"))
  }

  test("a lag that a later release notes as held is kept with the rule, also with another one") {
    val of = topic("noted-held")
    disordered(of, "k")
    val held = Some(HeldLag(42, isOwn = true, "hold"))
    def notes = NotedRules.of(sink, KafkaClients.of(sink), Clock.system, of)
    assert(notes.write(RuleRecord(of, None, "bob", 1, None, held)).isEmpty)
    for (rule <- Seq(VersionRule.Timestamp, Version)) {
      compaction(of, rule, sink = sink, changesRule = true).repair(): Unit
      val Right(found) = notes.read(): @unchecked
      assert(found(of).held == held && found(of).repairedMs.isDefined)
      assert((found(of).by, found(of).sinceMs == 1) ==
        (if (rule == Version) ("alice", false) else ("bob", true)))
    }
  }

  test("a rule that a later release has noted is not written over") {
    val of = topic("noted-later")
    disordered(of, "k")
    producer.send(new ProducerRecord(
      sink.commitTopic,
      Int.box(RuleCodec.partitionOf(of)),
      RuleCodec.key(of),
      Array[Byte](2, 5)
    )).get(): Unit
    val e = intercept[SinkException.UnreadableRecord](
      compaction(of, sink = sink, changesRule = true).repair()
    )
    assert(e.getMessage.contains(s"the rule of topic $of") && e.getMessage.contains("format is 2"))
  }

  test(
    "deletions that the log may have lost are told with the figures, also by a dry run and the doctor"
  ) {
    val day = Map("cleanup.policy" -> "compact", "delete.retention.ms" -> s"$DayMs")
    val of = topic("noted-tombstones", day + ("min.compaction.lag.ms" -> s"$DayMs"))
    disordered(of, "k")
    def risk(days: Long, lateMs: Option[Long] = None) =
      compaction(of, sink = sink, lateness = lateMs, clock = later(days)).dryRun().tombstones
    assert(risk(0).isEmpty && risk(9).isEmpty, "nobody knows how long ago a repair was")
    assert(risk(0, Some(DayMs)).isEmpty)
    val late = risk(0, Some(DayMs + 1)).get
    assert(late.keptMs == DayMs && late.neededMs == DayMs + 1)
    assert(late.remedy.startsWith(s"Set delete.retention.ms to ${DayMs + 1} or more"))

    val held = compaction(of, sink = sink, holds = true).repair()
    assert(held.found.tombstones.isEmpty && risk(1).isEmpty)
    val long = risk(3).get
    assert(long.keptMs == 2 * DayMs && long.neededMs >= 3 * DayMs)
    assert(long.text.contains(
      s"a tombstone stays for ${2 * DayMs} ms (delete.retention.ms=$DayMs, min.compaction.lag.ms=$DayMs)"
    ))
    // As one that was killed leaves it.
    new CompactionLag(brokers.admin, of, Version).hold(): Unit
    val again = compaction(of, sink = sink, holds = true, clock = later(3)).repair()
    assert(again.found.tombstones.exists(_.keptMs == 2 * DayMs), "the lag as it is between repairs")
    assert(risk(4).isEmpty, "since the last one")

    configure(of, "delete.retention.ms", "0")
    configure(of, "min.compaction.lag.ms", "0")
    compaction(of, sink = sink, holds = true, clock = later(-1)).repair(): Unit
    val warning = doctor(of, None)
    assert(
      warning.state == CheckState.Warning && warning.text.contains("deleted keys may come back")
    )
  }

  private def doctor(of: String, rule: Option[VersionRule]): Check = {
    val options = Map(
      "kafka.bootstrap.servers" -> brokers.bootstrap,
      "commitTopic" -> sink.commitTopic,
      "topic" -> of
    )
    KafkaDoctor.open(
      SinkSettings.of(options),
      rule
    ).checks().filter(_.name == "repair rule") match {
      case Seq(check) => check
      case other => fail(s"$other")
    }
  }

  test("the doctor names the rule, and another one as a problem") {
    val of = topic("noted-doctor")
    assert(doctor(of, Some(Version)).text == s"$of: none is noted")
    disordered(of, "k")
    compaction(of, sink = sink).repair(): Unit
    for (rule <- Seq(None, Some(Version))) {
      val named = doctor(of, rule)
      assert(named.state == CheckState.Ok && named.text.contains("header version, as alice"), named)
    }
    val wrong = doctor(of, Some(VersionRule.Timestamp))
    assert(wrong.state == CheckState.Problem && wrong.text.contains("is not repaired by timestamp"))
  }

  test("a record without the header loses, or is refused before anything is written") {
    val of = topic("noted-missing")
    disordered(of, "k")
    compaction(of, sink = sink, missing = MissingVersion.Refuse).dryRun(): Unit
    write(of, "k", "without")
    write(of, "j", "short", headers = Seq("short".getBytes))
    val before = brokers.read(of).size
    for (run <- Seq[TopicCompaction => Any](_.dryRun(), _.repair())) {
      val e = refused(run(compaction(of, sink = sink, missing = MissingVersion.Refuse)))
      assert(e.values.get("partition").contains("0") && e.values.get("offset").contains("2"))
      assert(e.remedy.contains("--missing oldest"))
    }
    assert(brokers.read(of).size == before)
    compaction(of, sink = sink).repair(): Unit
    assert(kept(of) == Map("k" -> "winner", "j" -> "short"))
  }

  test("a record without the header that comes during a repair ends it where nothing is buried") {
    val of =
      topic("missing-late", Map("cleanup.policy" -> "compact", "min.compaction.lag.ms" -> "42"))
    disordered(of, "k", "j")
    var copies = 0
    val seams = RepairSeams(
      chunkKeys = 1,
      copying = () => {
        copies += 1
        write(of, "i", "without")
      }
    )
    refused(
      compaction(
        of,
        sink = sink,
        seams = seams,
        holds = true,
        missing = MissingVersion.Refuse
      ).repair()
    )
    assert(copies == 1 && kept(of) == Map("k" -> "winner", "j" -> "loser", "i" -> "without"))
    assert(lagOf(of) == ("42", true))
  }
}
