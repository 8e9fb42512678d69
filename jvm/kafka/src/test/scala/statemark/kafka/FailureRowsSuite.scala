package statemark.kafka

import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.errors.TimeoutException
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import statemark.kafka.clients.GroupOffsets
import statemark.kafka.conf.{
  SinkException,
  SinkIdentity,
  SinkObserver,
  SinkPhase,
  SinkSettings,
  SinkTransactionalId
}
import statemark.kafka.driver.{BatchPlan, DecisionLog, DriverSeams}
import statemark.kafka.executor.{CommitAnswer, CommitOrder, CommitOrders, TransactionLine}
import statemark.kafka.log.{CommitLog, CommitRecord, CommitState, CommitTopic}
import statemark.kafka.rows.TransactionName
import statemark.kafka.sim._

/** Each row of the failure table of the sink, in its order; row 15 is [[BrokerDeathsSuite]], row 16 [[LostRowsSuite]]. */
class FailureRowsSuite extends AnyFunSuite with Simulated {
  override def prefix = "rows"

  test("batches without a failure are committed by their executors, and nothing is copied") {
    running(new Simulation(brokers, topic("plain"), new Deaths)) { s =>
      s.runBatches(3)
      judged(s)
      assert(copied(s) == 0)
      assert(s.figures.forall(f => f.rows > 0 && f.transactions == 2))
      assert(s.reports.size == 1)
    }
  }

  test("local mode: rows and decision are one transaction") {
    running(new Simulation(brokers, topic("local"), new Deaths, isLocal = true)) { s =>
      s.runBatches(3)
      judged(s)
      assert(copied(s) == 0)
      assert(s.figures.forall(_.transactions == 1))
    }
  }

  for (isLocal <- Seq(false, true)) {
    val where = if (isLocal) ", local mode" else ""
    val suffix = if (isLocal) "-local" else ""

    test(s"row 1: tasks that fail after they sent rows run again$where") {
      running(new Simulation(
        brokers,
        topic(s"1$suffix"),
        new Deaths,
        isLocal = isLocal,
        failedTaskOneIn = 2
      )) { s =>
        s.runBatches(3)
        judged(s)
        assert(copied(s) > 0)
      }
    }

    test(s"row 3: twins of tasks that finish second are left out$where") {
      running(new Simulation(
        brokers,
        topic(s"3$suffix"),
        new Deaths,
        isLocal = isLocal,
        twinOneIn = 2
      )) { s =>
        s.runBatches(3)
        judged(s)
        assert(copied(s) > 0)
      }
    }

    test(s"row 4: the driver dies before the decision$where") {
      dies(SinkPhase.BeforeDecision, s"4$suffix", isLocal)
    }

    test(s"row 4: the driver dies with the decision sent, and not committed$where") {
      dies(SinkPhase.DecisionSent, s"4-sent$suffix", isLocal)
    }

    test(s"row 6: the driver dies between the decision and the orders$where") {
      dies(SinkPhase.DecisionDurable, s"6$suffix", isLocal)
    }

    test(s"row 10: the driver dies before Spark notes the batch$where") {
      dies(SinkPhase.BeforeCommitLog, s"10$suffix", isLocal)
    }
  }

  /** A driver dies in the second of three batches. */
  private def dies(
      phase: SinkPhase,
      name: String,
      isLocal: Boolean = false,
      messages: Simulation => Unit = _ => ()
  ): Unit = {
    val deaths = new Deaths
    lazy val simulation: Simulation = new Simulation(
      brokers,
      topic(name),
      deaths,
      isLocal = isLocal,
      messages = m => {
        messages(simulation)
        m
      }
    )
    running(simulation) { s =>
      s.runBatch()
      deaths.at(phase)
      s.runBatches(2)
      assert(deaths.counts == Map(phase -> 1))
      judged(s)
      assert(s.reports.size == 2)
    }
  }

  test("row 2: an executor dies with finished attempts, before the decision") {
    lazy val simulation: Simulation = new Simulation(
      brokers,
      topic("2"),
      new Deaths,
      messages = m => {
        if (simulation.figures.isEmpty) simulation.killExecutor()
        m
      }
    )
    running(simulation) { s =>
      s.runBatches(2)
      judged(s)
      assert(s.figures.head.copiedRows > 0 && s.figures.head.copiedRows < s.figures.head.rows)
      assert(s.figures.last.copiedRows == 0)
    }
  }

