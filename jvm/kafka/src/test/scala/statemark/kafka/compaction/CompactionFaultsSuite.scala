package statemark.kafka.compaction

import java.nio.file.Files
import org.apache.kafka.clients.admin.RecordsToDelete
import org.apache.kafka.clients.consumer.{MockConsumer, OffsetResetStrategy}
import org.apache.kafka.common.TopicPartition
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.{Random, Using}
import statemark.common.Clock
import statemark.kafka.clients.KafkaClients
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkSettings}
import statemark.kafka.log.{IdentityRecord, RecordCodec}
import statemark.kafka.sim.ManualClock

/** Repairs that die, are stopped, are not let, or whose topic changes under them; and what becomes of the cleaner's lag. */
class CompactionFaultsSuite extends AnyFunSuite with CompactionTopics {
  private val Cleaned = Map("cleanup.policy" -> "compact")
  private val Lag = "min.compaction.lag.ms"
  private val dies = RepairSeams(copying = () => throw new IllegalStateException("killed"))

  // Reads a topic record by record, and is stopped at the first one.
  private val slow = SinkSettings.of(
    Map("kafka.bootstrap.servers" -> brokers.bootstrap, "kafka.max.poll.records" -> "1")
  )
  private def atOnce = new CompactionListener { override def isStopped: Boolean = true }

  /** Does something once, at the first copy. */
  private def once(body: => Unit): () => Unit = {
    var isDone = false
    () =>
      if (!isDone) {
        isDone = true
        body
      }
  }

  /** A clock that goes only when a test moves it; what day it is, it knows. */
  private def stopped(moved: ManualClock): Clock = new Clock {
    override def nanos(): Long = moved.nanos()
    override def epochMs(): Long = Clock.system.epochMs()
  }

  /** Removes the records of partition 0 before an offset. */
  private def cut(topic: String, offset: Long): Unit = {
    val first = Map(new TopicPartition(topic, 0) -> RecordsToDelete.beforeOffset(offset))
    brokers.admin.deleteRecords(first.asJava).all().get(): Unit
  }

  private val Cut =
    Map("cleanup.policy" -> "compact,delete", "retention.ms" -> "-1", Lag -> s"${Long.MaxValue}")

  test("a lag that is raised is put back, whether the topic had one of its own or not") {
    for ((name, config) <- Seq("own" -> Map(Lag -> "77"), "default" -> Map.empty)) {
      val of = topic(s"lag-$name", Cleaned ++ config)
      disordered(of, "k")
      val before = lagOf(of)
      var wasHeld = false
      val seams = RepairSeams(copying = () => wasHeld = isHeld(of))
      val refused = intercept[SinkException.RefusedSetting](compaction(of).repair())
      assert(refused.remedy.contains("--set-lag") && refused.remedy.contains(of))
      val done = compaction(of, holds = true, seams = seams).repair()
      assert(wasHeld && lagOf(of) == before)
      assert(done.putBackMs.map(_.toString).contains(before._1))
    }
  }

  test("a lag that somebody has set since is left as it is") {
    val of = topic("lag-since", Cleaned + (Lag -> "77"))
    val lag = new CompactionLag(brokers.admin, of, Version)
    val hold = lag.hold()
    assert(!hold.isInherited && hold.lag.before == CompactionLag.Lag.Plain(77))
    val again = lag.hold()
    assert(again.isInherited && again.lag.before == hold.lag.before)
    assert(!lag.putBack(hold.lag), "the second one has it now")
    assert(isHeld(of))
    configure(of, Lag, "1000")
    assert(!lag.putBack(again.lag) && lagOf(of) == ("1000", true))
    // Two holds of one lag are told apart.
    val holds = Seq.fill(3) {
      val next = lag.hold().lag
      assert(lag.putBack(next))
      next
    }
    assert(holds.distinct.size == 3 && holds.map(_.before.ms).distinct == Seq(1000L))
  }

