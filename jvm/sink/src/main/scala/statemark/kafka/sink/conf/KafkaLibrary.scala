package statemark.kafka.sink.conf

import org.apache.spark.SPARK_VERSION
import statemark.kafka.conf.SinkException

/** Kafka's client library, which Statemark leaves to the user: Spark's own connector brings it. */
private[sink] object KafkaLibrary {

  val Missing: String =
    "Kafka's client library (org.apache.kafka:kafka-clients) is not on the class path"

  /** What brings it to Spark. */
  val Packages: String =
    s"--packages org.apache.spark:spark-sql-kafka-0-10_2.13:$SPARK_VERSION"

  /** Fails where the library is not on the class path of `loader`. */
  def require(loader: ClassLoader): Unit = absence(loader).foreach { e =>
    throw new SinkException.MissingLibrary(
      Missing,
      s"Start Spark with $Packages, which brings it, or with --jars and kafka-clients",
      e
    )
  }

  /** Why the library is not there, where it is not on the class path of `loader`. */
  def absence(loader: ClassLoader): Option[ClassNotFoundException] =
    try {
      Class.forName("org.apache.kafka.clients.producer.KafkaProducer", false, loader): Unit
      None
    } catch { case e: ClassNotFoundException => Some(e) }
}
