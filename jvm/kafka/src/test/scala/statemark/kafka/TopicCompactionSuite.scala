package statemark.kafka

import java.nio.ByteBuffer
import java.nio.file.Files
import java.util.concurrent.atomic.AtomicLong
import org.apache.kafka.clients.admin.{AlterConfigOp, ConfigEntry, RecordsToDelete}
import org.apache.kafka.clients.consumer.ConsumerRecord
import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.config.ConfigResource
import org.scalatest.BeforeAndAfterAll
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import scala.util.{Random, Using}
import statemark.common.Clock
import statemark.kafka.clients.KafkaClients
import statemark.kafka.compaction._
import statemark.kafka.conf.{SinkException, SinkSettings}
import statemark.kafka.sim.ManualClock

/** Repairs of topics whose records came in any order, against a plain model of KIP-280. */
class TopicCompactionSuite extends AnyFunSuite with BeforeAndAfterAll {
  private val brokers = TestBrokers.shared
  private val settings =
    SinkSettings.of(Map("kafka.bootstrap.servers" -> brokers.bootstrap))
  private lazy val producer = KafkaClients.copier(settings, 1 << 20)
  private val Version = VersionRule.Header("version")
  // The cleaner has nothing to do in these topics, unless a test lets it.
  private val Held =
    Map("cleanup.policy" -> "compact", "min.compaction.lag.ms" -> s"${Long.MaxValue}")
  // Every record has a header of its own, by which copies are known.
  private val ids = new AtomicLong
  private type Record = ConsumerRecord[Array[Byte], Array[Byte]]

  override def afterAll(): Unit = producer.close()

  private def topic(name: String, config: Map[String, String] = Held): String =
    brokers.topic(s"compact-$name", config = config)

  /** @param headers values of header `version` */
  private def write(
      topic: String,
      key: String,
      value: String,
      partition: Int = 0,
      timestampMs: Option[Long] = None,
      headers: Seq[Array[Byte]] = Nil
  ): Unit = {
    val record = new ProducerRecord(
      topic,
      Int.box(partition),
      timestampMs.map(Long.box).orNull,
      Option(key).map(_.getBytes).orNull,
      Option(value).map(_.getBytes).orNull
    )
    headers.foreach(record.headers.add("version", _))
    record.headers.add("id", number(ids.incrementAndGet()))
    producer.send(record).get(): Unit
  }

  private def number(n: Long): Array[Byte] = ByteBuffer.allocate(8).putLong(n).array

  private def versioned(
      topic: String,
      key: String,
      value: String,
      version: Long,
      partition: Int = 0
  ) =
    write(topic, key, value, partition, headers = Seq(number(version)))

  private def compaction(
      topic: String,
      rule: VersionRule = Version,
      seams: RepairSeams = RepairSeams(),
      progress: CompactionProgress = CompactionProgress.none,
      lateness: Option[Long] = None,
      holds: Boolean = false,
      clock: Clock = Clock.system
  ) = new TopicCompaction(
    settings,
    CompactionSettings(topic, rule, lateness, holds),
    progress,
    KafkaClients.of(settings),
    clock,
    seams
  )

  /** What KIP-280 keeps, written down a second time: by (has a version, version, offset). */
  private def model(records: Seq[Record], rule: VersionRule): Map[(Int, String), Record] =
    records.filter(_.key != null).groupBy(r => (r.partition, new String(r.key))).view.mapValues {
      _.maxBy { record =>
        val version = rule match {
          case VersionRule.Timestamp => Some(record.timestamp)
          case VersionRule.Header(name) =>
            record.headers.headers(name).asScala.toVector.lastOption.map(_.value)
              .filter(v => v != null && v.length == 8).map(ByteBuffer.wrap(_).getLong)
        }
        (version.isDefined, version.getOrElse(0L), record.offset)
      }
    }.toMap

