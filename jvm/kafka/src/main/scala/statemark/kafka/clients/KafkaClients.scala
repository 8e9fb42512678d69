package statemark.kafka.clients

import java.time.Duration
import java.util.{HashMap, Set => JavaSet}
import org.apache.kafka.clients.admin.{Admin, AdminClientConfig, ForwardingAdmin}
import org.apache.kafka.clients.consumer.{ConsumerConfig, KafkaConsumer}
import org.apache.kafka.clients.producer.{KafkaProducer, ProducerConfig}
import org.apache.kafka.common.serialization.{ByteArrayDeserializer, ByteArraySerializer}
import scala.jdk.CollectionConverters._
import statemark.kafka.{RowConsumer, RowProducer}
import statemark.kafka.conf.{ClientOptions, SinkSettings}

/** Makes clients of the brokers that the settings name. Whoever asks for one closes it. */
trait KafkaClients {

  /** A producer whose transactions are not initialized. */
  def producer(transactionalId: String): RowProducer

  /** A consumer without a group that throws where an offset is not there.
    * @param committedOnly whether it leaves rows out of transactions that were aborted, and waits for open ones
    */
  def consumer(committedOnly: Boolean): RowConsumer

  /** A client for topics and transactions, whose close ends the calls that run. */
  def admin(): Admin
}

object KafkaClients {

  /** Clients of Kafka's own library. */
  def of(settings: SinkSettings): KafkaClients = new KafkaClients {

    override def producer(transactionalId: String): RowProducer = {
      val own = Map("transactional.id" -> transactionalId) ++
        Option.when(!settings.kafka.contains("client.id"))("client.id" -> transactionalId)
      val bytes = new ByteArraySerializer
      KafkaFailures.making(settings) {
        val all = known(ProducerConfig.configNames, settings.kafka ++ own)
        all.putAll(CheckedPartitioner.options(settings.kafka).asJava)
        new KafkaProducer(all, bytes, bytes)
      }
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
      val all = known(ConsumerConfig.configNames, settings.kafka ++ own)
      KafkaFailures.making(settings)(new KafkaConsumer(all, bytes, bytes))
    }

    override def admin(): Admin = {
      // A fence is asked for again until the outcome of a transaction is written: at first soon, and twice as late each time.
      val soon = Map("retry.backoff.ms" -> "20")
      val all = known(AdminClientConfig.configNames, soon ++ settings.kafka)
      KafkaFailures.making(settings)(new ForwardingAdmin(all) {
        // Answers that somebody wants are waited for where they are asked for: others would keep whoever closes, for a
        // minute where no broker answers.
        override def close(): Unit = close(Duration.ZERO)
      })
    }
  }

  /** An idempotent producer without transactions, for records that a topic has taken before.
    * @param mostBytes of a batch that the topic takes
    * @param largest about how large a record is at most, which may have been compressed
    */
  def copier(settings: SinkSettings, mostBytes: Long, largest: Int): RowProducer = {
    val most = math.min(Int.MaxValue / 2L, math.max(mostBytes, MostBytes) + RequestBytes)
    val own = Map("max.request.size" -> most.toString, "buffer.memory" -> (2 * most).toString)
    val compression =
      Map("compression.type" -> "zstd").filter(_ => largest > mostBytes - RequestBytes)
    // A batch that is too large for a topic is sent for ever where it is not larger than this (KAFKA-8350).
    val batch = "batch.size" -> math.min(settings.batchBytes, mostBytes).toString
    val theirs = settings.kafka - "transaction.timeout.ms"
    val all = compression ++ theirs ++ own + batch
    val bytes = new ByteArraySerializer
    KafkaFailures.making(settings)(
      new KafkaProducer(known(ProducerConfig.configNames, all), bytes, bytes)
    )
  }

  // What a request has besides its records.
  private val RequestBytes = 64L << 10

  // What brokers take of a request by default, about: records that were compressed are larger than the topic's limit.
  private val MostBytes = 90L << 20

  /** What a client of this kind and its plugins can read; of the rest it would say in the log that it does not. */
  private def known(names: JavaSet[String], settings: Map[String, String]) =
    new HashMap[String, Object](ClientOptions.of(names.asScala.toSet, settings).asJava)
}
