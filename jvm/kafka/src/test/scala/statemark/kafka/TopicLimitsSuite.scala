package statemark.kafka

import java.nio.charset.StandardCharsets.UTF_8
import org.apache.kafka.clients.admin.{AlterConfigOp, ConfigEntry, RecordsToDelete}
import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.config.ConfigResource
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import statemark.common.Clock
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkPhase}
import statemark.kafka.decision.{BatchOrigin, BatchStart, LastDecision, Outcome}
import statemark.kafka.driver.BatchPlan
import statemark.kafka.executor.{CommitAnswer, CommitOrder, CommitOrders, RefusedRows}
import statemark.kafka.log.{CommitTopic, ReopenedRecord}
import statemark.kafka.rows.TransactionName
import statemark.kafka.sim._

/** What topics do not take, and what becomes of it. */
class TopicLimitsSuite extends AnyFunSuite with SingleRows {
  override def prefix = "limits"

  private val hourMs = 3600000L

  private def timed(topic: String, atMs: Long): Row =
    new ProducerRecord(topic, Int.box(0), Long.box(atMs), "key".getBytes(UTF_8), Array[Byte](1))

  private def unkeyed(topic: String): Row = new ProducerRecord(
    topic,
    Int.box(0),
    Option.empty[Array[Byte]].orNull,
    "value".getBytes(UTF_8)
  )

  test(
    "refusedRowsTopic: rows without a key that a topic needs, and of times that it does not take"
  ) {
    val compacted = topic(
      "needs-key",
      Map("cleanup.policy" -> "compact,delete", "min.compaction.lag.ms" -> hourMs.toString)
    )
    val limits = Map(
      "message.timestamp.before.max.ms" -> (24 * hourMs).toString,
      "message.timestamp.after.max.ms" -> hourMs.toString
    )
    val (name, other) = (topic("recent", limits), topic("recent-refused", limits))
    val late = topic("late", limits + ("message.timestamp.type" -> "LogAppendTime"))
    val now = Clock.system.epochMs()
    val (old, ahead) = (now - 48 * hourMs, now + 2 * hourMs)
    val options = Map("refusedRowsTopic" -> other)
    running(new Simulation(brokers, name, new Deaths, options = options)) { s =>
      val figures = write(
        s,
        0,
        timed(name, now - hourMs),
        timed(name, old),
        timed(name, ahead),
        timed(late, old),
        unkeyed(name),
        unkeyed(compacted),
        timed(compacted, now)
      )
      assert(figures.rows == 7 && figures.refusedRows == 3)
      Conditions.awaitMarkers(brokers, s.identity)
      assert(brokers.read(name).size == 2 && brokers.read(late).size == 1)
      assert(brokers.read(compacted).size == 1)
      val told = brokers.read(other).map(headers)
      assert(told.map(_(RefusedRows.Reason)).sorted == Vector("no-key", "wrong-time", "wrong-time"))
      // The other topic does not take the time either.
      assert(told.flatMap(_.get(RefusedRows.Timestamp)).toSet == Set(old.toString, ahead.toString))
    }
  }

  test("rows that a topic never takes fail by name, also behind others of their batch") {
    val compacted = topic(
      "without-key",
      Map("cleanup.policy" -> "compact", "min.compaction.lag.ms" -> hourMs.toString)
    )
    val name = topic("without-time", Map("message.timestamp.before.max.ms" -> hourMs.toString))
    val now = Clock.system.epochMs()
    val old = now - 2 * hourMs
    val cases = Seq(
      ("key", Seq(timed(compacted, now), unkeyed(compacted), unkeyed(compacted)), compacted),
      ("time", Seq(timed(name, now), timed(name, old), timed(name, old - 1)), name)
    )
    val together = Map("kafka.linger.ms" -> "500", "allowShortCompactionLag" -> "true")
    for ((what, rows, where) <- cases) {
      val options = together + ("sinkName" -> what)
      running(new Simulation(brokers, where, new Deaths, options = options)) { s =>
        val e = intercept[SinkException.UnsendableRow](write(s, 0, rows: _*))
        assert(!e.isRetryable && e.remedy.contains("refusedRowsTopic"), e)
        assert(e.values("topic") == where && e.values("partition") == "0", e)
        if (what == "time")
          assert(e.values("timestamp") == old.toString && e.problem.contains("time"))
        else assert(!e.values.contains("key") && e.problem.contains("no key"), e)
      }
      // As the remedy says.
      val elsewhere = options + ("refusedRowsTopic" -> topic(s"elsewhere-$what"))
      running(new Simulation(brokers, where, new Deaths, options = elsewhere)) { s =>
        assert(write(s, 0, rows: _*).refusedRows == 2)
      }
    }
  }