  test("after a repair that died the lag stays until one has come to its end") {
    val of = topic("died", Cleaned + (Lag -> "42"))
    disordered(of, "k", "j", "i")
    // Dies when the copy is there, and before anything behind it is read.
    val first = RepairSeams(
      chunkKeys = 1,
      copying = () => versioned(of, "k", "better", 6),
      sees = record => {
        if (record.offset >= 6) throw new IllegalStateException("killed")
        true
      }
    )
    intercept[IllegalStateException](compaction(of, holds = true, seams = first).repair())
    assert(kept(of)("k") == "winner", "a copy of what was better before")
    assert(isHeld(of))
    // One that fails before its first copy, one that is stopped at once, and one that is stopped in the middle.
    intercept[IllegalStateException](compaction(of, holds = true, seams = dies).repair())
    assert(isHeld(of))
    val unread = compaction(of, holds = true, progress = atOnce, sink = slow).repair()
    assert(unread.ends.isEmpty && unread.putBackMs.isEmpty && isHeld(of))
    var chunks = 0
    val counting = RepairSeams(chunkKeys = 1, copying = () => chunks += 1)
    val later = new CompactionListener { override def isStopped: Boolean = chunks > 0 }
    val some = compaction(of, holds = true, seams = counting, progress = later).repair()
    assert(some.appended == 1 && some.ends.isEmpty && some.putBackMs.isEmpty && isHeld(of))
    val done = compaction(of, holds = true).repair()
    assert(done.putBackMs.contains(42L) && done.ends.isDefined && lagOf(of) == ("42", true))
    assert(kept(of) == Map("k" -> "better", "j" -> "winner", "i" -> "winner"))
  }

  test(
    "a repair that has held the lag itself puts it back when it is stopped between copies"
  ) {
    val of = topic("between-copies", Cleaned + (Lag -> "42"))
    disordered(of, "k", "j")
    val report = compaction(of, holds = true, progress = atOnce, sink = slow).repair()
    assert(!report.found.isWhole && report.ends.isEmpty && report.putBackMs.contains(42L))
    assert(!compaction(of, progress = atOnce, sink = slow).dryRun().isWhole)
    assert(lagOf(of) == ("42", true) && brokers.read(of).size == 4)
    var chunks = 0
    val counting = RepairSeams(chunkKeys = 1, copying = () => chunks += 1)
    val later = new CompactionListener { override def isStopped: Boolean = chunks > 0 }
    val some = compaction(of, holds = true, seams = counting, progress = later).repair()
    assert(some.appended == 1 && some.left == 1 && some.putBackMs.contains(42L))
    assert(lagOf(of) == ("42", true))
  }

  test("two repairs with a raised lag: the first that ends tells the other") {
    val of = topic("two", Cleaned)
    disordered(of, "k")
    val other = RepairSeams(copying = once(compaction(of, holds = true).repair(): Unit))
    val e =
      intercept[SinkException.FailedWrite](compaction(of, holds = true, seams = other).repair())
    assert(e.reason.contains("another repair"))
    // Also where a third one has held the lag again by then.
    versioned(of, "k", "loser", 4)
    val third = RepairSeams(copying = once {
      compaction(of, holds = true).repair(): Unit
      versioned(of, "k", "loser", 4)
      intercept[IllegalStateException](compaction(of, holds = true, seams = dies).repair()): Unit
      assert(isHeld(of))
    })
    intercept[SinkException.FailedWrite](compaction(of, holds = true, seams = third).repair())
    assert(isHeld(of), "the third one died")
  }

  test("a lag that is lowered while a repair relies on it is noticed") {
    val of = topic("lowered", Held)
    disordered(of, "k")
    val lines = mutable.Buffer.empty[String]
    val listener = new CompactionListener { override def said(line: String): Unit = lines += line }
    val seams = RepairSeams(copying = () => configure(of, Lag, "0"))
    val e = intercept[SinkException.FailedWrite](
      compaction(of, seams = seams, progress = listener).repair()
    )
    assert(e.reason.contains(s"set $Lag to 0"))
    assert(lines.exists(_.contains("run the repair of compact-lowered again at once")))
  }

  test("a repair that stood still for longer than the lag says what may have happened") {
    val of = topic("still", Cleaned + (Lag -> "1500000"))
    disordered(of, "k")
    val moved = new ManualClock
    val seams = RepairSeams(copying = () => moved.advanceMs(600001))
    val e = intercept[SinkException.FailedWrite](
      compaction(of, lateness = Some(0), seams = seams, clock = stopped(moved)).repair()
    )
    assert(e.reason.contains("stood still"))
  }

  test("a winner that is gone before its copy makes the repair begin again, and is counted") {
    val of = topic("begins-later", Cut)
    disordered(of, "k", "m")
    // All but the last record; the winner of `k` is about to be copied, that of `m` is gone.
    val seams = RepairSeams(chunkKeys = 1, copying = once(cut(of, 3)))
    val done = compaction(of, seams = seams).repair()
    assert(done.left == 0 && done.gone == 1 && done.appended == 1)
    assert(kept(of) == Map("k" -> "winner", "m" -> "loser"))
  }

