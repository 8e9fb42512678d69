package statemark.kafka

import org.apache.kafka.common.IsolationLevel
import org.scalatest.funsuite.AnyFunSuite
import statemark.kafka.clients.Fencing
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkPhase, SinkSettings}
import statemark.kafka.decision.{BatchStart, LastDecision, Verdict}
import statemark.kafka.driver.{DecisionLog, DriverSeams, LogRows, SpooledRows, UncopiedRows}
import statemark.kafka.executor.{CommitAnswer, CommitOrder, CommitOrders}
import statemark.kafka.log.{
  CommitLog,
  CommitRecord,
  CommitState,
  CommitTopic,
  IdentityRecord,
  Token
}
import statemark.kafka.rows.{AttemptId, AttemptMessage, RowSpool, TransactionName}
import statemark.kafka.sim._

/** Processes die at random phases, tasks fail, twins run; reruns differ on purpose. And each planted fault is seen by the
  * same judge.
  */
class RandomKillsSuite extends AnyFunSuite with Simulated {
  override def prefix = "kills"

  /** Over both modes together. */
  private val kills = sys.env.get("STATEMARK_KAFKA_KILLS").fold(20)(_.toInt)

  for (isLocal <- Seq(false, true))
    test(s"random deaths${if (isLocal) ", local mode" else ""}: 0 duplicated, 0 lost, 0 mixed") {
      val random = new java.util.Random(20 + (if (isLocal) 1 else 0))
      val deaths = new Deaths(Some(random), oneIn = 25)
      running(new Simulation(
        brokers,
        topic(if (isLocal) "local" else "two"),
        deaths,
        isLocal = isLocal,
        failedTaskOneIn = 8,
        twinOneIn = 8,
        lateOrderOneIn = 6,
        random = random
      )) { s =>
        while (deaths.counts.values.sum < kills / 2) s.runBatch(restarts = 100)
        s.runBatch(restarts = 100)
        val copiedBefore = copied(s)
        deaths.end()
        s.recover()
        val judgement = s.judge()
        info(
          s"${s.checkpoint.committed.size} batches, ${judgement.rows} rows, $copiedBefore copied, " +
            s"${s.reports.size} recoveries; deaths: " +
            deaths.counts.toSeq.map { case (p, n) => s"${p.name} $n" }.sorted.mkString(", ")
        )
        assert(judgement.isRight, judgement)
        assert(copiedBefore > 0)
      }
    }

  /** A fault is seen where a run with deaths at these phases is judged wrong, or does not get through by a named error. */
  private def seen(
      name: String,
      phases: Seq[SinkPhase],
      seams: DriverSeams = DriverSeams(),
      attemptsMatch: (Set[AttemptId], Set[AttemptId]) => Boolean = _ == _,
      failedTaskOneIn: Int = 0,
      twinOneIn: Int = 0,
      messages: Seq[AttemptMessage] => Seq[AttemptMessage] = m => m,
      killsExecutor: Boolean = false
  )(caught: (Judgement, Option[SinkException]) => Boolean): Unit = {
    val deaths = new Deaths
    lazy val simulation: Simulation = new Simulation(
      brokers,
      topic(name),
      deaths,
      seams = seams,
      attemptsMatch = attemptsMatch,
      failedTaskOneIn = failedTaskOneIn,
      twinOneIn = twinOneIn,
      messages = m => {
        if (killsExecutor) simulation.killExecutor()
        messages(m)
      }
    )
    running(simulation) { s =>
      var error = Option.empty[SinkException]
      var kills = 0
      def isCaught = caught(s.judge(), error)
      def run(): Unit =
        try s.runBatch()
        catch { case e: SinkException => error = Some(e) }
      run()
      while (error.isEmpty && !isCaught && kills < 15) {
        if (phases.nonEmpty) deaths.at(phases(kills % phases.size))
        kills += 1
        run()
      }
      info(
        s"seen after $kills tries, ${deaths.counts.values.sum} deaths: ${s.judge()} ${error.fold("")(_.problem)}"
      )
      assert(isCaught, s.judge())
    }
  }

  test("planted: no decision") {
    val none: SinkSettings => DecisionLog = _ => (_, _, _, _) => ()
    seen(
      "no-decision",
      Seq(SinkPhase.TransactionCommitted, SinkPhase.OrdersAnswered),
      DriverSeams(decisions = none)
    )((judgement, _) => judgement.mixed > 0)
  }

