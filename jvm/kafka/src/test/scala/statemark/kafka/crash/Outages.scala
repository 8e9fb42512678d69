package statemark.kafka.crash

import statemark.kafka.TestBrokers
import statemark.kafka.conf.SinkPhase
import statemark.kafka.decision.{BatchStart, DecidedTransaction}
import statemark.kafka.driver.{BatchPlan, DriverSeams, FoundRows, LogRows, UncopiedRows}
import statemark.kafka.sim._

/** Everything stands still for three transaction timeouts: at each phase, in a task, in a copy. */
final class Outages(brokers: TestBrokers, sizes: Sizes) {
  private val timeoutMs = 2000L
  private val options = Map("kafka.transaction.timeout.ms" -> s"$timeoutMs")

  def run(): Unit = {
    for (isLocal <- Seq(false, true); phase <- RandomKills.phases(isLocal))
      processes(phase, isLocal)
    for (phase <- Seq(SinkPhase.RowSent, SinkPhase.DecisionSent, SinkPhase.TokenSent))
      cluster(phase)
    task()
    copy()
  }

  private def simulation(name: String, deaths: Deaths, isLocal: Boolean, seams: DriverSeams) = {
    lazy val made: Simulation = new Simulation(
      brokers,
      brokers.topic(s"crash-outage-$name"),
      deaths,
      isLocal = isLocal,
      options = options,
      seams = seams,
      random = new java.util.Random(sizes.seed),
      // In local mode rows of tasks that run twice are what has to be copied.
      twinOneIn = if (isLocal && name.startsWith("copy")) 1 else 0,
      messages = m => {
        if (name.startsWith("copy") && made.reports.size == 1) made.killExecutor()
        m
      }
    )
    made
  }

  /** All processes die at a phase, and come back later. */
  private def processes(phase: SinkPhase, isLocal: Boolean): Unit = {
    val isCopy = RandomKills.ofCopies(phase) || phase == SinkPhase.OrdersAnswered
    val deaths = new Deaths
    val name = s"${if (isCopy) "copy-" else ""}${phase.name}-$isLocal"
    val s = simulation(name, deaths, isLocal, DriverSeams())
    try {
      if (!SinkPhase.ofRecovery.contains(phase)) s.runBatch()
      deaths.at(phase)
      val died =
        try {
          s.attemptBatch(s.checkpoint.next)
          false
        } catch { case _: Died => true }
      s.killDriver(withExecutors = true)
      if (!deaths.counts.contains(phase)) throw new AssertionError(s"nobody died at $name")
      Crash.pass(3 * timeoutMs)
      s.runBatches(2)
      s.endSurplus()
      Crash.require(s, name): Unit
      val who = if (died) "the driver" else "an executor"
      println(s"outage at $name (first to die: $who): ${copied(s)} rows copied")
    } finally s.close()
  }

  /** All brokers die at a phase, and come back later. */
  private def cluster(phase: SinkPhase): Unit = {
    val deaths = new Deaths
    val s = simulation(s"cluster-${phase.name}", deaths, isLocal = false, DriverSeams())
    try {
      s.runBatch()
      deaths.instead(phase) {
        (1 to 3).foreach(brokers.kill)
        Crash.pass(3 * timeoutMs)
        (1 to 3).foreach(brokers.start)
      }
      s.runBatches(2)
      brokers.awaitNodes()
      s.endSurplus()
      Crash.require(s, s"cluster at ${phase.name}"): Unit
      println(s"outage of all brokers at ${phase.name}: ${copied(s)} rows copied")
    } finally s.close()
  }

  /** A task takes three timeouts: its executor ends its transactions before the broker does. */
  private def task(): Unit = {
    val s = simulation("task", new Deaths, isLocal = false, DriverSeams())
    try {
      val start = BatchStart(0, "q", Some(Simulation.fingerprint(0)), isRerun = false)
      val BatchPlan.Write(spec) = s.coordinator.begin(start): @unchecked
      val executor = new SimExecutor("500", s.settings, new Deaths)
      s.executors = Vector(executor)
      val tried = Try(0, 1, Vector(12))
      val writer = executor.sinks.writer(spec, "500", 0, 1)
      (0 until 12).foreach { at =>
        writer.write(tried.row(s.topic, 0, 1, at))
        Crash.pass(timeoutMs / 4)
      }
      val figures = s.coordinator.commit(0, Seq(writer.commit()))
      s.checkpoint.committed = Set(0)
      Crash.require(s, "task"): Unit
      println(
        s"a task of three timeouts: ${figures.transactions} transactions, ${figures.copiedRows} rows copied"
      )
    } finally s.close()
  }

  /** A copy takes three timeouts: it goes in pieces. */
  private def copy(): Unit = {
    val slow = (real: LogRows) =>
      new LogRows {
        override private[kafka] def read(transactions: Seq[UncopiedRows]): FoundRows = {
          val found = real.read(transactions)
          new FoundRows {
            override def lost = found.lost
            override def close(): Unit = found.close()
            override def of(transaction: DecidedTransaction) = found.of(transaction).map { record =>
              Crash.pass(timeoutMs / 5)
              record
            }
          }
        }
      }
    val deaths = new Deaths().at(SinkPhase.DecisionDurable)
    val s = simulation("slow-copy", deaths, isLocal = false, DriverSeams(rows = slow))
    try {
      s.runBatches(2)
      s.endSurplus()
      Crash.require(s, "copy"): Unit
      println(
        s"a copy of ${copied(s)} rows, ${timeoutMs / 5} ms each, with a timeout of $timeoutMs ms"
      )
    } finally s.close()
  }

  private def copied(s: Simulation): Long = s.figures.map(_.copiedRows).sum +
    s.reports.flatMap(_.completion).map(_.copiedRows).sum
}