  for (isDurable <- Seq(true, false))
    test(
      s"row 5: the commit of the decision times out, and it is ${if (isDurable) "" else "not "}durable"
    ) {
      var isLate = true
      val decisions = (settings: SinkSettings) => {
        val real = DecisionLog.fenced(settings)
        new DecisionLog {
          override def write(
              line: TransactionLine,
              records: Seq[CommitRecord],
              offsets: GroupOffsets,
              observer: SinkObserver
          ): Unit = {
            if (isDurable || !isLate) real.write(line, records, offsets, observer)
            if (isLate) {
              isLate = false
              throw new TimeoutException("no answer")
            }
          }
        }
      }
      running(new Simulation(
        brokers,
        topic(s"5-$isDurable"),
        new Deaths,
        seams = DriverSeams(decisions = decisions)
      )) { s =>
        s.runBatches(2)
        judged(s)
        assert(s.reports.size == 2)
        assert(s.figures.head.isDiscarded == isDurable)
      }
    }

  test("row 7 and K1: the driver dies between two orders; rows of one try show until it is back") {
    lazy val simulation: Simulation =
      new Simulation(brokers, topic("7"), new Deaths, orders = dyingBetween(() => simulation))
    running(simulation) { s =>
      intercept[Died](s.attemptBatch(0))
      val between = s.judge()
      // How many depends on where the open transaction of the other executor has its first rows.
      assert(between.mixed == 0 && between.duplicated == 0)
      s.killDriver()
      s.runBatches(2)
      judged(s)
      assert(s.reports.last.completion.exists(_.copiedRows > 0))
      assert(s.figures.head.isDiscarded)
    }
  }

  /** The first order of a run is carried out, and then the driver dies. */
  private def dyingBetween(simulation: () => Simulation)(real: CommitOrders): CommitOrders =
    new CommitOrders {
      override def commit(orders: Seq[CommitOrder]): Map[TransactionName, CommitAnswer] =
        if (simulation().reports.size > 1) real.commit(orders)
        else {
          real.commit(orders.take(1))
          throw new Died(SinkPhase.OrdersAnswered)
        }
      override def abort(identity: SinkIdentity, batch: Long): Unit = real.abort(identity, batch)
    }

  for (phase <- Seq(SinkPhase.TokenSent, SinkPhase.TransactionCommitted))
    test(s"row 8: an executor dies inside its commit, at ${phase.name}") {
      val deaths = new Deaths().at(phase)
      running(new Simulation(brokers, topic(s"8-${phase.name}"), deaths)) { s =>
        s.runBatches(2)
        judged(s)
        assert(deaths.counts == Map(phase -> 1))
        assert((copied(s) > 0) == (phase == SinkPhase.TokenSent))
      }
    }

  test("row 8: an executor dies with its token sent, then the driver; the next run ends that") {
    val phases = Set[SinkPhase](SinkPhase.TokenSent, SinkPhase.OrdersAnswered)
    lazy val simulation: Simulation = new Simulation(brokers, topic("8-both"), deaths)
    // The token is in the log as its executor dies, and nothing else is open there.
    lazy val deaths: Deaths = new Deaths(passing =
      phase =>
        if (phase == SinkPhase.TokenSent) {
          val (settings, identity) = (simulation.settings, simulation.identity)
          Conditions.awaitMarkers(brokers, identity)
          Conditions.awaitOpenRecord(brokers, CommitTopic.partitionOf(settings, identity))
        }
    )
    phases.foreach(deaths.at(_))
    running(simulation) { s =>
      s.runBatches(2)
      judged(s)
      assert(deaths.counts.keySet == phases)
      // Not found open would mean that its timeout had ended it.
      assert(s.reports.last.fenced.nonEmpty)
      assert(copied(s) > 0)
    }
  }

  for (
    phase <- Seq(
      SinkPhase.Fenced,
      SinkPhase.CopyOpen,
      SinkPhase.Copied,
      SinkPhase.CopyCommitted
    )
  )
    test(s"row 9: the driver dies inside a copy, at ${phase.name}") {
      dies(
        phase,
        s"9-${phase.name}",
        messages = s => if (s.reports.size == 1) s.killExecutor()
      )
    }

  for (phase <- Seq(SinkPhase.DecisionDurable, SinkPhase.CopyOpen, SinkPhase.Copied))
    test(s"row 11: an outage of more than the transaction timeout after ${phase.name}") {
      val deaths = new Deaths
      lazy val simulation: Simulation = new Simulation(
        brokers,
        topic(s"11-${phase.name}"),
        deaths,
        options = Map("kafka.transaction.timeout.ms" -> "1000"),
        timer = NoTimer,
        messages = m => {
          if (phase != SinkPhase.DecisionDurable && simulation.reports.size == 1)
            simulation.killExecutor()
          m
        }
      )
      running(simulation) { s =>
        deaths.at(phase)
        intercept[Died](s.attemptBatch(0))
        s.killDriver(withExecutors = true)
        Conditions.awaitNoOpenTransaction(brokers, s.identity)
        s.runBatches(2)
        judged(s)
        assert(s.reports.last.completion.exists(_.copiedRows > 0))
      }
    }