  private def last(records: Seq[Record]): Map[(Int, String), Record] =
    records.filter(_.key != null).groupBy(r => (r.partition, new String(r.key))).view
      .mapValues(_.maxBy(_.offset)).toMap

  private def shown(record: Record): (String, Long, Seq[(String, Seq[Byte])]) = (
    Option(record.value).fold("none")(new String(_)),
    record.timestamp,
    record.headers.asScala.toSeq.map(h => h.key -> h.value.toSeq)
  )

  /** Keys whose winner up to where a repair ended lies before a record that loses against it, and keys whose last record is
    * a copy on which nothing better may lie.
    */
  private def wrong(of: String, rule: VersionRule, done: RepairReport): Set[(Int, String)] = {
    val all = brokers.read(of)
    val ends = done.ends.get
    val originals = all.groupBy(id).values.map(_.minBy(_.offset)).toVector
    val places = originals.map(r => (r.partition, r.offset)).toSet
    val original = originals.map(r => id(r) -> r).toMap
    val byKey = all.groupBy(keyOf)
    def isAsGood(record: Record, winner: Record) =
      model(Seq(winner, original(id(record))), rule).values.exists(id(_) == id(record))
    val right = model(originals.filter(r => r.offset < ends(r.partition)), rule)
    val unsettled = right.filterNot { case (key, winner) =>
      val losers = byKey(Some(key))
        .filter(r => r.offset < ends(r.partition) && id(r) != id(winner)).map(_.offset)
      byKey(Some(key)).exists(r => losers.forall(_ < r.offset) && isAsGood(r, winner))
    }
    val best = model(originals, rule)
    val buried = last(all).filter { case (key, record) =>
      !places((record.partition, record.offset)) && id(record) != id(best(key))
    }
    unsettled.keySet ++ buried.keySet
  }

  private def id(record: Record): Seq[Byte] = record.headers.lastHeader("id").value.toSeq

  private def keyOf(record: Record): Option[(Int, String)] =
    Option(record.key).map(key => (record.partition, new String(key)))

  private def lagOf(topic: String): (String, Boolean) = {
    val resource = new ConfigResource(ConfigResource.Type.TOPIC, topic)
    val entry = brokers.admin.describeConfigs(java.util.List.of(resource)).all().get()
      .get(resource).get("min.compaction.lag.ms")
    (entry.value, entry.source == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG)
  }