  test("planted: no copy") {
    val empty = (_: LogRows) =>
      new LogRows {
        override private[kafka] def read(transactions: Seq[UncopiedRows]) =
          new SpooledRows(new RowSpool(0), Map.empty)
      }
    seen("no-copy", Seq(SinkPhase.DecisionDurable), DriverSeams(rows = empty))((judgement, _) =>
      judgement.lost > 0
    )
  }

  test("planted: tokens are ignored") {
    def without(state: CommitState): CommitState =
      state.copy(records = state.records.filterNot(_._2.isInstanceOf[Token]))
    val ignoring = (real: CommitLog) =>
      new CommitLog {
        override def read(identity: SinkIdentity, held: CommitState => Unit): CommitState =
          without(real.read(identity, held))
        override def readAll[A](
            isWanted: SinkIdentity => Boolean,
            passing: Option[(CommitRecord, Long) => Unit]
        )(of: (SinkIdentity, CommitState) => A): Vector[A] =
          real.readAll(isWanted, passing)((identity, state) => of(identity, without(state)))
      }
    seen("no-token", Seq(SinkPhase.BeforeCommitLog), DriverSeams(log = ignoring))((judgement, _) =>
      judgement.duplicated > 0
    )
  }

  test("planted: whose rows a transaction holds is not checked") {
    seen("dirty", Nil, attemptsMatch = (_, _) => true, twinOneIn = 2)((judgement, _) =>
      judgement.duplicated > 0
    )
  }

  test("planted: the decision is written outside of the fenced transaction") {
    // An old driver decides after a new one has recovered, and its executors commit.
    val name = topic("unfenced")
    val unfenced: SinkSettings => DecisionLog = settings =>
      (_, records, _, _) => {
        val clients = new ProcessClients(settings)
        val producer = clients.producer("no-one-fences-this")
        producer.initTransactions()
        producer.beginTransaction()
        records.foreach { r =>
          producer.send(CommitTopic.record(CommitTopic.partitionOf(settings, r.identity), r))
        }
        producer.commitTransaction()
        clients.kill()
      }
    running(new Simulation(brokers, name, new Deaths, seams = DriverSeams(decisions = unfenced))) {
      s =>
        val old = s.coordinator
        val plan = old.begin(
          BatchStart(0, s.identity.appId, Some(Simulation.fingerprint(0)), isRerun = false)
        )
        s.startDriver()
        val young = s.coordinator
        val planOfYoung = young.begin(
          BatchStart(0, s.identity.appId, Some(Simulation.fingerprint(0)), isRerun = true)
        )
        val ofYoung = s.runTasks(planOfYoung.writers, Try.of(0, 2, 6))
        young.commit(0, ofYoung)
        s.executors = Vector.empty
        // The old executors do not see either that their run is over.
        val log = s.commitLog
        log.read(s.identity): Unit
        val blind = plan.writers.copy(since = log.position(s.identity))
        val ofOld = s.runTasks(blind, Try.of(0, 1, 6))
        try old.commit(0, ofOld): Unit
        catch { case _: SinkException => () }
        s.checkpoint.committed = Set(0)
        assert(s.judge().mixed > 0, s.judge())
        old.close()
    }
  }

  test("planted: a recovery that does not fence") {
    // The order of an old driver arrives after the new one has copied.
    val unfencing = (_: Fencing) =>
      new Fencing {
        override def open(identity: SinkIdentity, prefixes: Set[String]) = Right(Set.empty[String])
        override def fence(ids: Set[String]): Unit = ()
      }
    var late = Seq.empty[() => Unit]
    val orders = (real: CommitOrders) =>
      new CommitOrders {
        override def commit(orders: Seq[CommitOrder]): Map[TransactionName, CommitAnswer] = {
          late :+= (() => real.commit(orders): Unit)
          throw new Died(SinkPhase.OrdersAnswered)
        }
        override def abort(identity: SinkIdentity, batch: Long): Unit = ()
      }
    def run(name: String, seams: DriverSeams): Judgement = {
      late = Nil
      var result = Option.empty[Judgement]
      running(new Simulation(brokers, topic(name), new Deaths, seams = seams, orders = orders)) {
        s =>
          intercept[Died](s.attemptBatch(0))
          s.killDriver()
          s.startDriver()
          s.attemptBatch(0)
          late.foreach(_())
          result = Some(s.judge())
      }
      result.get
    }
    assert(run("late-order", DriverSeams()).isRight)
    val judgement = run("no-fence", DriverSeams(fencing = unfencing))
    assert(judgement.duplicated > 0, judgement)
  }