  test("an order that outlives its driver is carried out while the next driver reads") {
    var kept = Seq.empty[CommitOrder]
    lazy val simulation: Simulation = new Simulation(
      brokers,
      topic("late"),
      new Deaths,
      orders = real =>
        new CommitOrders {
          override def commit(orders: Seq[CommitOrder]): Map[TransactionName, CommitAnswer] =
            if (simulation.checkpoint.next == 1 && simulation.reports.size == 1) {
              kept = orders
              throw new Died(SinkPhase.OrdersAnswered)
            } else real.commit(orders)
          override def abort(identity: SinkIdentity, batch: Long): Unit =
            real.abort(identity, batch)
        },
      seams = DriverSeams(log =
        real =>
          new CommitLog {
            override def read(identity: SinkIdentity, held: CommitState => Unit): CommitState = {
              val state = real.read(identity, held)
              kept.foreach(order => simulation.executors.foreach(_.sinks.commit(order)))
              kept = Nil
              state
            }
            override def readAll[A](
                isWanted: SinkIdentity => Boolean,
                passing: Option[(CommitRecord, Long) => Unit]
            )(of: (SinkIdentity, CommitState) => A): Vector[A] = real.readAll(isWanted, passing)(of)
          }
      )
    )
    running(simulation) { s =>
      s.runBatch()
      s.runBatch()
      assert(s.reports.size == 2 && s.reports.last.completion.forall(_.copiedRows == 0))
      judged(s)
    }
  }

  test("row 12: the broker ends the transaction of a finished attempt") {
    lazy val simulation: Simulation = new Simulation(
      brokers,
      topic("12"),
      new Deaths,
      options = Map("kafka.transaction.timeout.ms" -> "1000"),
      timer = NoTimer,
      executorClock = new ManualClock,
      messages = m => {
        if (simulation.figures.isEmpty)
          Conditions.awaitNoOpenTransaction(brokers, simulation.identity)
        m
      }
    )
    running(simulation) { s =>
      s.runBatches(2)
      judged(s)
      assert(s.figures.head.copiedRows == s.figures.head.rows)
      assert(s.figures.last.copiedRows == 0, "executors have their ids back")
    }
  }

  test(
    "row 12: an executor that slept through a timeout in mid-task writes the batch all the same"
  ) {
    val clock = new ManualClock
    running(new Simulation(
      brokers,
      topic("12-open"),
      new Deaths,
      options = Map("kafka.transaction.timeout.ms" -> "1000"),
      timer = NoTimer,
      executorClock = clock,
      executorCount = 1
    )) { s =>
      val BatchPlan.Write(spec) = s.coordinator.begin(s.start(0)): @unchecked
      val executor = new SimExecutor("900", s.settings, new Deaths, timer = NoTimer, clock = clock)
      s.executors :+= executor
      val tried = Try.of(0, 2, 6)
      val writer = executor.sinks.writer(spec, "900", 0, 900)
      writer.write(tried.row(s.topic, 0, 900, 0))
      Conditions.awaitNoOpenTransaction(brokers, s.identity)
      clock.advanceMs(1001)
      writer.write(tried.row(s.topic, 0, 900, 1))
      assert(writer.commit().rows.size == 2, "the attempt goes on in a transaction of its own")
      writer.abort()
      s.coordinator.commit(0, s.runTasks(spec, tried)): Unit
      s.checkpoint.committed = Set(0)
      judged(s)
    }
  }

  test("row 13: a driver that was cut off cannot decide") {
    running(new Simulation(brokers, topic("13"), new Deaths)) { s =>
      val old = s.coordinator
      val plan = old.begin(s.start(0))
      val written = s.runTasks(plan.writers, Try.of(0, 100, 6))
      s.startDriver()
      s.runBatch()
      intercept[SinkException.Superseded](old.commit(0, written))
      judged(s)
      old.close()
      s.runBatch()
      judged(s)
    }
  }

