package statemark.kafka.sink.conf

import org.apache.spark.SPARK_VERSION

/** Kafka's client library, which Statemark leaves to the user: Spark's own connector brings it. */
private[sink] object KafkaLibrary {

  /** Fails where the library is not on the class path of `loader`. */
  def require(loader: ClassLoader): Unit =
    try Class.forName("org.apache.kafka.clients.producer.KafkaProducer", false, loader): Unit
    catch {
      case e: ClassNotFoundException => throw new IllegalStateException(
          s"Format '${SinkFormat.Name}' cannot be used: Kafka's client library " +
            "(org.apache.kafka:kafka-clients) is not on the class path. Start Spark with --packages " +
            s"org.apache.spark:spark-sql-kafka-0-10_2.13:$SPARK_VERSION, which brings it.",
          e
        )
    }
}
