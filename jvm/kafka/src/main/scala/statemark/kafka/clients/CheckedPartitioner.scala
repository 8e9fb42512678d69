package statemark.kafka.clients

import java.util.{Map => JavaMap}
import org.apache.kafka.clients.producer.{Partitioner, ProducerConfig, ProducerRecord}
import org.apache.kafka.common.Cluster
import scala.util.control.NonFatal
import statemark.kafka.conf.{ClientOptions, SinkException}

/** The user's partitioner. The client passes its exceptions on as they are, and asks the brokers for ever for a partition that
  * the topic has not got: here both are failures of the option, by name. ''Thread:'' any.
  */
final class CheckedPartitioner extends NewBatches {
  import CheckedPartitioner.{failure, Own}

  private var own = Option.empty[Partitioner]

  override protected def partitioner: Partitioner =
    own.getOrElse(throw new IllegalStateException("It was not configured"))

  override def configure(configs: JavaMap[String, _]): Unit = {
    own = Option(configs.get(Own)).collect { case of: Class[_] =>
      of.getDeclaredConstructor().newInstance()
    }.collect { case made: Partitioner => made }
    partitioner.configure(configs)
    look()
  }

  override def partition(
      topic: String,
      key: Any,
      keyBytes: Array[Byte],
      value: Any,
      valueBytes: Array[Byte],
      cluster: Cluster
  ): Int = {
    def row = KafkaFailures.valuesOf(new ProducerRecord(topic, keyBytes, valueBytes))
    val chosen =
      try partitioner.partition(topic, key, keyBytes, value, valueBytes, cluster)
      catch {
        case NonFatal(e) if !KafkaFailures.isInterrupt(e) =>
          throw failure(partitioner, s"threw $e", row, Some(e))
      }
    val count = Option(cluster.partitionCountForTopic(topic)).map(_.intValue)
    if (chosen < 0 || count.exists(chosen >= _)) throw failure(
      partitioner,
      s"put a row into partition $chosen, and its topic has ${count.fold("others")(_.toString)}",
      row,
      None
    )
    chosen
  }

  override protected def failed(cause: Throwable): RuntimeException =
    failure(partitioner, s"threw $cause", Map.empty, Some(cause))

  override def close(): Unit = own.foreach(_.close())
}

private[kafka] object CheckedPartitioner {
  private val Own = "statemark.partitioner"

  /** Returns what puts the check around the user's partitioner, if the options name one. */
  def options(kafka: Map[String, String]): Map[String, Object] =
    ClientOptions.ownPlugin(kafka, ProducerConfig.PARTITIONER_CLASS_CONFIG)
      .fold(Map.empty[String, Object]) { of =>
        Map(
          ProducerConfig.PARTITIONER_CLASS_CONFIG -> classOf[CheckedPartitioner],
          Own -> of
        )
      }

  private def failure(
      of: Partitioner,
      reason: String,
      row: Map[String, String],
      cause: Option[Throwable]
  ) = {
    val option = s"kafka.${ProducerConfig.PARTITIONER_CLASS_CONFIG}"
    new SinkException.RefusedSetting(
      s"The partitioner of option '$option' failed",
      s"it $reason",
      "Correct the class, or leave the option out. Where the topic has got more partitions just now, start the query " +
        "again",
      row ++ Map("option" -> option, "class" -> of.getClass.getName),
      cause
    )
  }
}