  test("a topic that is deleted while a task writes fails the task, and holds it no longer") {
    val short =
      Map("delivery.timeout.ms" -> 2000, "request.timeout.ms" -> 1000, "max.block.ms" -> 2000)
    running(new Simulation(
      brokers,
      topic("deleted"),
      new Deaths,
      options = short.map { case (name, ms) => s"kafka.$name" -> s"$ms" }
    )) { s =>
      val BatchPlan.Write(spec) = s.coordinator.begin(s.start(0)): @unchecked
      val executor = new SimExecutor("901", s.settings, new Deaths)
      s.executors :+= executor
      val tried = Try.of(0, 2, 6)
      val writer = executor.sinks.writer(spec, "901", 0, 901)
      def write(at: Int): Unit = {
        val row = tried.row(s.topic, 0, 901, at)
        writer.write(new ProducerRecord(s.topic, Int.box(at), row.key, row.value))
      }
      write(0)
      brokers.deleteTopic(s.topic)
      val e = intercept[SinkException] {
        write(1)
        writer.commit()
      }
      assert(e.isRetryable || e.isInstanceOf[SinkException.UnfitCluster], e)
    }
  }

  for (phase <- Seq(SinkPhase.DecisionSent, SinkPhase.Copied))
    test(s"row 13: a driver whose transaction timed out at ${phase.name} is no other run") {
      lazy val simulation: Simulation = new Simulation(
        brokers,
        topic(s"13-timeout-${phase.name}"),
        new Deaths().instead(phase) {
          val id = SinkTransactionalId.driver(simulation.settings.prefix, simulation.identity)
          Conditions.awaitOpenTransaction(brokers, simulation.identity, id.text)
          Conditions.awaitNoOpenTransaction(brokers, simulation.identity)
        },
        options = Map("kafka.transaction.timeout.ms" -> "1000"),
        timer = NoTimer,
        messages = m => {
          if (phase == SinkPhase.Copied) simulation.killExecutor()
          m
        }
      )
      running(simulation) { s =>
        val e = intercept[SinkException.Unavailable](s.attemptBatch(0))
        assert(e.reason.contains("ended the driver's transaction after 1000 ms"))
        s.runBatches(2)
        judged(s)
      }
    }

  test("row 14: an executor of an old run can neither write nor commit") {
    running(new Simulation(brokers, topic("14"), new Deaths)) { s =>
      val plan = s.coordinator.begin(s.start(0))
      val zombie = new SimExecutor("1000", s.settings, new Deaths)
      val writer = zombie.sinks.writer(plan.writers, "1000", 0, 1000)
      writer.write(Try.of(0, 99, 6).row(s.topic, 0, 1000, 0))
      s.startDriver()
      s.runBatch()
      assert(s.reports.last.fenced.exists(_.endsWith(".e1000")))
      intercept[SinkException] {
        (1 to 100).foreach(at => writer.write(Try.of(0, 99, 6).row(s.topic, 0, 1000, at)))
        writer.commit()
      }
      // Its id stays with its successor: the same lease does not initialize it again.
      val next = zombie.sinks.writer(plan.writers, "1000", 0, 1001)
      intercept[SinkException](next.write(Try.of(0, 99, 6).row(s.topic, 0, 1001, 0)))
      judged(s)
      zombie.kill()
    }
  }

  test("an attempt that does not count leaves no transaction open, alone on its executor") {
    running(new Simulation(brokers, topic("surplus"), new Deaths)) { s =>
      val BatchPlan.Write(spec) = s.coordinator.begin(s.start(0)): @unchecked
      val tried = Try.of(0, 2, 6)
      val written = s.runTasks(spec, tried)
      val other = new SimExecutor("900", s.settings, new Deaths)
      s.executors :+= other
      val surplus = other.sinks.writer(spec, "900", 0, 900)
      surplus.write(tried.row(s.topic, 0, 900, 0))
      surplus.commit(): Unit // it is acknowledged, and its result never used
      s.coordinator.commit(0, written): Unit
      s.checkpoint.committed = Set(0)
      assert(Conditions.ongoing(brokers, s.identity).isEmpty)
      assert(s.judge().isRight)
    }
  }

  test("an executor that never wrote leaves no id with the brokers") {
    running(new Simulation(brokers, topic("never"), new Deaths)) { s =>
      s.runBatch()
      s.coordinator.fenceExecutors(Set("777"))
      val ids = brokers.admin.listTransactions().all().get().asScala.map(_.transactionalId)
      assert(!ids.exists(_.endsWith(".e777")))
    }
  }

  test("a driver that was cut off does not end what executors of the same ids write for another") {
    running(new Simulation(brokers, topic("same-ids"), new Deaths)) { s =>
      s.runBatch()
      val old = s.coordinator
      s.startDriver()
      val BatchPlan.Write(spec) = s.coordinator.begin(s.start(1)): @unchecked
      val written = s.runTasks(spec, Try.of(1, 2, 6))
      intercept[SinkException.Superseded](old.fenceExecutors(s.executors.map(_.id).toSet))
      s.coordinator.commit(1, written): Unit
      s.checkpoint.committed += 1L
      judged(s)
      assert(copied(s) == 0)
    }
  }
}
