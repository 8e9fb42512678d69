package statemark.kafka.stress

import java.util.Random
import java.util.concurrent.{CountDownLatch, TimeUnit}
import java.util.concurrent.atomic.AtomicLong
import statemark.common.Clock
import statemark.kafka.{decision, TestBrokers}
import statemark.kafka.clients.KafkaFailures
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkPhase}
import statemark.kafka.driver.DriverSeams
import statemark.kafka.sim._

/** How a history's sinks are set up, drawn once.
  * @param places partitions of the topic; @param tasks partitions of a batch
  * @param isAdaptive whether the partitions of a batch have other bounds in each try
  */
private[stress] final case class Setup(
    places: Int,
    tasks: Int,
    isLocal: Boolean,
    isRerun: Boolean,
    isAdaptive: Boolean,
    copyBytes: Long
)

/** A refusal of a run, or a failure by a producer that was fenced, which the record of the history has to justify once
  * everything stands still.
  * @param since when the run had taken the sink over
  */
private[stress] final case class Refusal(app: App, failure: SinkException, since: Long)

/** What all applications of a history share. */
private[stress] final class Shared(
    val brokers: TestBrokers,
    val topic: String,
    val ledger: Ledger,
    val setup: Setup,
    val steps: Steps
) {
  val nonces = new AtomicLong
  val moments = new AtomicLong
}

/** An application: a driver and executors of its own, whose processes are numbered as in every other application.
  * ''Thread:'' [[turn]] one at a time, the rest any.
  */
