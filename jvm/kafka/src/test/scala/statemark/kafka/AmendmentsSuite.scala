package statemark.kafka

import java.time.Duration
import org.apache.kafka.clients.admin.{NewPartitions, NewTopic}
import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.errors.TimeoutException
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import statemark.kafka.clients.{Fencing, KafkaClients}
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkPhase}
import statemark.kafka.decision.BatchStart
import statemark.kafka.driver.{BatchPlan, DriverSeams, LogRows, UncopiedRows}
import statemark.kafka.executor.{CommitAnswer, CommitOrder, CommitOrders}
import statemark.kafka.log.{CommitTopic, IdentityRecord, TopicCommitLog}
import statemark.kafka.rows.TransactionName
import statemark.kafka.sim._

/** What a review found that the first design did not see, each by its number. K12, K13 and parts of others need no broker
  * and are in the suites of what they are about; K1 is row 7 in [[FailureRowsSuite]].
  */
class AmendmentsSuite extends AnyFunSuite with Simulated {
  override def prefix = "k"

  private def version(number: Long, queryId: String) =
    BatchStart(number, queryId, None, isRerun = false, isWrite = true)

  /** Writes a `txnVersion`; whether it was written. */
  private def write(s: Simulation, start: BatchStart, nonce: Long): Boolean = {
    val coordinator = s.coordinator
    coordinator.begin(start) match {
      case BatchPlan.Discard(_, _) => false
      case BatchPlan.Write(spec) =>
        coordinator.commit(start.batch, s.runTasks(spec, Try.of(start.batch, nonce, 6)))
        true
    }
  }

  test("K2: a second write of one txnVersion in one run is an error, and in the next run a skip") {
    running(new Simulation(brokers, topic("2"), new Deaths)) { s =>
      assert(write(s, version(0, "q"), 1))
      val e = intercept[SinkException.WrongHistory](write(s, version(0, "q"), 2))
      assert(e.getMessage.contains("sinkName"))
      s.restart()
      assert(!write(s, version(0, "q"), 3))
      s.checkpoint.committed = Set(0)
      judged(s)
    }
  }

  test("K3: a txnAppId that another query used before fails by name") {
    running(new Simulation(brokers, topic("3"), new Deaths)) { s =>
      assert(write(s, version(5, "first"), 1))
      s.restart()
      val e = intercept[SinkException.WrongHistory](write(s, version(0, "second"), 2))
      assert(e.getMessage.contains("first"))
      assert(!write(s, version(5, "first"), 3))
      assert(write(s, version(6, "second"), 4), "what is newer than all that was decided")
      s.checkpoint.committed = Set(5, 6)
      judged(s)
    }
  }

  test(
    "who was superseded and starts again as it was does not take the other's batch for its own"
  ) {
    val name = topic("3-superseded")
    def sink() = new Simulation(brokers, name, new Deaths, queryId = "q-superseded")
    def of(batch: Long, offset: Long) =
      version(batch, "q-superseded").copy(planned = Some(Simulation.fingerprint(offset)))
    running(sink()) { one =>
      running(sink()) { copy =>
        assert(write(one, of(0, 0), 1))
        copy.checkpoint.isMarked = true
        assert(write(copy, of(1, 5), 2))
        intercept[SinkException.Superseded](write(one, of(1, 7), 3))
        copy.restart()
        one.restart()
        val e = intercept[SinkException.WrongHistory](write(one, of(1, 7), 4))
        assert(e.getMessage.contains("Batch 1 is not the one that was decided"))
        one.restart()
        assert(!write(one, of(1, 5), 5), "a batch that runs again")
        one.checkpoint.committed = Set(0, 1)
        judged(one)
      }
    }
  }

