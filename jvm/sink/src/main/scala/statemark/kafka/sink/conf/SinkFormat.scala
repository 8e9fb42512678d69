package statemark.kafka.sink.conf

import statemark.kafka.conf.SinkException

/** The format by its name, and how it refuses. Nothing here names a class of Kafka's. */
private[sink] object SinkFormat {
  val Name: String = "statemark-kafka"

  /** The error of a way to write that cannot be exactly-once. */
  def refused(what: String, why: String, remedy: String, value: String): SinkException =
    new SinkException.RefusedSetting(
      s"$what is refused by format '$Name'",
      why,
      remedy,
      Map("refused" -> value)
    )
}
