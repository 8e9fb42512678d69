package statemark.spark.metrics

import java.util.Locale
import org.apache.spark.sql.execution.streaming.state._
import statemark.spark.local.LoadedStore

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
  * @param kafka its name in Kafka Streams, with KIP-892: that of a metric, or of the method that returns it
  */
final case class MetricLabel(
    name: String,
    kind: MetricKind,
    text: String,
    kafka: Option[String] = None
) {
  def description: String = s"Statemark: $text"

  /** What users see of its gauge. */
  def asGauge: GaugeLabel = {
    val plain = name.stripPrefix("statemark")
    GaugeLabel(plain.take(1).toLowerCase(Locale.ROOT) + plain.drop(1), kind.unit, kafka)
  }
}

/** What users see of a gauge. */
final case class GaugeLabel(name: String, unit: String, kafka: Option[String])

object MetricLabel {

  /** Of the one that Spark shows store by store, where the line of Spark can. */
  val CommitLatencyMax: MetricLabel =
    MetricLabel(
      "statemarkCommitLatencyMsMax",
      MetricKind.Time,
      "commit latency of a store, ms",
      Some("commit-latency-max")
    )
}

/** A metric: a row of the table of [[StoreMetrics]].
  *
  * @param label None for one of Spark's own
  * @param now what an open store has of it, where that is what its gauge shows, and not a sum over commits
  * @param value what it is, in what was measured
  */
final class Metric[-A] private (
    val spark: StateStoreCustomMetric,
    val label: Option[MetricLabel],
    val now: Option[LoadedStore => Long],
    val value: A => Long
) {
  def name: String = spark.name

  /** The same metric of something that has what this one measures. */
  def in[B](part: B => A): Metric[B] = new Metric(spark, label, now, (b: B) => value(part(b)))

  /** The same metric, whose gauge shows what the open stores have now. */
  def showing(ofStore: LoadedStore => Long): Metric[A] =
    new Metric(spark, label, Some(ofStore), value)

  /** The same metric, with its name in Kafka Streams. */
  def asIn(kafka: String): Metric[A] =
    new Metric(spark, label.map(_.copy(kafka = Some(kafka))), now, value)
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
    new Metric(spark, Some(label), None, value)
  }

  /** One of Spark's, under its name. */
  def ofSpark[A](metric: StateStoreCustomMetric)(value: A => Long): Metric[A] =
    new Metric(metric, None, None, value)
}