  test("K4: a write that failed behind its decision is completed before it is skipped") {
    var fails = true
    lazy val simulation: Simulation = new Simulation(
      brokers,
      topic("4"),
      new Deaths,
      messages = m => m,
      seams = DriverSeams(rows =
        real =>
          new LogRows {
            override private[kafka] def read(transactions: Seq[UncopiedRows]) =
              if (fails) {
                fails = false
                throw new TimeoutException("the copy fails")
              } else real.read(transactions)
          }
      )
    )
    running(simulation) { s =>
      val coordinator = s.coordinator
      val BatchPlan.Write(spec) = coordinator.begin(version(0, "q")): @unchecked
      val written = s.runTasks(spec, Try.of(0, 1, 6))
      s.killExecutor()
      val e = intercept[SinkException](coordinator.commit(0, written))
      assert(e.isRetryable)
      // The user's code catches it and tries again, in the same run.
      assert(!write(s, version(0, "q"), 2))
      assert(coordinator.lastRecovery.flatMap(_.completion).exists(_.copiedRows > 0))
      s.checkpoint.committed = Set(0)
      judged(s)
    }
  }

  for (wrong <- Seq(CommitAnswer.Aborted, CommitAnswer.Unknown))
    test(s"K5: executors have committed and answer $wrong: nothing is copied") {
      running(new Simulation(
        brokers,
        topic(s"5-$wrong"),
        new Deaths,
        orders = real =>
          new CommitOrders {
            override def commit(orders: Seq[CommitOrder]): Map[TransactionName, CommitAnswer] =
              real.commit(orders).view.mapValues(_ => wrong).toMap
            override def abort(identity: SinkIdentity, batch: Long): Unit =
              real.abort(identity, batch)
          }
      )) { s =>
        s.runBatches(2)
        judged(s)
        assert(copied(s) == 0)
      }
    }

  test("K6: partitions that are added to the commit topic change nothing") {
    running(new Simulation(brokers, topic("6"), new Deaths().at(SinkPhase.BeforeCommitLog, 2))) {
      s =>
        s.runBatch()
        intercept[Died](s.attemptBatch(1))
        s.killDriver()
        brokers.admin.createPartitions(
          Map(s.settings.commitTopic -> NewPartitions.increaseTo(32)).asJava
        ).all().get()
        s.runBatches(2)
        judged(s)
        assert(s.figures.count(_.isDiscarded) == 1)
    }
  }

  test("K6: records that lie in another partition are found before a sink counts as new") {
    running(new Simulation(brokers, topic("6-elsewhere"), new Deaths)) { s =>
      s.runBatch()
      s.restart()
      val records = brokers.read(s.settings.commitTopic)
      brokers.deleteTopic(s.settings.commitTopic)
      brokers.topic(s.settings.commitTopic, partitions = 16, Map("cleanup.policy" -> "compact"))
      val clients = new ProcessClients(s.settings)
      val producer = clients.producer("the-copier")
      producer.initTransactions()
      producer.beginTransaction()
      records.foreach { r =>
        val other = (r.partition + 1) % 16
        producer.send(
          new ProducerRecord(
            s.settings.commitTopic,
            other,
            r.key,
            r.value
          )
        )
      }
      producer.commitTransaction()
      clients.kill()
      val e = intercept[SinkException.WrongHistory](s.attemptBatch(1))
      assert(e.getMessage.contains("another partition"))
    }
  }

  test("K7: a driver with another prefix fences the one before, which is cut off and still lives") {
    val name = topic("7")
    val deaths = new Deaths
    val first = new Simulation(brokers, name, deaths, queryId = "q7")
    val second = new Simulation(
      brokers,
      name,
      deaths,
      queryId = "q7",
      options = Map("transactionalIdPrefix" -> "other.prefix")
    )
    running(first) { old =>
      running(second) { young =>
        old.runBatch()
        young.checkpoint.committed = Set(0)
        young.checkpoint.isMarked = true
        val BatchPlan.Write(spec) = old.coordinator.begin(
          BatchStart(1, "q7", Some(Simulation.fingerprint(1)), isRerun = false)
        ): @unchecked
        val written = old.runTasks(spec, Try.of(1, 100, 6))
        young.runBatch()
        intercept[SinkException.Superseded](old.coordinator.commit(1, written))
        judged(young)
        assert(young.reports.last.fenced.size == 2, "executors of the other prefix")
      }
    }
  }

  test("K8: a checkpoint with a marker whose sink the commit topic does not know fails by name") {
    running(new Simulation(brokers, topic("8"), new Deaths)) { s =>
      s.checkpoint.isMarked = true
      val e = intercept[SinkException.WrongHistory](s.attemptBatch(0))
      assert(e.getMessage.contains("commitTopic"))
    }
  }