  test("planted: the commit topic is read to the last stable offset only") {
    def run(name: String, end: IsolationLevel)(check: Simulation => Unit): Unit = {
      // Somebody's transaction is open in the identity's partition when the batch is decided.
      lazy val foreign = new ProcessClients(simulation.settings, Some(600000))
      lazy val simulation: Simulation = new Simulation(
        brokers,
        topic(name),
        new Deaths,
        options = Map("kafka.transaction.timeout.ms" -> "3000"),
        timer = NoTimer,
        seams = DriverSeams(logEnd = end),
        messages = m => {
          if (simulation.reports.size == 1) openIn(foreign, simulation)
          m
        },
        orders = real =>
          new CommitOrders {
            override def commit(orders: Seq[CommitOrder]): Map[TransactionName, CommitAnswer] =
              if (simulation.reports.size > 1) real.commit(orders)
              else {
                real.commit(orders.take(1))
                throw new Died(SinkPhase.OrdersAnswered)
              }
            override def abort(identity: SinkIdentity, batch: Long): Unit =
              real.abort(identity, batch)
          }
      )
      running(simulation) { s =>
        check(s)
        foreign.kill()
      }
    }
    run("all", IsolationLevel.READ_UNCOMMITTED) { s =>
      intercept[Died](s.attemptBatch(0))
      s.killDriver()
      val e = intercept[SinkException.Unavailable](s.attemptBatch(0))
      assert(e.getMessage.contains("the-holder"))
    }
    // A run does not see what it has written itself, and stops before it decides anything: the second at the latest, and
    // the first where its record is a moment late.
    run("stable", IsolationLevel.READ_COMMITTED) { s =>
      intercept[SinkException.Superseded] {
        try s.attemptBatch(0)
        catch { case _: Died => () }
        s.killDriver()
        s.attemptBatch(0)
      }: Unit
    }
  }

  /** Its broker would end it after ten minutes. */
  private def openIn(foreign: ProcessClients, s: Simulation): Unit = {
    val producer = foreign.producer("the-holder")
    producer.initTransactions()
    producer.beginTransaction()
    val record = IdentityRecord(SinkIdentity("foreign", "x"), "q", "d", "p", 1, "", Vector.empty)
    producer.send(CommitTopic.record(
      CommitTopic.partitionOf(s.settings, s.identity),
      record
    )).get(): Unit
  }

  test("planted: offsets are off by one run") {
    val shifted = (messages: Seq[AttemptMessage]) =>
      messages.map(m =>
        m.copy(rows = m.rows.view.mapValues(_.map { case (place, rows) =>
          place -> rows.copy(offsets = rows.offsets.copy(base = rows.offsets.base + 1))
        }).toMap)
      )
    seen("off-by-one", Nil, messages = shifted, killsExecutor = true)((judgement, error) =>
      !judgement.isRight || error.exists(_.isInstanceOf[SinkException.LostRows])
    )
  }

  test("planted: a batch is discarded without a look at its fingerprint") {
    val trusting = (_: SinkIdentity, start: BatchStart, last: LastDecision) =>
      if (last.decided.exists(_.batch >= start.batch)) Verdict.Discard(isOld = false)
      else Verdict.Write(0, None)
    def run(name: String, seams: DriverSeams)(check: (Simulation, () => Unit) => Unit): Unit =
      running(new Simulation(brokers, topic(name), new Deaths, seams = seams)) { s =>
        s.runBatches(2)
        s.restart()
        // The checkpoint was set back to another past: batch 1 has other rows now.
        s.checkpoint.committed -= 1L
        check(s, () => s.attemptBatch(1, Some(Simulation.fingerprint(77).copy(batch = 1))))
      }
    run("fingerprint", DriverSeams()) { (_, again) =>
      intercept[SinkException.WrongHistory](again()): Unit
    }
    run("no-fingerprint", DriverSeams(verdict = trusting)) { (s, again) =>
      again()
      assert(s.figures.last.isDiscarded, "the rows of the other batch 1 are lost")
    }
  }
}