  test("a better record that is gone before its copy, under another copy, is a failure") {
    for (holds <- Seq(false, true)) {
      val of = topic(s"buried-$holds", if (holds) Cut - Lag else Cut)
      val before = lagOf(of)
      disordered(of, "k")
      var isWritten = false
      // More than a consumer fetches ahead.
      val filler = new Random(2).alphanumeric.take(200000).mkString
      val better = 2L + 20
      // The better record is read behind the copy, and is gone when it is to be copied in turn.
      val listener = new CompactionListener {
        override def scanned(records: Long, ahead: Long): Unit =
          if (isWritten && ahead == 0) cut(of, better + 1)
      }
      val seams = RepairSeams(copying = once {
        (1 to 20).foreach(n => versioned(of, s"filler-$n", filler, 1))
        versioned(of, "k", "better", 6)
        isWritten = true
      })
      val e = intercept[SinkException.FailedWrite](
        compaction(of, seams = seams, progress = listener, holds = holds).repair()
      )
      assert(e.problem.contains("is lost"))
      assert(if (holds) isHeld(of) else lagOf(of) == before)
    }
  }

  test("producers that are faster than every copy make a repair fail, with the lag raised") {
    val of = topic("fast", Cleaned)
    disordered(of, "k")
    var version = 5L
    val seams = RepairSeams(copying = () => {
      version += 1
      versioned(of, "k", "better", version)
    })
    val e =
      intercept[SinkException.FailedWrite](compaction(of, holds = true, seams = seams).repair())
    assert(e.reason.contains("in a row") && isHeld(of))
    assert(compaction(of, holds = true).repair().left == 0)
    assert(kept(of) == Map("k" -> "better") && !isHeld(of))
  }

  test(
    "a winner that the topic does not take is an error; the others are right, and the lag is put back"
  ) {
    val of = topic("not-taken", Cleaned)
    val noise = new Random(1).alphanumeric.take(200000).mkString
    disordered(of, "before", "after")
    versioned(of, "large", noise, 5)
    versioned(of, "large", "loser", 4)
    configure(of, "max.message.bytes", "100000")
    val better = RepairSeams(copying = once(versioned(of, "after", "better", 6)))
    val e = intercept[SinkException.RefusedSetting](
      compaction(of, holds = true, seams = better).repair()
    )
    assert(e.reason.contains("is not taken again") && e.remedy.contains("max.message.bytes"))
    assert(e.values("offset") == "4" && !isHeld(of))
    assert(kept(of) == Map("before" -> "winner", "after" -> "better", "large" -> "loser"))
    configure(of, "max.message.bytes", "1000000")
    assert(compaction(of, holds = true).repair().appended == 1)
    assert(kept(of)("large") == noise)
  }

  test("a winner whose time the topic does not take any more: the others of its batch are copied") {
    val of = topic("refused-time", Cleaned)
    val now = System.currentTimeMillis()
    val times = Seq("a" -> now, "late" -> (now - day), "b" -> now, "c" -> now)
    for ((key, time) <- times) {
      write(of, key, "winner", timestampMs = Some(time), headers = Seq(number(5)))
      versioned(of, key, "loser", 4)
    }
    val seams = RepairSeams(copying = once {
      versioned(of, "a", "better", 6)
      configure(of, "message.timestamp.before.max.ms", "3600000")
    })
    val e = intercept[SinkException.RefusedSetting](
      compaction(of, holds = true, seams = seams).repair()
    )
    assert(e.remedy.contains("message.timestamp.before.max.ms") && e.values("offset") == "2")
    assert(kept(of) == Map("a" -> "better", "late" -> "loser", "b" -> "winner", "c" -> "winner"))
    assert(!isHeld(of))
  }

  test("a winner that the topic does not take does not keep later ones from their copies") {
    val of = topic("poison", Cleaned)
    versioned(of, "large", new Random(1).alphanumeric.take(200000).mkString, 5)
    versioned(of, "large", "loser", 4)
    disordered(of, "j")
    Seq(5L, 4L).foreach(n => versioned(of, "k", s"$n", n, partition = 1))
    configure(of, "max.message.bytes", "100000")
    val seams = RepairSeams(chunkKeys = 1)
    intercept[SinkException.RefusedSetting](compaction(of, holds = true, seams = seams).repair())
    assert(kept(of) == Map("large" -> "loser", "j" -> "winner", "k" -> "5") && !isHeld(of))
  }