  private def configure(topic: String, name: String, value: String): Unit = {
    val change = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)
    brokers.admin.incrementalAlterConfigs(Map(
      new ConfigResource(ConfigResource.Type.TOPIC, topic) ->
        (java.util.List.of(change): java.util.Collection[AlterConfigOp])
    ).asJava).all().get(): Unit
  }

  test("each rule: which record wins") {
    val of = topic("rules")
    val cases = Seq[(String, Seq[Seq[Array[Byte]]], Int)](
      ("the highest version", Seq(Seq(number(1)), Seq(number(3)), Seq(number(2))), 1),
      ("of equal versions the last", Seq(Seq(number(2)), Seq(number(2)), Seq(number(1))), 1),
      ("a version before none", Seq(Seq(number(1)), Nil), 0),
      ("also a negative one", Seq(Nil, Seq(number(-7)), Nil), 1),
      ("the lowest number as well", Seq(Seq(number(Long.MinValue)), Nil), 0),
      ("without versions the last", Seq(Nil, Nil), 1),
      (
        "other lengths are none",
        Seq(Seq(number(0)), Seq("123456789".getBytes), Seq("1".getBytes)),
        0
      ),
      ("the last of several headers", Seq(Seq(number(9), number(1)), Seq(number(2))), 1),
      (
        "the last, though it has another length",
        Seq(Seq(number(9), "x".getBytes), Seq(number(2)), Nil),
        1
      ),
      ("signed numbers", Seq(Seq(number(-1)), Seq(number(1)), Seq(number(0))), 1)
    )
    for ((name, records, _) <- cases; (headers, at) <- records.zipWithIndex)
      write(of, name, s"$at", headers = headers)
    write(of, "deleted", null, headers = Seq(number(5)))
    versioned(of, "deleted", "late", 4)
    val found = compaction(of).dryRun()
    val expected = cases.count { case (_, records, winner) => winner < records.size - 1 } + 1
    assert(found.wrong == expected && found.keys == cases.size + 1)
    assert(found.withoutVersion == 7 && found.unreadable == 3 && found.negative == 3)
    val done = compaction(of).repair()
    assert(done.appended == expected && done.left == 0)
    val kept = last(brokers.read(of))
    for ((name, _, winner) <- cases) assert(new String(kept((0, name)).value) == s"$winner", name)
    assert(kept((0, "deleted")).value == null)
    assert(wrong(of, Version, done).isEmpty)
    assert(compaction(of).repair().appended == 0, "a second time there is nothing to do")
  }

  test("timestamps: the latest wins, of equal ones the last; copies keep theirs") {
    val of = topic("times")
    val now = System.currentTimeMillis()
    Seq(10L, 30L, 20L).zipWithIndex.foreach { case (ms, at) =>
      write(of, "k", s"$at", timestampMs = Some(now - ms))
    }
    Seq(10L, 10L).zipWithIndex.foreach { case (ms, at) =>
      write(of, "same", s"$at", timestampMs = Some(now - ms))
    }
    val done = compaction(of, VersionRule.Timestamp).repair()
    assert(done.found.wrong == 1 && done.appended == 1)
    val kept = last(brokers.read(of))((0, "k"))
    val written = brokers.read(of).minBy(_.offset)
    assert(shown(kept) == shown(written) && kept.timestamp == now - 10)
  }

  test("a key in two partitions has a winner in each") {
    val of = topic("partitions")
    for (partition <- 0 to 1; version <- Seq(5L, 4L + partition * 2))
      versioned(of, "k", s"$partition-$version", version, partition)
    val done = compaction(of).repair()
    assert(done.found.firstWrong.map(w => (w.partition, w.winnerOffset, w.lastOffset)) == Vector((
      0,
      0,
      1
    )))
    assert(done.appended == 1 && wrong(of, Version, done).isEmpty)
  }

  test("what producers write between the read and the copy is not buried") {
    val of = topic("between")
    versioned(of, "k", "winner", 5)
    versioned(of, "k", "loser", 4)
    versioned(of, "j", "winner", 5)
    versioned(of, "j", "loser", 4)
    // Better, worse, equal, and gone, in one gap each.
    val gaps = Iterator[() => Unit](
      () => { versioned(of, "k", "better", 6); versioned(of, "j", "worse", 1) },
      () => { versioned(of, "k", "best", 7); versioned(of, "k", "worse again", 2) },
      () => write(of, "k", null, headers = Seq(number(7)))
    )
    val seams = RepairSeams(copying = () => if (gaps.hasNext) gaps.next()())
    val done = compaction(of, seams = seams).repair()
    val kept = last(brokers.read(of))
    assert(kept((0, "k")).value == null && new String(kept((0, "j")).value) == "winner")
    assert(!gaps.hasNext && wrong(of, Version, done).isEmpty)
  }

  /** 50 keys, written in any order, while the repair runs too. */
  private def history(seed: Int, rule: VersionRule, seams: RepairSeams => RepairSeams) = {
    val dice = new Random(seed)
    val of = topic(s"history-${rule.name.replace(' ', '-')}-$seed")
    val start = System.currentTimeMillis()
    def some(count: Int, late: Boolean): Unit = {
      val sent = Seq.fill(count) {
        val versions = Seq.fill(2)(number(dice.between(-5, 20).toLong))
        val headers = Seq(Nil, Seq("short".getBytes), versions.take(1), versions)(dice.nextInt(4))
        val record = new ProducerRecord(
          of,
          Int.box(dice.nextInt(4)),
          Long.box(start - dice.nextInt(100)),
          s"key-${dice.nextInt(50)}".getBytes,
          if (dice.nextInt(8) == 0) null else s"${dice.nextInt(1000)}".getBytes
        )
        headers.foreach(record.headers.add("version", _))
        record.headers.add("id", number(ids.incrementAndGet()))
        if (late) record.headers.add("late", Array.emptyByteArray)
        producer.send(record)
      }
      sent.foreach(_.get())
    }
    some(400, late = false)
    val own = RepairSeams(
      chunkKeys = 1 + dice.nextInt(40),
      copying = () => if (dice.nextInt(3) > 0) some(1 + dice.nextInt(10), late = true)
    )
    val done = compaction(of, rule, seams(own)).repair()
    val left = wrong(of, rule, done)
    brokers.deleteTopic(of)
    left
  }

  for (rule <- Seq(Version, VersionRule.Timestamp))
    test(s"1,000 keys in any order, with producers that go on: by ${rule.name}") {
      for (seed <- 1 to 20) assert(history(seed, rule, s => s).isEmpty, s"seed $seed")
    }

  test("planted: a repair that does not look behind its copies buries better records") {
    val blind = (s: RepairSeams) => s.copy(sees = _.headers.lastHeader("late") == null)
    assert((1 to 5).exists(seed => history(seed, Version, blind).nonEmpty))
  }

  test("an open transaction holds a repair back until it ends, and its rows count") {
    val of = topic("transaction")
    versioned(of, "k", "winner", 5)
    versioned(of, "k", "loser", 4)
    val clients = KafkaClients.of(settings)
    Using.resource(clients.producer("compact-transaction")) { transaction =>
      transaction.initTransactions()
      var isBegun = false
      val seams = RepairSeams(copying =
        () =>
          if (!isBegun) {
            isBegun = true
            transaction.beginTransaction()
            val record = new ProducerRecord(of, Int.box(0), "k".getBytes, "committed".getBytes)
            record.headers.add("version", number(9))
            transaction.send(record).get(): Unit
          }
      )
      var isCommitted = false
      // The copy lies behind the transaction: a pass without an end shows that the repair waits for it.
      val listener = new CompactionListener {
        override def scanned(records: Long, ahead: Long): Unit =
          if (isBegun && ahead > 0 && !isCommitted) {
            isCommitted = true
            transaction.commitTransaction()
          }
      }
      val done = compaction(of, seams = seams, progress = listener).repair()
      assert(isCommitted && done.appended == 2)
    }
    assert(new String(last(brokers.read(of))((0, "k")).value) == "committed")
  }

  /** Listens, and does nothing. */
  private class CompactionListener extends CompactionProgress {
    override def scanned(records: Long, ahead: Long): Unit = ()
    override def repaired(appended: Long, left: Long): Unit = ()
    override def said(line: String): Unit = ()
    override def isStopped: Boolean = false
  }

  test("somebody says stop: what is left is told, and nothing is buried") {
    val of = topic("stop")
    (1 to 10).foreach { n =>
      versioned(of, s"key-$n", "winner", 5)
      versioned(of, s"key-$n", "loser", 4)
    }
    var chunks = 0
    val seams = RepairSeams(
      chunkKeys = 2,
      copying = () => {
        chunks += 1
        if (chunks == 2) versioned(of, "key-3", "better", 6)
      }
    )
    val listener = new CompactionListener {
      override def isStopped: Boolean = chunks >= 2
    }
    val done = compaction(of, seams = seams, progress = listener).repair()
    assert(done.left == 6)
    assert(new String(last(brokers.read(of))((0, "key-3")).value) == "better")
    assert(compaction(of).repair().appended == 6)
  }

  test("a lag that is raised is put back, whether the topic had one of its own or not") {
    for (
      (name, config) <- Seq("own" -> Map("min.compaction.lag.ms" -> "77"), "default" -> Map.empty)
    ) {
      val of = topic(s"lag-$name", Map("cleanup.policy" -> "compact") ++ config)
      versioned(of, "k", "winner", 5)
      versioned(of, "k", "loser", 4)
      val before = lagOf(of)
      var during = before
      val seams = RepairSeams(copying = () => during = lagOf(of))
      val refused = intercept[SinkException.RefusedSetting](compaction(of).repair())
      assert(refused.remedy.contains("--set-lag") && refused.remedy.contains(of))
      val done = compaction(of, holds = true, seams = seams).repair()
      assert(during._1.toLong > System.currentTimeMillis() && lagOf(of) == before)
      assert(done.putBackMs.map(_.toString).contains(before._1))
    }
  }

  test("after a repair that died the lag stays, and the next one puts it back") {
    val of = topic("died", Map("cleanup.policy" -> "compact", "min.compaction.lag.ms" -> "42"))
    versioned(of, "k", "winner", 5)
    versioned(of, "k", "loser", 4)
    val dies = RepairSeams(copying = () => {
      versioned(of, "k", "better", 6)
      throw new IllegalStateException("killed")
    })
    intercept[IllegalStateException](compaction(of, holds = true, seams = dies).repair())
    assert(lagOf(of)._1.toLong > System.currentTimeMillis())
    assert(compaction(of, holds = true).repair().putBackMs.contains(42L))
    assert(lagOf(of) == ("42", true))
    assert(new String(last(brokers.read(of))((0, "k")).value) == "better")
  }

  test("two repairs with a raised lag: the first that ends tells the other") {
    val of = topic("two", Map("cleanup.policy" -> "compact"))
    versioned(of, "k", "winner", 5)
    versioned(of, "k", "loser", 4)
    val seams = RepairSeams(copying = () => compaction(of, holds = true).repair(): Unit)
    val e =
      intercept[SinkException.FailedWrite](compaction(of, holds = true, seams = seams).repair())
    assert(e.reason.contains("another repair"))
  }

  test("a short lag is enough where the brokers set timestamps, or their lateness is known") {
    val tenMinutes = "600000"
    val config = Map("cleanup.policy" -> "compact", "min.compaction.lag.ms" -> tenMinutes)
    val late = topic("append-time", config + ("message.timestamp.type" -> "LogAppendTime"))
    val own = topic("create-time", config)
    Seq(late, own).foreach { of =>
      versioned(of, "k", "winner", 5)
      versioned(of, "k", "loser", 4)
    }
    assert(compaction(late).repair().appended == 1)
    intercept[SinkException.RefusedSetting](compaction(own).repair())
    intercept[SinkException.RefusedSetting](compaction(own, lateness = Some(1)).repair())
    assert(compaction(own, lateness = Some(0)).repair().appended == 1)
    val e = intercept[SinkException.RefusedSetting](compaction(own).requireContinuous())
    assert(e.remedy.contains("--lateness"))
    compaction(own, lateness = Some(0)).requireContinuous()
  }

  test("a repair that stood still for longer than the lag says what may have happened") {
    val of = topic("still", Map("cleanup.policy" -> "compact", "min.compaction.lag.ms" -> "600000"))
    versioned(of, "k", "winner", 5)
    versioned(of, "k", "loser", 4)
    val moved = new ManualClock
    val clock = new Clock {
      override def nanos(): Long = moved.nanos()
      override def epochMs(): Long = Clock.system.epochMs()
    }
    val seams = RepairSeams(copying = () => moved.advanceMs(600001))
    val e = intercept[SinkException.FailedWrite](
      compaction(of, lateness = Some(0), seams = seams, clock = clock).repair()
    )
    assert(e.reason.contains("stood still"))
  }

  test("topics that cannot be repaired are refused by name, before anything is written") {
    val limits = Seq(
      ("deletes", Map("cleanup.policy" -> "delete"), "cleanup.policy is 'delete'"),
      (
        "old",
        Map("cleanup.policy" -> "compact,delete", "retention.ms" -> "3600000"),
        "above 3600000 (retention.ms)"
      ),
      (
        "times",
        Map("message.timestamp.before.max.ms" -> "7200000"),
        "message.timestamp.before.max.ms"
      )
    )
    for ((name, config, reason) <- limits) {
      val of = topic(s"refused-$name", Held)
      val old = System.currentTimeMillis() - 24L * 3600 * 1000
      write(of, "k", "winner", timestampMs = Some(old), headers = Seq(number(5)))
      versioned(of, "k", "loser", 4)
      config.foreach { case (key, value) => configure(of, key, value) }
      val before = lagOf(of)
      for (holds <- Seq(false, true)) {
        val e = intercept[SinkException.RefusedSetting](compaction(of, holds = holds).repair())
        assert(e.reason.contains(reason))
      }
      assert(brokers.read(of).size == 2 && lagOf(of) == before)
    }
    val late = topic("refused-late", Held + ("message.timestamp.type" -> "LogAppendTime"))
    val e =
      intercept[SinkException.RefusedSetting](compaction(late, VersionRule.Timestamp).repair())
    assert(e.reason.contains("LogAppendTime"))
    val absent = intercept[SinkException.RefusedSetting](compaction("compact-nowhere").dryRun())
    assert(absent.reason.contains("not there"))
    intercept[SinkException.RefusedSetting](compaction("__transaction_state").repair())
    val decisions =
      intercept[SinkException.RefusedSetting](compaction(settings.commitTopic).repair())
    assert(decisions.reason.contains("decisions"))
    val bounded = topic(
      "refused-bounded",
      Map("cleanup.policy" -> "compact", "max.compaction.lag.ms" -> "1000")
    )
    val most = intercept[SinkException.RefusedSetting](compaction(bounded, holds = true).repair())
    assert(most.reason.contains("max.compaction.lag.ms is 1000"))
  }

  test("a log that begins later than it did is read anew from there") {
    val of = topic(
      "begins-later",
      Held ++ Map("cleanup.policy" -> "compact,delete", "retention.ms" -> "-1")
    )
    Seq("k", "m").foreach { key =>
      versioned(of, key, "winner", 5)
      versioned(of, key, "loser", 4)
    }
    var isCut = false
    val seams = RepairSeams(
      chunkKeys = 1,
      copying = () =>
        if (!isCut) {
          isCut = true
          // All but the last record; the winner of `k` is about to be copied, that of `m` is gone.
          val first = Map(new TopicPartition(of, 0) -> RecordsToDelete.beforeOffset(3))
          brokers.admin.deleteRecords(first.asJava).all().get(): Unit
        }
    )
    val done = compaction(of, seams = seams).repair()
    assert(isCut && done.left == 0)
    val kept = last(brokers.read(of)).view.mapValues(r => new String(r.value)).toMap
    assert(kept == Map((0, "k") -> "winner", (0, "m") -> "loser"))
  }

  test("the table of keys is removed, also after a failure") {
    val scratch = Files.createTempDirectory("keys")
    val of = topic("scratch")
    versioned(of, "k", "winner", 5)
    versioned(of, "k", "loser", 4)
    def run(seams: RepairSeams) = new TopicCompaction(
      settings,
      CompactionSettings(of, Version, scratch = Some(scratch)),
      CompactionProgress.none,
      KafkaClients.of(settings),
      Clock.system,
      seams
    ).repair()
    val broken = RepairSeams(copying = () => throw new IllegalStateException("broken"))
    intercept[IllegalStateException](run(broken))
    run(RepairSeams(copying = () => assert(Files.list(scratch).count() == 1)))
    assert(Files.list(scratch).count() == 0)
  }
}
