package statemark.kafka.sim

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicInteger
import scala.jdk.CollectionConverters._
import scala.util.control.ControlThrowable
import statemark.kafka.{SinkObserver, SinkPhase}

/** The end of a process: no handler of failures sees it, and nothing is cleaned up. */
final class Died(val phase: SinkPhase) extends ControlThrowable {
  override def toString: String = s"Died at ${phase.name}"
}

/** Says at which phase the next process dies. ''Thread:'' any. */
final class Deaths(random: Option[java.util.Random] = None, oneIn: Int = 0) {
  private val planned = new ConcurrentHashMap[SinkPhase, AtomicInteger]
  private val fired = new ConcurrentHashMap[SinkPhase, AtomicInteger]
  @volatile private var isOver = false

  /** Dies when the phase is reached for the n-th time from now on. */
  def at(phase: SinkPhase, nth: Int = 1): this.type = {
    planned.put(phase, new AtomicInteger(nth))
    this
  }

  /** From now on nobody dies. */
  def end(): Unit = {
    isOver = true
    planned.clear()
  }

  /** How often processes died, by phase. */
  def counts: Map[SinkPhase, Int] = fired.asScala.view.mapValues(_.get).toMap

  def observer(onDeath: () => Unit): SinkObserver = (phase: SinkPhase) =>
    if (isDue(phase)) {
      fired.computeIfAbsent(phase, _ => new AtomicInteger).incrementAndGet()
      onDeath()
      throw new Died(phase)
    }

  private def isDue(phase: SinkPhase): Boolean =
    Option(planned.get(phase)).exists(_.decrementAndGet() == 0) ||
      random.exists(r => !isOver && oneIn > 0 && r.synchronized(r.nextInt(oneIn)) == 0)
}
