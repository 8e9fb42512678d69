package statemark.kafka.clients

import java.util.{Map => JavaMap, Set => JavaSet}
import org.apache.kafka.clients.admin.{Admin, AdminClientConfig}
import org.apache.kafka.clients.consumer.{ConsumerConfig, KafkaConsumer}
import org.apache.kafka.clients.producer.{KafkaProducer, ProducerConfig}
import org.apache.kafka.common.serialization.{ByteArrayDeserializer, ByteArraySerializer}
import scala.jdk.CollectionConverters._
import statemark.kafka.{RowConsumer, RowProducer}
import statemark.kafka.conf.SinkSettings

/** Makes clients of the brokers that the settings name. Whoever asks for one closes it. */
trait KafkaClients {

  /** A producer whose transactions are not initialized. */
  def producer(transactionalId: String): RowProducer

  /** A consumer without a group that throws where an offset is not there.
    * @param committedOnly whether it leaves rows out of transactions that were aborted, and waits for open ones
    */
  def consumer(committedOnly: Boolean): RowConsumer

  def admin(): Admin
}

object KafkaClients {

  /** Clients of Kafka's own library. */
  def of(settings: SinkSettings): KafkaClients = new KafkaClients {

    override def producer(transactionalId: String): RowProducer = {
      val own = Map("transactional.id" -> transactionalId) ++
        Option.when(!settings.kafka.contains("client.id"))("client.id" -> transactionalId)
      val bytes = new ByteArraySerializer
      new KafkaProducer(known(ProducerConfig.configNames, settings.kafka ++ own), bytes, bytes)
    }

    override def consumer(committedOnly: Boolean): RowConsumer = {
      val own = Map(
        "isolation.level" -> (if (committedOnly) "read_committed" else "read_uncommitted"),
        "auto.offset.reset" -> "none",
        "enable.auto.commit" -> "false",
        // A request at the end of a partition waits for rows, and all that comes after it to the same broker waits with it:
        // other partitions, and the consumer's close. Half a second by default.
        "fetch.max.wait.ms" -> "10",
        "allow.auto.create.topics" -> "false"
      )
      val bytes = new ByteArrayDeserializer
      val theirs = settings.kafka - "group.id" - "group.instance.id"
      new KafkaConsumer(known(ConsumerConfig.configNames, theirs ++ own), bytes, bytes)
    }

    override def admin(): Admin = {
      // A fence is asked for again until the outcome of a transaction is written: at first soon, and twice as late each time.
      val soon = Map("retry.backoff.ms" -> "20")
      Admin.create(known(AdminClientConfig.configNames, soon ++ settings.kafka))
    }
  }

  /** An idempotent producer without transactions.
    * @param mostBytes of a record that it takes
    */
  def copier(settings: SinkSettings, mostBytes: Long): RowProducer = {
    val most = math.min(Int.MaxValue.toLong, mostBytes + RequestBytes)
    val bytes = new ByteArraySerializer
    val size =
      Option.when(!settings.kafka.contains("max.request.size"))("max.request.size" -> s"$most")
    val theirs = settings.kafka - "transaction.timeout.ms"
    new KafkaProducer(known(ProducerConfig.configNames, theirs ++ size), bytes, bytes)
  }

  // What a request has besides its records.
  private val RequestBytes = 64L << 10

  /** What a client of this kind knows; of the rest it would say in the log that it does not. */
  private def known(names: JavaSet[String], settings: Map[String, String]) = {
    val kept = settings.filter { case (name, _) =>
      names.contains(name) || name.startsWith("sasl.") || name.startsWith("ssl.") ||
      name.startsWith("security.")
    }
    kept.asJava.asInstanceOf[JavaMap[String, Object]]
  }
}
