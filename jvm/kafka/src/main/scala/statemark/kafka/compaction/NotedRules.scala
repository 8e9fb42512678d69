package statemark.kafka.compaction

import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.TopicPartition
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Using
import scala.util.control.NonFatal
import statemark.common.Clock
import statemark.kafka.RowConsumer
import statemark.kafka.clients.{KafkaClients, KafkaFailures, TopicChecks}
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkSettings}
import statemark.kafka.log.{RuleCodec, RuleRecord}

/** Rules of repaired topics, as the commit topic has them (FORMAT.md, section 3). What was read stays read.
  *
  * ''Thread:'' one at a time.
  */
private[kafka] final class NotedRules private (
    sink: SinkSettings,
    clients: KafkaClients,
    clock: Clock,
    partitions: Seq[Int],
    isWanted: String => Boolean,
    mostMs: Long = Long.MaxValue
) {
  import NotedRules._

  private val places = partitions.map(new TopicPartition(sink.commitTopic, _)).toVector
  private val found = mutable.Map.empty[String, RuleRecord]
  private var next = Map.empty[TopicPartition, Long]

  /** Reads on to the end of the commit topic. Rules lie in no transactions, so open ones are not waited for.
    * @return the rules by their topics; Left where the commit topic cannot be looked at, with the reason
    * @throws SinkException.UnreadableRecord where another release has written a rule that is wanted
    */
  def read(): Either[String, Map[String, RuleRecord]] =
    try Using.resource(clients.admin())(TopicChecks.describe(_, sink.commitTopic)) match {
        case None => Left(s"topic ${sink.commitTopic} is not there")
        case Some(topic) if topic.partitions.size < SinkIdentity.CommitPartitions =>
          Left(
            s"topic ${sink.commitTopic} has ${topic.partitions.size} partitions, and is no commit topic"
          )
        case Some(_) =>
          if (Using.resource(clients.consumer(committedOnly = false))(readOn)) Right(found.toMap)
          else Left(s"topic ${sink.commitTopic} was not read to its end within $mostMs ms")
      }
    catch {
      case NonFatal(e) if KafkaFailures.isDenied(e) =>
        Left(s"the user may not read topic ${sink.commitTopic}")
    }

  private def readOn(consumer: RowConsumer): Boolean = {
    val beganNanos = clock.nanos()
    val reader = new TopicReader(consumer, places, clock, PatienceMs)
    val ends = consumer.endOffsets(places.asJava).asScala
    // A topic that was made anew ends before what was read of the old one.
    if (next.exists { case (place, offset) => ends(place) < offset }) {
      next = Map.empty
      found.clear()
    }
    next.foreach { case (place, offset) => consumer.seek(place, offset) }
    val isWhole = reader.readOn(Map.empty) { record =>
      RuleCodec.topicOf(record.key).filter(isWanted).foreach { topic =>
        Option(record.value) match {
          case Some(value) => found(topic) = RuleCodec.decode(topic, value)
          case None => found.remove(topic): Unit
        }
      }
    }(_ => (clock.nanos() - beganNanos) / 1000000L >= mostMs)
    next = reader.positions
    isWhole
  }

  /** Notes a rule in place of the topic's earlier one.
    * @return why that could not be done, where it could not
    */
  def write(record: RuleRecord): Option[String] =
    send(record.topic, Some(RuleCodec.value(record)))

  /** Removes the rule of a topic.
    * @return why that could not be done, where it could not
    */
  def remove(topic: String): Option[String] = send(topic, None)

  private def send(topic: String, value: Option[Array[Byte]]): Option[String] =
    try Using.resource(KafkaClients.copier(sink, MostBytes, largest = 0)) { producer =>
        producer.send(new ProducerRecord(
          sink.commitTopic,
          RuleCodec.partitionOf(topic),
          RuleCodec.key(topic),
          value.orNull
        )).get(): Unit
        None
      }
    catch {
      case NonFatal(e) if !KafkaFailures.isInterrupt(e) =>
        Some(SinkException.sentence(KafkaFailures.unwrapped(e).getMessage))
    }
}

private[kafka] object NotedRules {
  private val PatienceMs = 60L * 1000
  private val MostBytes = 1L << 20

  /** The rule of one topic. */
  def of(sink: SinkSettings, clients: KafkaClients, clock: Clock, topic: String): NotedRules =
    new NotedRules(sink, clients, clock, Seq(RuleCodec.partitionOf(topic)), _ == topic)

  /** The rules of topics.
    * @param names of the topics; None where only a condition is known, for which all partitions are read
    * @param mostMs for how long they are read, in milliseconds
    */
  def of(sink: SinkSettings, names: Option[Seq[String]], mostMs: Long)(
      isWanted: String => Boolean
  ): NotedRules = new NotedRules(
    sink,
    KafkaClients.of(sink),
    Clock.system,
    names.fold[Seq[Int]](0 until SinkIdentity.CommitPartitions)(
      _.map(RuleCodec.partitionOf).distinct
    ),
    isWanted,
    mostMs
  )
}
