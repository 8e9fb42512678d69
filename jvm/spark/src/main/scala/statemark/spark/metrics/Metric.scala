package statemark.spark.metrics

import org.apache.spark.sql.execution.streaming.state._

/** How Spark adds up and shows a metric, and in which unit it counts. */
sealed abstract class MetricKind(val unit: String)

object MetricKind {
  case object Count extends MetricKind("count")
  case object Time extends MetricKind("ms")
  case object Size extends MetricKind("bytes")
}

/** What users see of a metric.
  *
  * @param text what it counts, without the prefix that Spark's user interface shows before it
  */
final case class MetricLabel(name: String, kind: MetricKind, text: String) {
  def description: String = s"Statemark: $text"
}

object MetricLabel {

  /** Of the one that Spark shows store by store, where the line of Spark can. */
  val CommitLatencyMax: MetricLabel =
    MetricLabel("statemarkCommitLatencyMsMax", MetricKind.Time, "commit latency of a store, ms")
}

/** A metric: a row of the table of [[StoreMetrics]].
  *
  * @param label None for one of Spark's own
  * @param value what it is, in what was measured
  */
final class Metric[-A] private (
    val spark: StateStoreCustomMetric,
    val label: Option[MetricLabel],
    val value: A => Long
) {
  def name: String = spark.name

  /** The same metric of something that has what this one measures. */
  def in[B](part: B => A): Metric[B] = new Metric(spark, label, (b: B) => value(part(b)))
}

object Metric {

  /** One of Statemark's own. */
  def apply[A](name: String, kind: MetricKind, text: String)(value: A => Long): Metric[A] = {
    val label = MetricLabel(name, kind, text)
    val spark = kind match {
      case MetricKind.Count => StateStoreCustomSumMetric(name, label.description)
      case MetricKind.Time => StateStoreCustomTimingMetric(name, label.description)
      case MetricKind.Size => StateStoreCustomSizeMetric(name, label.description)
    }
    new Metric(spark, Some(label), value)
  }

  /** One of Spark's, under its name. */
  def ofSpark[A](metric: StateStoreCustomMetric)(value: A => Long): Metric[A] =
    new Metric(metric, None, value)
}