  test("a topic without one version is refused: the header's name may be wrong") {
    val of = topic("mistyped", Cleaned)
    disordered(of, "k")
    // A repair was killed: this one would put the lag back, as nothing seems wrong.
    intercept[IllegalStateException](compaction(of, holds = true, seams = dies).repair())
    val wrong = compaction(of, VersionRule.Header("verison"), holds = true)
    // The lag says by which rule it is held; and where it does not, as of older releases, the records do.
    val other = intercept[SinkException.RefusedSetting](wrong.repair())
    assert(other.reason.contains("another strategy, or header") && isHeld(of))
    configure(of, Lag, s"${5000000000000000000L + 7}")
    Seq(() => wrong.repair(), () => wrong.dryRun()).foreach { run =>
      val e = intercept[SinkException.RefusedSetting](run())
      assert(e.reason.contains("none of its 2 records has a version") && isHeld(of))
    }
    assert(compaction(of, holds = true).repair().putBackMs.contains(7L))
  }

  test("reads are repeated until one is short: the next one has to be done within the window") {
    val of = topic("long-reads", Cleaned + (Lag -> "1500000"))
    disordered(of, "k")
    val moved = new ManualClock
    var reads = 0
    val listener = new CompactionListener {
      override def scanned(records: Long, ahead: Long): Unit = {
        reads += 1
        // Producers write meanwhile, half as much each time.
        if (reads <= 3) {
          moved.advanceMs(400000 >> reads)
          versioned(of, "other", "x", 1)
        }
      }
    }
    val done =
      compaction(of, lateness = Some(0), progress = listener, clock = stopped(moved)).repair()
    assert(done.appended == 1 && reads > 3)
  }

  test("a winner that was compressed is compressed again, and large ones are copied one by one") {
    val of = topic("compressed", Held ++ Map("max.message.bytes" -> "100000"))
    val large = "x" * 3000000
    for (key <- Seq("a", "b", "c")) {
      versioned(of, key, large, 5)
      versioned(of, key, "loser", 4)
    }
    var copies = 0
    val seams = RepairSeams(copying = () => copies += 1, chunkBytes = 4000000)
    assert(compaction(of, seams = seams).repair().appended == 3 && copies == 3)
    assert(kept(of).values.toSet == Set(large))
  }

  test("small batches: a topic that takes none of the producer's usual size") {
    val of = topic("small", Held + ("max.message.bytes" -> "2000"))
    for (n <- 1 to 200) disordered(of, s"key-$n")
    assert(compaction(of).repair().appended == 200)
  }

  test("a topic that is made anew while it is repaired is not the one that was read") {
    val of = topic("anew")
    disordered(of, "k", "j")
    val seams = RepairSeams(
      chunkKeys = 1,
      copying = once {
        brokers.deleteTopic(of)
        topic("anew")
        (1 to 9).foreach(n => versioned(of, s"other-$n", "other", 9))
      }
    )
    val e = intercept[SinkException.FailedWrite](compaction(of, seams = seams).repair())
    assert(e.reason.contains("made anew"))
    assert(brokers.read(of).count(r => new String(r.key).startsWith("other")) == 9)
  }

  test(
    "a partition that gives nothing is an error after a while, or the end where somebody says stop"
  ) {
    val place = new TopicPartition("silent", 0)
    def silent(clock: ManualClock) = {
      val consumer =
        new MockConsumer[Array[Byte], Array[Byte]](OffsetResetStrategy.NONE) {
          override def poll(timeout: java.time.Duration) = {
            clock.advanceMs(200)
            super.poll(timeout)
          }
        }
      consumer.updateBeginningOffsets(Map(place -> Long.box(0L)).asJava)
      new RecordFetcher(consumer, "silent", clock, 1000)
    }
    val e = intercept[SinkException.Unavailable](
      silent(new ManualClock).fetch(0, Vector(3L))(isStopped = false)
    )
    assert(e.values("offset") == "3")
    assert(silent(new ManualClock).fetch(0, Vector(3L))(isStopped = true).isEmpty)
  }

  private def day = 24L * 3600 * 1000

  /** A winner whose time is `ageMs` ago, in a topic whose settings are changed afterwards. */
  private def aged(name: String, ageMs: Long, config: Map[String, String]): String = {
    val of = topic(name, Cleaned + ("message.timestamp.after.max.ms" -> s"${Long.MaxValue}"))
    val time = System.currentTimeMillis() - ageMs
    write(of, "k", "winner", timestampMs = Some(time), headers = Seq(number(5)))
    versioned(of, "k", "loser", 4)
    config.foreach { case (key, value) => configure(of, key, value) }
    of
  }