  test("K8: a crash behind the identity record leaves a marker, or none, and no error") {
    running(new Simulation(brokers, topic("8-crash"), new Deaths().at(SinkPhase.RunBegun))) { s =>
      intercept[Died](s.attemptBatch(0))
      assert(s.checkpoint.isMarked)
      s.killDriver()
      s.checkpoint.isMarked = false
      s.runBatches(2)
      judged(s)
      assert(s.checkpoint.isMarked)
    }
  }

  test("K9: a long task writes in several transactions, and no timeout ends it") {
    val clock = new ManualClock
    running(new Simulation(
      brokers,
      topic("9"),
      new Deaths,
      executorCount = 1,
      timer = NoTimer,
      executorClock = clock
    )) { s =>
      val coordinator = s.coordinator
      val start = BatchStart(0, "q", Some(Simulation.fingerprint(0)), isRerun = false)
      val BatchPlan.Write(spec) = coordinator.begin(start): @unchecked
      val executor = new SimExecutor("500", s.settings, new Deaths, clock = clock, timer = NoTimer)
      val tried = Try(0, 1, Vector(9))
      val writer = executor.sinks.writer(spec, "500", 0, 1)
      (0 until 9).foreach { at =>
        writer.write(tried.row(s.topic, 0, 1, at))
        if (at % 3 == 2) clock.advanceMs(s.settings.transactionTimeoutMs / 2 + 1)
      }
      val message = writer.commit()
      assert(message.rows.size == 3)
      val figures = coordinator.commit(0, Seq(message))
      assert(figures.copiedRows == 9, "the executor is not one of those that orders reach")
      s.checkpoint.committed = Set(0)
      judged(s)
      executor.kill()
    }
  }

  test("rows of an attempt keep their order where an earlier transaction of it is copied") {
    running(new Simulation(brokers, topic("order"), new Deaths, executorCount = 1)) { s =>
      val coordinator = s.coordinator
      val start = BatchStart(0, "q", Some(Simulation.fingerprint(0)), isRerun = false)
      val BatchPlan.Write(spec) = coordinator.begin(start): @unchecked
      val executor = new SimExecutor("1", s.settings, new Deaths)
      s.executors = Vector(executor)
      val tried = Try(0, 1, Vector(6))
      val failing = executor.sinks.writer(spec, "1", 1, 1)
      val writer = executor.sinks.writer(spec, "1", 0, 2)
      (0 until 3).foreach(at => writer.write(inOrder(s.topic, tried.row(s.topic, 0, 2, at))))
      failing.write(tried.row(s.topic, 1, 1, 0))
      failing.abort()
      (3 until 6).foreach(at => writer.write(inOrder(s.topic, tried.row(s.topic, 0, 2, at))))
      val message = writer.commit()
      assert(message.rows.size == 2)
      assert(coordinator.commit(0, Seq(message)).copiedRows == 6)
      s.checkpoint.committed = Set(0)
      judged(s)
    }
  }

  /** To one partition. */
  private def inOrder(topic: String, record: ProducerRecord[Array[Byte], Array[Byte]]) =
    new ProducerRecord(topic, 0, record.key, record.value)

  test("K9: a copy goes in pieces, and the next driver goes on behind the last") {
    val deaths = new Deaths
    lazy val simulation: Simulation = new Simulation(
      brokers,
      topic("9-pieces"),
      deaths,
      seams = DriverSeams(copyBytes = 64),
      messages = m => {
        simulation.killExecutor()
        m
      }
    )
    running(simulation) { s =>
      deaths.at(SinkPhase.CopyCommitted, 2)
      s.runBatches(2)
      judged(s)
      assert(deaths.counts == Map(SinkPhase.CopyCommitted -> 1))
      val again = s.reports.last.completion.map(_.copiedRows).get
      val decided = s.lastTry.map(_ => ()).isDefined
      assert(decided && again > 0)
    }
  }

