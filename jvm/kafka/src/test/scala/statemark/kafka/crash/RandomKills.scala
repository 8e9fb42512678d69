package statemark.kafka.crash

import java.util.Random
import java.util.concurrent.atomic.AtomicInteger
import statemark.kafka.TestBrokers
import statemark.kafka.conf.SinkPhase
import statemark.kafka.sim._

/** Drivers, executors and brokers die at random; reruns differ on purpose. What has died too seldom at the end dies where
  * it is told to.
  */
final class RandomKills(brokers: TestBrokers, sizes: Sizes) {
  private val random = new Random(sizes.seed)
  private val outages = new BrokerKills(brokers, random, oneIn = 120)

  def run(): Unit = Seq(false, true).foreach(isLocal => run(isLocal))

  private def run(isLocal: Boolean): Unit = {
    val where = if (isLocal) "local mode" else "two executors"
    val deaths = new Deaths(Some(random), oneIn = 25, _ => outages.maybe())
    val before = outages.count
    val simulation = new Simulation(
      brokers,
      brokers.topic(s"crash-kills-$isLocal"),
      deaths,
      isLocal = isLocal,
      options = Map("kafka.transaction.timeout.ms" -> "30000"),
      failedTaskOneIn = 8,
      twinOneIn = 8,
      lateOrderOneIn = 6,
      random = random
    )
    try {
      def killed = deaths.counts.filterNot { case (p, _) => SinkPhase.ofRecovery.contains(p) }
      def kills = killed.values.sum + outages.count - before
      while (kills < sizes.kills / 2) {
        simulation.runBatch(restarts = 1000)
        if (simulation.checkpoint.committed.size % 50 == 0) {
          simulation.endSurplus()
          println(s"$where: $kills kills, ${Crash.require(simulation, where)}")
        }
      }
      deaths.calm()
      RandomKills.phases(isLocal).foreach(phase => fill(simulation, deaths, phase))
      def copies = simulation.reports.count(_.completion.exists(_.copiedRows > 0))
      while (copies < sizes.copies / 2) die(simulation, deaths, SinkPhase.DecisionDurable)
      outages.await()
      deaths.end()
      simulation.recover()
      val judgement = Crash.require(simulation, where)
      val (ofExecutor, ofDriver) =
        killed.partition { case (p, _) => !isLocal && SinkPhase.ofExecutor.contains(p) }
      println(
        s"$where: ${simulation.checkpoint.committed.size} batches, ${judgement.rows} rows, " +
          s"0 duplicated, 0 lost, 0 mixed; kills: driver ${ofDriver.values.sum}, executor " +
          s"${ofExecutor.values.sum}, broker ${outages.count - before}; ${simulation.reports.size} " +
          s"recoveries, $copies of them copied rows"
      )
      println(
        s"$where, phases: " +
          deaths.counts.toSeq.map { case (p, n) => s"${p.name} $n" }.sorted.mkString(", ")
      )
      val seldom =
        RandomKills.phases(isLocal).filter(p => deaths.counts.getOrElse(p, 0) < sizes.perPhase)
      if (seldom.nonEmpty) throw new AssertionError(s"too few kills at ${seldom.map(_.name)}")
    } finally simulation.close()
  }

  private def fill(simulation: Simulation, deaths: Deaths, phase: SinkPhase): Unit = {
    var tries = 0
    while (deaths.counts.getOrElse(phase, 0) < sizes.perPhase && tries < sizes.perPhase * 20) {
      tries += 1
      die(simulation, deaths, phase)
    }
  }

  /** Phases of a copy come only where a copy is needed: a death behind the decision brings one. */
  private def die(simulation: Simulation, deaths: Deaths, phase: SinkPhase): Unit = {
    if (RandomKills.ofCopies(phase)) {
      deaths.at(SinkPhase.DecisionDurable)
      deaths.at(phase)
    } else if (SinkPhase.ofRecovery.contains(phase)) {
      deaths.at(phase)
      simulation.killDriver()
    } else deaths.at(phase)
    simulation.runBatch(restarts = 1000)
  }
}

private object RandomKills {
  val ofCopies: Set[SinkPhase] =
    Set(SinkPhase.Fenced, SinkPhase.CopyOpen, SinkPhase.Copied, SinkPhase.CopyCommitted)

  /** In local mode no order is given, and what is one transaction has no token of an executor's. */
  def phases(isLocal: Boolean): Seq[SinkPhase] = SinkPhase.all.filterNot(p =>
    isLocal && Set[SinkPhase](SinkPhase.TokenSent, SinkPhase.TransactionCommitted)(p)
  )
}

/** Kills a broker now and then, one at a time, and starts it again at once. ''Thread:'' any. */
final class BrokerKills(brokers: TestBrokers, random: Random, oneIn: Int) {
  private val killed = new AtomicInteger
  private var repair = Option.empty[Thread]

  def count: Int = killed.get

  def maybe(): Unit = synchronized {
    if (repair.forall(!_.isAlive) && random.synchronized(random.nextInt(oneIn)) == 0) {
      val node = 1 + random.synchronized(random.nextInt(3))
      brokers.kill(node)
      killed.incrementAndGet(): Unit
      val thread = new Thread(() => {
        brokers.start(node)
        // Copies are equal again: the next that dies is not the last that has a row.
        brokers.awaitNodes()
      })
      thread.start()
      repair = Some(thread)
    }
  }

  /** Waits until all brokers are back. */
  def await(): Unit = synchronized(repair).foreach(_.join())
}