  test("tasks whose rows went together name the row that was refused, whoever sent it") {
    for (isFirst <- Seq(true, false)) {
      val compacted = topic(
        s"together-$isFirst",
        Map("cleanup.policy" -> "compact", "min.compaction.lag.ms" -> hourMs.toString)
      )
      val together = Map("kafka.linger.ms" -> "500")
      running(new Simulation(brokers, compacted, new Deaths, options = together)) { s =>
        val BatchPlan.Write(spec) = s.coordinator.begin(s.start(0)): @unchecked
        val executor = new SimExecutor("900", s.settings, new Deaths)
        s.executors = Vector(executor)
        val writers = Vector(0, 1).map(n => executor.sinks.writer(spec, executor.id, n, n.toLong))
        val rows = Vector(timed(compacted, Clock.system.epochMs()), unkeyed(compacted))
        val order = if (isFirst) Seq(1, 0) else Seq(0, 1)
        order.foreach(n => writers(n).write(rows(n)))
        for (writer <- writers) {
          val e = intercept[SinkException.UnsendableRow](writer.commit())
          assert(e.values ==
            Map("topic" -> compacted, "partition" -> "0", "bytes" -> "5", "task" -> "1"))
        }
      }
    }
  }

  test("a topic of refused rows may not be compacted") {
    val other = topic("compacted-refused", Map("cleanup.policy" -> "compact"))
    val options = Map("refusedRowsTopic" -> other)
    running(new Simulation(brokers, topic("with-compacted"), new Deaths, options = options)) { s =>
      val e = intercept[SinkException.RefusedSetting](s.attemptBatch(0))
      assert(e.values == Map("option" -> "refusedRowsTopic", "value" -> other))
    }
  }