private[stress] final class App(
    val name: String,
    val appId: String,
    val checkpoint: SimCheckpoint,
    shared: Shared,
    seed: Long
) extends AutoCloseable {
  import shared.setup

  val deaths = new Deaths(passing = passed)
  private val random = new Random(seed)
  val simulation: Simulation = new Simulation(
    shared.brokers,
    shared.topic,
    deaths,
    options = App.options ++ Option.when(setup.isRerun)("onLostRows" -> "rerun"),
    isLocal = setup.isLocal,
    queryId = appId,
    seams = DriverSeams(copyBytes = setup.copyBytes),
    partitions = setup.tasks,
    failedTaskOneIn = 12,
    twinOneIn = 12,
    lateOrderOneIn = 12,
    random = random,
    workload = (batch, nonce, tasks) => tried(batch, nonce, tasks),
    checkpoint = checkpoint,
    nonces = shared.nonces,
    ways = () => Some(new Way(shared.brokers.bootstrap))
  )

  simulation.placement =
    Some(decision.Placement(isChosen = setup.isAdaptive, Vector(setup.tasks), Vector(1)))

  def identity: SinkIdentity = simulation.identity

  /** Why it cannot go on, ever. */
  @volatile var refusal: Option[SinkException] = None

  /** Whether its ways have been cut, held, or robbed of an answer in this turn. */
  @volatile var isDisturbed = false

  @volatile private var waiting = Option.empty[(SinkPhase, CountDownLatch)]
  @volatile private var ending = new CountDownLatch(1)
  @volatile private var initializedAt = 0L
  @volatile private var takenAt = 0L
  @volatile private var isRecovering = false
  private var isSettled = false

  /** When it could last have taken the sink from others. */
  def lastTaken: Long = if (isRecovering) Long.MaxValue else takenAt

  private def tried(batch: Long, nonce: Long, tasks: Int): Try = {
    val history = checkpoint.plan(batch)
    val of =
      if (setup.isAdaptive) Placement.adaptive(batch, history, nonce, tasks)
      else Placement.fixed(batch, history, nonce, tasks)
    shared.ledger.sent(nonce, Sent(identity, batch, history, of.counts))
    shared.steps += s"$name: try $nonce of batch $batch, history $history: ${of.counts.mkString(",")}"
    of
  }

  private def passed(phase: SinkPhase): Unit = {
    if (phase == SinkPhase.DriverInitialized) initializedAt = shared.moments.incrementAndGet()
    if (phase == SinkPhase.DriverInitialized || phase == SinkPhase.RunBegun)
      takenAt = shared.moments.incrementAndGet()
    if (phase == SinkPhase.RunBegun) isRecovering = false
    waiting.filter(_._1 == phase).foreach(_._2.countDown())
  }

  /** A latch that opens as the phase is passed, or the turn ends. */
  def passes(phase: SinkPhase): CountDownLatch = {
    val latch = new CountDownLatch(1)
    waiting = Some((phase, latch))
    latch
  }

  /** A latch that opens as the next turn ends. */
  def turnEnds(): CountDownLatch = {
    ending = new CountDownLatch(1)
    ending
  }

  /** Runs some batches, as the driver of a query does that is started again after a death and after errors that say so.
    * @param endsAtDeath whether it stays dead after the last death that was planned
    * @param killsExecutors of a death of the driver: whether its executors die with it
    * @param lastBehind is waited for before the last batch
    * @param overtaken whether another application has taken the sink since a moment: then it is not started again
    * @return what has ended it, and failures that need a reason
    */
  def turn(
      batches: Int,
      endsAtDeath: Boolean,
      killsExecutors: Boolean,
      lastBehind: Option[CountDownLatch],
      overtaken: Long => Boolean,
      committed: () => Unit
  ): Vector[Refusal] = {
    var left = batches
    var tries = 0
    var refused = Vector.empty[Refusal]
    try while (left > 0) {
        if (left == 1) lastBehind.foreach(_.await())
        val batch = checkpoint.next
        tries += 1
        if (tries > App.MostTries)
          throw new AssertionError(s"$name: batch $batch gets never through")
        isRecovering = !isSettled
        val begin = Clock.system.nanos()
        try {
          simulation.attemptBatch(batch)
          shared.steps += s"$name: batch $batch is committed, ${simulation.figures.last}"
          isSettled = true
          left -= 1
          tries = 0
          committed()
        } catch {
          case e: Died =>
            shared.steps += s"$name: $e"
            isSettled = false
            simulation.killDriver(killsExecutors)
            if (endsAtDeath && !deaths.isPlanned) left = 0
          case e: SinkException =>
            shared.steps += s"$name: ${e.getClass.getSimpleName}: ${e.getMessage}"
            isSettled = false
            simulation.restart()
            val refusal = refusalOf(e)
            refused ++= refusal
            // Not the broker, which waits for longer: somebody has taken an id.
            if (refusal.isEmpty && KafkaFailures.isFenced(e) && App.isWithinTimeouts(begin))
              refused :+= Refusal(this, e, initializedAt)
            if (refusal.isDefined || overtaken(initializedAt)) left = 0
        } finally if (isRecovering) {
            isRecovering = false
            takenAt = shared.moments.incrementAndGet()
          }
      }
    finally {
      waiting.foreach(_._2.countDown())
      ending.countDown()
    }
    refused
  }

  private def refusalOf(failure: SinkException): Option[Refusal] = failure match {
    case _: SinkException.Superseded => Some(Refusal(this, failure, initializedAt))
    case _: SinkException.WrongHistory | _: SinkException.LostRows =>
      refusal = Some(failure)
      Some(Refusal(this, failure, initializedAt))
    // A broker that cannot be reached may be one that is not fit.
    case _ if failure.isRetryable || isDisturbed => None
    case _ => throw new AssertionError(s"$name: an error that asks for a person", failure)
  }

  /** All its processes die. */
  def kill(): Unit = {
    simulation.killDriver(withExecutors = true)
    isSettled = false
  }

  override def close(): Unit = {
    deaths.end()
    kill()
    simulation.close()
  }
}

private object App {
  val MostTries = 40

  def isWithinTimeouts(beginNanos: Long): Boolean =
    Clock.system.nanos() - beginNanos < TimeUnit.SECONDS.toNanos(3)

  /** Three seconds for everything. */
  val options: Map[String, String] = Map(
    "kafka.transaction.timeout.ms" -> "3000",
    "kafka.delivery.timeout.ms" -> "3000",
    "kafka.request.timeout.ms" -> "2000",
    "kafka.max.block.ms" -> "3000",
    "kafka.default.api.timeout.ms" -> "6000"
  )
}
