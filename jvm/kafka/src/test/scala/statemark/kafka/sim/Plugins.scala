package statemark.kafka.sim

import java.util.{List => JList, Map => JMap, Set => JSet}
import java.util.concurrent.ConcurrentHashMap
import org.apache.kafka.clients.producer.Partitioner
import org.apache.kafka.common.{Cluster, Configurable}
import org.apache.kafka.common.config.ConfigData
import org.apache.kafka.common.config.provider.ConfigProvider
import org.apache.kafka.common.metrics.{KafkaMetric, MetricsReporter}
import scala.jdk.CollectionConverters._

/** Plugins of a user's, and what they were configured with. */
object Plugins {

  /** By the class of the plugin: every map that one was given. */
  val seen = new ConcurrentHashMap[String, Set[Map[String, String]]]

  private[sim] def note(plugin: Configurable, configs: JMap[String, _]): Unit = {
    val texts = configs.asScala.collect { case (name, value: String) => name -> value }.toMap
    val before = (known: Set[Map[String, String]]) => known + texts
    seen.compute(
      plugin.getClass.getSimpleName,
      (_, known) => before(Option(known).getOrElse(Set.empty))
    ): Unit
  }
}

/** Chooses a partition without looking at the row. */
abstract class BlindPartitioner extends Partitioner {
  protected def chosen: Int

  override def partition(
      topic: String,
      key: Any,
      keyBytes: Array[Byte],
      value: Any,
      valueBytes: Array[Byte],
      cluster: Cluster
  ): Int = chosen

  override def close(): Unit = ()
}

/** Puts every row into the partition that its own option names. */
class ModuloPartitioner extends BlindPartitioner {
  private var only = 0

  override def configure(configs: JMap[String, _]): Unit = {
    Plugins.note(this, configs)
    only = Option(configs.get("modulo.Only")).fold(0)(_.toString.toInt)
  }

  override protected def chosen: Int = only
}

/** Does with each row what its own option says: fails, or names a partition, which need not be there. */
class OddPartitioner extends BlindPartitioner {
  private var does = ""

  override def configure(configs: JMap[String, _]): Unit = does = configs.get("odd.does").toString

  override protected def chosen: Int =
    does.toIntOption.getOrElse(throw new IllegalStateException(does))
}

/** Cannot be configured. */
class FailingReporter extends NotingReporter {
  override def configure(configs: JMap[String, _]): Unit =
    throw new IllegalArgumentException("there is nobody to report to")
}

class NotingReporter extends MetricsReporter {
  override def configure(configs: JMap[String, _]): Unit = Plugins.note(this, configs)
  override def init(metrics: JList[KafkaMetric]): Unit = ()
  override def metricChange(metric: KafkaMetric): Unit = ()
  override def metricRemoval(metric: KafkaMetric): Unit = ()
  override def close(): Unit = ()
}

/** Looks a value up: the key, behind what its own parameter says. */
class EchoProvider extends ConfigProvider {
  private var greeting = ""

  override def configure(configs: JMap[String, _]): Unit =
    greeting = Option(configs.get("Greeting")).fold("")(_.toString)

  override def get(path: String): ConfigData = get(path, JSet.of())

  override def get(path: String, keys: JSet[String]): ConfigData =
    new ConfigData(keys.asScala.map(key => key -> s"$greeting$key").toMap.asJava)

  override def close(): Unit = ()
}
