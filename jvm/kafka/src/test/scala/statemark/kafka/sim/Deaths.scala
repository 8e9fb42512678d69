package statemark.kafka.sim

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicInteger
import scala.jdk.CollectionConverters._
import scala.util.control.ControlThrowable
import statemark.kafka.conf.{SinkObserver, SinkPhase}

/** The end of a process: no handler of failures sees it, and nothing is cleaned up. */
final class Died(val phase: SinkPhase) extends ControlThrowable {
  override def toString: String = s"Died at ${phase.name}"
}

/** Says at which phase the next process dies. ''Thread:'' any.
  * @param passing told of every phase first: of what else may happen then
  */
final class Deaths(
    random: Option[java.util.Random] = None,
    oneIn: Int = 0,
    passing: SinkPhase => Unit = _ => ()
) {
  private val planned = new ConcurrentHashMap[SinkPhase, AtomicInteger]
  private val actions = new ConcurrentHashMap[SinkPhase, () => Unit]
  private val fired = new ConcurrentHashMap[SinkPhase, AtomicInteger]
  @volatile private var isOver = false
  @volatile private var isCalm = false

  /** Dies when the phase is reached for the n-th time from now on. */
  def at(phase: SinkPhase, nth: Int = 1): this.type = {
    planned.put(phase, new AtomicInteger(nth))
    this
  }

  /** Does something else when the phase is reached next: a broker dies, say, and the process lives on. */
  def instead(phase: SinkPhase)(action: => Unit): this.type = {
    actions.put(phase, () => action)
    this
  }

  /** Whether a death was planned that has not come. */
  def isPlanned: Boolean = planned.values.asScala.exists(_.get > 0)

  /** Takes back what was planned and has not come. */
  def forget(): Unit = {
    planned.clear()
    actions.clear()
  }

  /** From now on nobody dies who was not told to. */
  def calm(): Unit = isCalm = true

  /** From now on nobody dies. */
  def end(): Unit = {
    isOver = true
    planned.clear()
  }

  /** How often processes died, by phase. */
  def counts: Map[SinkPhase, Int] = fired.asScala.view.mapValues(_.get).toMap

  def observer(onDeath: () => Unit): SinkObserver = (phase: SinkPhase) => {
    if (!isOver && !isCalm) passing(phase)
    Option(actions.remove(phase)).foreach(_())
    if (isDue(phase)) {
      fired.computeIfAbsent(phase, _ => new AtomicInteger).incrementAndGet()
      onDeath()
      throw new Died(phase)
    }
  }

  private def isDue(phase: SinkPhase): Boolean =
    Option(planned.get(phase)).exists(_.decrementAndGet() == 0) ||
      random.exists(r => !isOver && !isCalm && oneIn > 0 && r.synchronized(r.nextInt(oneIn)) == 0)
}