  test("K10: rows on a compacted topic are kept before their transactions are fenced") {
    val name = topic("10", Map("cleanup.policy" -> "compact", "min.compaction.lag.ms" -> "3600000"))
    val steps = new java.util.concurrent.ConcurrentLinkedQueue[String]
    val seams = DriverSeams(
      rows = real =>
        new LogRows {
          override private[kafka] def read(transactions: Seq[UncopiedRows]) = {
            steps.add("read")
            real.read(transactions)
          }
        },
      fencing = real =>
        new Fencing {
          override def open(identity: SinkIdentity, prefixes: Set[String]) = {
            steps.add("list")
            real.open(identity, prefixes)
          }
          override def fence(ids: Set[String]): Unit = {
            if (ids.nonEmpty) steps.add("fence"): Unit
            real.fence(ids)
          }
        }
    )
    val deaths = new Deaths().at(SinkPhase.DecisionDurable)
    running(new Simulation(brokers, name, deaths, seams = seams)) { s =>
      intercept[Died](s.attemptBatch(0))
      s.killDriver()
      steps.clear()
      s.runBatches(2)
      judged(s)
      assert(steps.asScala.takeWhile(_ != "fence").toSeq == Seq("read", "list"))
    }
  }

  test("K10: a topic that is compacted too soon is refused, unless an option allows it") {
    val name = topic("10-soon", Map("cleanup.policy" -> "compact"))
    running(new Simulation(brokers, name, new Deaths)) { s =>
      val e = intercept[SinkException.RefusedSetting](s.attemptBatch(0))
      assert(e.getMessage.contains("min.compaction.lag.ms"))
    }
    val allowed = Map("allowShortCompactionLag" -> "true", "sinkName" -> "allowed")
    running(new Simulation(brokers, name, new Deaths, options = allowed)) { s =>
      s.runBatch()
      judged(s)
    }
  }

  test("K11: what is known of a write that nobody can repeat is removed when it is done") {
    running(new Simulation(brokers, topic("11"), new Deaths)) { s =>
      assert(write(s, version(0, "q"), 1))
      s.coordinator.forget()
      val last = brokers.read(s.settings.commitTopic).groupBy(r => new String(r.key))
        .view.mapValues(_.last).toMap
      assert(last.nonEmpty && last.values.forall(r => Option(r.value).isEmpty))
      s.checkpoint.committed = Set(0)
      judged(s)
    }
  }

  test("K14: who holds the commit topic back is named") {
    running(new Simulation(brokers, topic("14"), new Deaths)) { s =>
      s.runBatch()
      s.restart()
      val clients = new ProcessClients(s.settings)
      val producer = clients.producer("a-foreign-id")
      producer.initTransactions()
      producer.beginTransaction()
      val place = CommitTopic.partitionOf(s.settings, s.identity)
      val foreign = IdentityRecord(SinkIdentity("foreign", "x"), "q", "d", "p", 1, "", Vector.empty)
      producer.send(CommitTopic.record(place, foreign)).get()
      val clock = new ManualClock
      val log = new TopicCommitLog(
        new KafkaClients {
          private val real = KafkaClients.of(s.settings)
          override def producer(id: String): RowProducer = real.producer(id)
          override def admin() = real.admin()
          override def consumer(committedOnly: Boolean): RowConsumer = {
            clock.advanceMs(s.settings.transactionTimeoutMs + 1)
            real.consumer(committedOnly)
          }
        },
        brokers.admin,
        s.settings,
        new statemark.common.Clock {
          // Each look at the clock is a second later.
          override def nanos(): Long = { clock.advanceMs(1000); clock.nanos() }
          override def epochMs(): Long = clock.epochMs()
        }
      )
      val e = intercept[SinkException.Unavailable](log.read(s.identity))
      assert(e.getMessage.contains("a-foreign-id"))
      producer.close(Duration.ZERO)
    }
  }

  test("the commit topic is checked: policy, and number of partitions") {
    val bad =
      new NewTopic("k-policy", 16, 1: Short).configs(Map("cleanup.policy" -> "delete").asJava)
    val few = new NewTopic("k-few", 4, 1: Short).configs(Map("cleanup.policy" -> "compact").asJava)
    brokers.admin.createTopics(List(bad, few).asJava).all().get()
    val name = topic("commit-topic")
    for (commitTopic <- Seq("k-policy", "k-few"))
      running(new Simulation(
        brokers,
        name,
        new Deaths,
        options = Map("commitTopic" -> commitTopic)
      )) {
        s =>
          val e = intercept[SinkException.UnfitCluster](s.attemptBatch(0))
          assert(e.values("commitTopic") == commitTopic)
      }
  }
}
