package statemark.kafka.log

import java.util.{Collections, Optional}
import org.apache.kafka.clients.admin.{Admin, CreateTopicsOptions, NewTopic, TopicDescription}
import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.errors.{InvalidReplicationFactorException, TopicExistsException}
import scala.jdk.CollectionConverters._
import scala.util.Try
import scala.util.control.NonFatal
import statemark.kafka.clients.{KafkaFailures, TopicChecks, TopicLookup}
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkSettings}

/** The topic of decisions and tokens. */
object CommitTopic {

  /** Partitions of a commit topic that the sink makes. */
  val Partitions: Int = SinkIdentity.CommitPartitions

  def partitionOf(settings: SinkSettings, identity: SinkIdentity): TopicPartition =
    new TopicPartition(settings.commitTopic, identity.commitPartition)

  private[kafka] def record(
      place: TopicPartition,
      record: CommitRecord
  ): ProducerRecord[Array[Byte], Array[Byte]] =
    new ProducerRecord(
      place.topic,
      place.partition,
      RecordCodec.key(record),
      RecordCodec.value(record)
    )

  /** Removes what has the key. */
  private[kafka] def tombstone(
      place: TopicPartition,
      key: Array[Byte]
  ): ProducerRecord[Array[Byte], Array[Byte]] =
    new ProducerRecord[Array[Byte], Array[Byte]](place.topic, place.partition, key, NoValue)

  /** Kafka's tombstone is a record without value. */
  private val NoValue: Array[Byte] = Option.empty[Array[Byte]].orNull

  /** Makes the topic where it is absent.
    * @return its partitions if it was there
    * @throws SinkException.UnfitCluster where it may not be made, or has too few partitions
    */
  private[kafka] def ensure(admin: Admin, settings: SinkSettings): Option[Int] = {
    val name = settings.commitTopic
    TopicChecks.describe(admin, name) match {
      case Some(topic) =>
        requirePartitions(topic)
        Some(topic.partitions.size)
      case None =>
        create(admin, settings, new CreateTopicsOptions): Unit
        None
    }
  }

  /** @throws SinkException.UnfitCluster where the commit topic has too few partitions */
  private[kafka] def requirePartitions(topic: TopicDescription): Unit =
    if (topic.partitions.size < Partitions) throw new SinkException.UnfitCluster(
      "The commit topic has too few partitions",
      s"an identity's records lie in the partition that its hash modulo $Partitions says",
      s"Make the topic with $Partitions partitions and cleanup.policy=compact, or name another " +
        "one in option 'commitTopic'",
      Map("commitTopic" -> topic.name, "partitions" -> topic.partitions.size.toString)
    )

  /** Asks whether the topic could be made, and makes nothing.
    * @return how many copies of its records there would be; None where the brokers do not say, or it is there by now
    * @throws SinkException.UnfitCluster where it may not be made
    */
  private[kafka] def couldBeMade(admin: Admin, settings: SinkSettings): Option[Int] =
    create(admin, settings, new CreateTopicsOptions().validateOnly(true))

  /** Whether the topic is there, as far as the broker that is asked knows, and has all its partitions. */
  private[kafka] def isThere(admin: Admin, settings: SinkSettings): Boolean =
    TopicChecks.describe(admin, settings.commitTopic).exists(_.partitions.size >= Partitions)

  private def create(
      admin: Admin,
      settings: SinkSettings,
      options: CreateTopicsOptions
  ): Option[Int] = {
    val replication = settings.commitTopicReplication
    val topic = new NewTopic(
      settings.commitTopic,
      Optional.of[Integer](Partitions),
      if (replication < 0) Optional.empty[java.lang.Short]
      else Optional.of[java.lang.Short](replication)
    ).configs(Map("cleanup.policy" -> "compact").asJava)
    // A broker that starts counts from its first heartbeat on.
    def isFewer(e: Throwable) =
      KafkaFailures.unwrapped(e).isInstanceOf[InvalidReplicationFactorException]
    try
      TopicLookup.again(isFewer) {
        val made = admin.createTopics(Collections.singleton(topic), options)
        made.all().get(): Unit
        Try(made.replicationFactor(settings.commitTopic).get().toInt).toOption.filter(_ > 0)
      }
    catch {
      case NonFatal(e) =>
        KafkaFailures.unwrapped(e) match {
          case _: TopicExistsException => None // another sink was first
          case cause =>
            throw new SinkException.UnfitCluster(
              "The commit topic cannot be made",
              SinkException.sentence(cause.getMessage),
              if (isFewer(cause))
                "Are all brokers up? Where there are few, option 'commitTopicReplicationFactor' says " +
                  "how often its records are kept"
              else
                s"Let the user create topics, or make it: $Partitions partitions, " +
                  "cleanup.policy=compact, replicated as your data is",
              Map(
                "commitTopic" -> settings.commitTopic,
                "commitTopicReplicationFactor" -> settings.commitTopicReplication.toString
              ),
              Some(cause)
            )
        }
    }
  }
}