  private def set(topic: String, name: String, value: String): Unit = {
    val resource = new ConfigResource(ConfigResource.Type.TOPIC, topic)
    val change = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)
    brokers.admin.incrementalAlterConfigs(
      Map(
        resource -> java.util.List.of(change).asInstanceOf[java.util.Collection[AlterConfigOp]]
      ).asJava
    ).all().get(): Unit
    def now = brokers.admin.describeConfigs(java.util.List.of(resource)).all().get()
      .get(resource).get(name).value
    while (now != value) Thread.onSpinWait()
  }

  test("a commit topic that takes no decision is refused at the start, before a row is sent") {
    for (most <- Seq("1500", "400000"))
      running(new Simulation(brokers, topic(s"small-$most"), new Deaths)) { s =>
        s.runBatch()
        set(s.settings.commitTopic, "max.message.bytes", most)
        s.restart()
        val e = intercept[SinkException.UnfitCluster](s.attemptBatch(1))
        assert(e.values("max.message.bytes") == most && !e.isRetryable)
        set(s.settings.commitTopic, "max.message.bytes", "524288")
        s.runBatch()
        judged(s)
      }
    val large = Map("kafka.batch.size" -> "600000")
    running(new Simulation(brokers, topic("small-batch"), new Deaths, options = large)) { s =>
      s.runBatch()
      set(s.settings.commitTopic, "max.message.bytes", "524288")
      s.restart()
      val e = intercept[SinkException.UnfitCluster](s.attemptBatch(1))
      assert(e.values("kafka.batch.size") == "600000" && e.reason.contains("up to 600000 bytes"))
    }
  }

  test("where the user may not see its limits, a commit topic that takes no decision is named") {
    running(new Simulation(brokers, topic("few-bytes"), new Deaths)) { s =>
      s.runBatch()
      // Behind the checks of a run.
      set(s.settings.commitTopic, "max.message.bytes", "100")
      val e = intercept[SinkException.UnfitCluster](s.attemptBatch(1))
      assert(!e.isRetryable && e.reason.startsWith("it was not committed"), e)
      assert(e.values("topic") == s.settings.commitTopic, e)
      set(s.settings.commitTopic, "max.message.bytes", "1048588")
      s.restart()
      s.runBatch()
      judged(s)
    }
  }

  test("an output topic whose limit was lowered behind a decision fails by name, and goes on") {
    val name = topic("lowered")
    running(new Simulation(brokers, name, new Deaths)) { s =>
      val start = BatchStart(0, "q", Some(Simulation.fingerprint(0)), isRerun = false)
      val BatchPlan.Write(spec) = s.coordinator.begin(start): @unchecked
      val executor = new SimExecutor("900", s.settings, new Deaths)
      val writer = executor.sinks.writer(spec, executor.id, 0, 0)
      writer.write(row(name, new Array(40000), Some(0)))
      val message = writer.commit()
      // What it has sent has to be copied.
      executor.kill()
      set(name, "max.message.bytes", "20000")
      val e = intercept[SinkException.UnfitCluster](s.coordinator.commit(0, Seq(message)))
      assert(e.reason.startsWith("it was not committed") && e.values("topic") == name, e)
      s.restart()
      intercept[SinkException.UnfitCluster](s.coordinator.begin(start))
      set(name, "max.message.bytes", "1048588")
      s.restart()
      s.coordinator.begin(start).asInstanceOf[BatchPlan.Discard]: Unit
      Conditions.awaitMarkers(brokers, s.identity)
      assert(brokers.read(name).map(_.value.length) == Vector(40000))
    }
  }

  test(
    "a row for the commit topic of another sink is refused, also where it is read back as a decision"
  ) {
    running(new Simulation(brokers, topic("victim"), new Deaths)) { victim =>
      victim.runBatch()
      val theirs = victim.settings.commitTopic
      val forged = ReopenedRecord(
        victim.identity,
        LastDecision.Reopened(7, 0, None, 1, BatchOrigin.Unplanned, Vector.empty, None, None)
      )
      val place = CommitTopic.partitionOf(victim.settings, victim.identity)
      def attack() = CommitTopic.record(place, forged)
      val lax = Map("allowShortCompactionLag" -> "true")
      running(new Simulation(brokers, topic("attacker"), new Deaths, options = lax)) { s =>
        val e = intercept[SinkException.RefusedSetting](write(s, 0, attack()))
        assert(e.values == Map("topic" -> theirs) && e.reason.contains("decisions"), e)
        // What it has sent there would hold its readers back.
        s.recover()
      }
      val other = topic("attacks")
      val options = lax + ("refusedRowsTopic" -> other)
      running(new Simulation(brokers, topic("told"), new Deaths, options = options)) { s =>
        assert(write(s, 0, attack(), row(s.topic, "v".getBytes(UTF_8))).refusedRows == 1)
        assert(write(s, 1, attack()).refusedRows == 1)
        Conditions.awaitMarkers(brokers, s.identity)
        assert(brokers.read(other).map(headers(_)(RefusedRows.Reason)).toSet == Set("commit-topic"))
      }
      // An option can name it as well.
      running(new Simulation(brokers, theirs, new Deaths, options = lax)) { s =>
        assert(intercept[SinkException.RefusedSetting](s.attemptBatch(0)).values("topic") == theirs)
      }
      victim.restart()
      victim.runBatch()
      judged(victim)
      assert(victim.reports.last.decided.contains(0L))
    }
  }

  test("a compacted topic of as many partitions, with keys of its own, is no commit topic") {
    val compacted = Map("cleanup.policy" -> "compact", "min.compaction.lag.ms" -> hourMs.toString)
    val name = brokers.topic("limits-like-commits", partitions = 17, config = compacted)
    running(new Simulation(brokers, name, new Deaths)) { s =>
      s.runBatches(2)
      s.restart()
      s.runBatch()
      judged(s)
    }
  }

  test(
    "what a dead executor has open stays while a failed batch may need it, where a cleaner could take it"
  ) {
    for ((isCompacted, isDecided) <- Seq((true, true), (false, true), (true, false))) {
      val compacted = Map("cleanup.policy" -> "compact", "min.compaction.lag.ms" -> hourMs.toString)
      val config = if (isCompacted) compacted else Map.empty[String, String]
      lazy val simulation: Simulation = new Simulation(
        brokers,
        topic(s"lost-$isCompacted-$isDecided", config),
        new Deaths,
        messages = written => {
          if (simulation.reports.size == 1) simulation.killExecutors()
          if (simulation.reports.size == 1 && !isDecided)
            throw new IllegalStateException("The driver fails before its decision")
          written
        },
        orders = real =>
          new CommitOrders {
            override def commit(orders: Seq[CommitOrder]): Map[TransactionName, CommitAnswer] = {
              if (simulation.reports.size == 1)
                throw new IllegalStateException("The driver fails behind its decision")
              real.commit(orders)
            }
            override def abort(identity: SinkIdentity, batch: Long): Unit =
              real.abort(identity, batch)
          }
      )
      running(simulation) { s =>
        intercept[Exception](s.attemptBatch(0))
        assert(Conditions.ongoing(brokers, s.identity).nonEmpty)
        s.coordinator.fenceExecutors(s.executors.map(_.id).toSet)
        assert(Conditions.ongoing(brokers, s.identity).nonEmpty == (isCompacted && isDecided))
        s.runBatch()
        judged(s)
        assert(s.reports.last.completion.exists(_.copiedRows > 0) == isDecided)
      }
    }
  }

  test("local mode: rows that a cleaner takes before they are copied are written again") {
    val compacted = Map("cleanup.policy" -> "compact,delete", "min.compaction.lag.ms" -> "0")
    val lax = Map("allowShortCompactionLag" -> "true")
    lazy val simulation: Simulation = new Simulation(
      brokers,
      topic("local-cleaned", compacted),
      new Deaths().instead(SinkPhase.DecisionDurable)(if (simulation.reports.size == 1) clean()),
      options = lax,
      isLocal = true,
      twinOneIn = 1
    )
    // As the cleaner does with rows of transactions that were aborted; it leaves the last segment alone.
    def clean(): Unit = {
      val places = (0 until 3).map(n =>
        new TopicPartition(simulation.topic, n) -> RecordsToDelete.beforeOffset(-1)
      )
      brokers.admin.deleteRecords(places.toMap.asJava).all().get(): Unit
    }
    running(simulation) { s =>
      s.runBatches(2)
      judged(s)
      assert(s.reports.map(_.outcome) == Vector(Outcome.Undecided, Outcome.Lost))
    }
  }
}
