package statemark.spark.metrics

import java.util.concurrent.{ConcurrentHashMap, TimeUnit}
import java.util.concurrent.atomic.LongAdder
import scala.jdk.CollectionConverters._
import statemark.common.Clock
import statemark.spark.local.LoadedStore

/** What the stores of a query's operator have done in this process, of all its runs, as gauges. A row of [[StoreMetrics]]
  * is a sum over all commits, or what its open stores have now. A commit takes no lock for it.
  *
  * ''Thread:'' any.
  */
private[spark] final class OperatorFigures(clock: Clock) extends GaugeGroup {
  private val totals: Map[Metric[_], LongAdder] =
    StoreMetrics.own.filter(_.now.isEmpty).map(_ -> new LongAdder).toMap
  private val commits = new Times(clock)
  private val stores = ConcurrentHashMap.newKeySet[LoadedStore]()

  /** Adds a commit: its values, as Spark has them. */
  def committed(values: Seq[(Metric[_], Long)], totalMs: Long): Unit = {
    commits.add(TimeUnit.MILLISECONDS.toNanos(totalMs))
    values.foreach { case (metric, value) =>
      if (value != 0) totals.get(metric).foreach(_.add(value))
    }
  }

  def opened(store: LoadedStore): Unit = stores.add(store): Unit
  def closed(store: LoadedStore): Unit = stores.remove(store): Unit

  override def isUsed: Boolean = !stores.isEmpty

  override def gauges: Seq[(String, () => Any)] =
    StoreMetrics.own.flatMap(metric => metric.label.map(_.asGauge.name -> shown(metric))) ++ Seq(
      StoreMetrics.commitRate.name -> (() => commits.perSecond),
      StoreMetrics.commitLatencyAvg.name -> (() => commits.meanMs),
      MetricLabel.CommitLatencyMax.asGauge.name -> (() => commits.maxMs)
    )

  private def shown(metric: Metric[_]): () => Any = metric.now match {
    case Some(ofStore) => () => stores.asScala.iterator.map(ofStore).sum
    case None =>
      val total = totals(metric)
      () => total.sum
  }
}

private[spark] object OperatorFigures {

  /** Returns the figures of an operator, for a store of it that was opened.
    * @param query the query's name, or its id where it has none
    */
  def opened(query: String, operator: Long, clock: Clock, store: LoadedStore): OperatorFigures = {
    val figures = Gauges.current.group(s"queries.$query.$operator")(new OperatorFigures(clock))
    figures.opened(store)
    figures
  }
}
