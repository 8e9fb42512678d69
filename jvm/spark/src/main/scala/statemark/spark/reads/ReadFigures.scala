package statemark.spark.reads

import statemark.common.Clock
import statemark.IsolationLevel
import statemark.spark.metrics.{GaugeGroup, Gauges, Times}
import statemark.spark.process.{JvmState, JvmValue}

/** The live reads that this process has made, by isolation level, as gauges: of a store each, from when it was opened to
  * when the reader had its rows.
  *
  * ''Thread:'' any.
  */
private[spark] final class ReadFigures(clock: Clock) extends GaugeGroup {
  private val byLevel = IsolationLevel.all.map(_ -> new Times(clock)).toMap

  /** Notes that a read begins; returns what is to be called when it has ended. */
  def begun(level: IsolationLevel): () => Unit = {
    val beganNanos = clock.nanos()
    () => byLevel(level).add(clock.nanos() - beganNanos)
  }

  override def isUsed: Boolean = true

  override def gauges: Seq[(String, () => Any)] = IsolationLevel.all.flatMap { level =>
    val times = byLevel(level)
    Seq[(String, () => Any)](
      "count" -> (() => times.count),
      "latencyMsAvg" -> (() => times.meanMs),
      "latencyMsMax" -> (() => times.maxMs)
    ).map { case (name, value) => s"${level.name}.$name" -> value }
  }
}

private[spark] object ReadFigures {

  /** The figures of this application in this process. */
  val current: JvmValue[ReadFigures] = JvmState.ofApplication {
    Gauges.current.group("liveReads")(new ReadFigures(Clock.system))
  }
}
