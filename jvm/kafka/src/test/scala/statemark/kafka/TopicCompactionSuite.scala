package statemark.kafka

import java.nio.ByteBuffer
import org.apache.kafka.clients.producer.ProducerRecord
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import scala.util.{Random, Using}
import statemark.kafka.clients.KafkaClients
import statemark.kafka.compaction._
import statemark.kafka.conf.SinkException

/** Repairs of topics whose records came in any order, against a plain model of KIP-280. */
class TopicCompactionSuite extends AnyFunSuite with CompactionTopics {

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
        record.headers.add("id", newId())
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

  test("a short lag is enough where the brokers set timestamps, or their lateness is known") {
    val minutes = "1500000"
    val config = Map("cleanup.policy" -> "compact", "min.compaction.lag.ms" -> minutes)
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

}