  test("topics that cannot be repaired are refused by name, before anything is written") {
    val both = "cleanup.policy" -> "compact,delete"
    val limits = Seq(
      ("deletes", day, Map("cleanup.policy" -> "delete"), "cleanup.policy is 'delete'"),
      ("old", day, Map(both, "retention.ms" -> "3600000"), "above 3600000 (retention.ms)"),
      ("size", day, Map(both, "retention.bytes" -> "1000000"), "retention.bytes is 1000000"),
      ("past", day, Map("message.timestamp.before.max.ms" -> "7200000"), "timestamp.before.max.ms"),
      ("future", -day, Map("message.timestamp.after.max.ms" -> "3600000"), "ms ahead")
    )
    for ((name, ageMs, config, reason) <- limits) {
      val of = aged(s"refused-$name", ageMs, config)
      val before = lagOf(of)
      val e = intercept[SinkException.RefusedSetting](compaction(of, holds = true).repair())
      assert(e.reason.contains(reason))
      assert(brokers.read(of).size == 2 && lagOf(of) == before)
    }
    // Brokers that set timestamps themselves do not look at those of a producer.
    val own = Map(
      "message.timestamp.before.max.ms" -> "7200000",
      "message.timestamp.type" -> "LogAppendTime"
    )
    assert(compaction(aged("taken-past", day, own), holds = true).repair().appended == 1)
    val late = topic("refused-late", Held + ("message.timestamp.type" -> "LogAppendTime"))
    val e =
      intercept[SinkException.RefusedSetting](compaction(late, VersionRule.Timestamp).repair())
    assert(e.reason.contains("LogAppendTime"))
    val absent = intercept[SinkException.RefusedSetting](compaction("compact-nowhere").dryRun())
    assert(absent.reason.contains("not there"))
    Using.resource(KafkaClients.of(settings).producer("compact-internal"))(_.initTransactions())
    val internal =
      intercept[SinkException.RefusedSetting](compaction("__transaction_state").repair())
    assert(internal.reason.contains("Kafka keeps it"))
    val bounded = topic("refused-bounded", Cleaned + ("max.compaction.lag.ms" -> "1000"))
    val most = intercept[SinkException.RefusedSetting](compaction(bounded, holds = true).repair())
    assert(most.reason.contains("max.compaction.lag.ms is 1000"))
  }

  test("a commit topic of the sink is refused, whatever its name") {
    val other = topic("decisions")
    val record =
      IdentityRecord(SinkIdentity("app", "sink"), "query", "driver", "prefix", 1, "", Vector("t"))
    val bytes = new org.apache.kafka.clients.producer.ProducerRecord(
      other,
      Int.box(0),
      RecordCodec.key(record),
      RecordCodec.value(record)
    )
    (1 to 2).foreach(_ => producer.send(bytes).get())
    for (of <- Seq(settings.commitTopic, other)) {
      val e = intercept[SinkException.RefusedSetting](compaction(of).repair())
      assert(e.reason.contains("decisions"))
      val also = compaction(of, lateness = Some(0))
      assert(intercept[SinkException.RefusedSetting](also.requireContinuous()).reason == e.reason)
    }
    assert(brokers.read(other).size == 2)
  }

  test("a query that repairs for good is refused where the lag does not keep the cleaner away") {
    val of = topic("continuous", Cleaned + (Lag -> "1500000"))
    def refused(lateness: Option[Long], holds: Boolean = false) =
      intercept[SinkException.RefusedSetting](
        compaction(of, lateness = lateness, holds = holds).requireContinuous()
      )
    compaction(of, lateness = Some(0)).requireContinuous()
    assert(refused(None).remedy.contains("--lateness"))
    val short = refused(Some(1))
    assert(short.remedy.contains(s"$Lag=1500001") && !short.remedy.contains("--set-lag"))
    assert(refused(Some(0), holds = true).remedy.contains("without --set-lag"))
    new CompactionLag(brokers.admin, of, Version).hold()
    assert(refused(Some(0)).problem.contains("under way, or was killed"))
    compaction(of, lateness = Some(0)).requireContinuous(isRunning = true)
  }

  test("the table of keys is removed, also after a failure") {
    val scratch = Files.createTempDirectory("keys")
    val of = topic("scratch")
    disordered(of, "k")
    def run(seams: RepairSeams) = new TopicCompaction(
      settings,
      CompactionSettings(of, Version, scratch = Some(scratch)),
      CompactionProgress.none,
      KafkaClients.of(settings),
      Clock.system,
      seams
    ).repair()
    intercept[IllegalStateException](run(dies))
    run(RepairSeams(copying = () => assert(Files.list(scratch).count() == 1)))
    assert(Files.list(scratch).count() == 0)
  }
}
