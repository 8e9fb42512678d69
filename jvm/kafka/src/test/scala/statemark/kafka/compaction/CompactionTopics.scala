package statemark.kafka.compaction

import java.nio.ByteBuffer
import java.util.concurrent.atomic.AtomicLong
import org.apache.kafka.clients.admin.{AlterConfigOp, ConfigEntry}
import org.apache.kafka.clients.consumer.ConsumerRecord
import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.config.ConfigResource
import org.scalatest.{BeforeAndAfterAll, Suite}
import scala.jdk.CollectionConverters._
import statemark.common.Clock
import statemark.kafka.{RowProducer, TestBrokers}
import statemark.kafka.clients.KafkaClients
import statemark.kafka.conf.SinkSettings

/** Topics of which a test repairs the order, and what they hold. */
trait CompactionTopics extends BeforeAndAfterAll { this: Suite =>
  protected type Record = ConsumerRecord[Array[Byte], Array[Byte]]
  protected val brokers: TestBrokers = TestBrokers.shared
  protected val settings: SinkSettings =
    SinkSettings.of(Map("kafka.bootstrap.servers" -> brokers.bootstrap))
  protected lazy val producer: RowProducer = KafkaClients.copier(settings, 1 << 20, 8 << 20)
  protected val Version: VersionRule = VersionRule.Header("version")
  // The cleaner has nothing to do in these topics, unless a test lets it.
  protected val Held: Map[String, String] =
    Map("cleanup.policy" -> "compact", "min.compaction.lag.ms" -> s"${Long.MaxValue}")
  private val ids = new AtomicLong

  override protected def afterAll(): Unit = producer.close()

  protected def topic(name: String, config: Map[String, String] = Held): String =
    brokers.topic(s"compact-$name", config = config)

  /** @param headers values of header `version` */
  protected def write(
      topic: String,
      key: String,
      value: String,
      partition: Int = 0,
      timestampMs: Option[Long] = None,
      headers: Seq[Array[Byte]] = Nil
  ): Unit = {
    val record = new ProducerRecord(
      topic,
      Int.box(partition),
      timestampMs.map(Long.box).orNull,
      Option(key).map(_.getBytes).orNull,
      Option(value).map(_.getBytes).orNull
    )
    headers.foreach(record.headers.add("version", _))
    record.headers.add("id", newId())
    producer.send(record).get(): Unit
  }

  /** The value of a header that every record has, by which copies are known. */
  protected def newId(): Array[Byte] = number(ids.incrementAndGet())

  protected def number(n: Long): Array[Byte] = ByteBuffer.allocate(8).putLong(n).array

  protected def versioned(
      topic: String,
      key: String,
      value: String,
      version: Long,
      partition: Int = 0
  ): Unit = write(topic, key, value, partition, headers = Seq(number(version)))

  /** Writes a winner, and then a loser, of each key. */
  protected def disordered(topic: String, keys: String*): Unit = keys.foreach { key =>
    versioned(topic, key, "winner", 5)
    versioned(topic, key, "loser", 4)
  }

  protected def compaction(
      topic: String,
      rule: VersionRule = Version,
      seams: RepairSeams = RepairSeams(),
      progress: CompactionProgress = CompactionProgress.none,
      lateness: Option[Long] = None,
      holds: Boolean = false,
      clock: Clock = Clock.system,
      sink: SinkSettings = settings,
      missing: MissingVersion = MissingVersion.Oldest,
      changesRule: Boolean = false
  ): TopicCompaction = new TopicCompaction(
    sink,
    CompactionSettings(topic, rule, lateness, holds, None, missing, changesRule, "alice"),
    progress,
    KafkaClients.of(sink),
    clock,
    seams
  )

  protected def last(records: Seq[Record]): Map[(Int, String), Record] =
    records.filter(_.key != null).groupBy(r => (r.partition, new String(r.key))).view
      .mapValues(_.maxBy(_.offset)).toMap

  /** The values of the last records, by key. */
  protected def kept(topic: String): Map[String, String] =
    last(brokers.read(topic)).map { case ((_, key), record) =>
      key -> Option(record.value).fold("none")(new String(_))
    }

  /** The lag, and whether the topic has it itself. */
  protected def lagOf(topic: String): (String, Boolean) = {
    val entry = entryOf(topic, "min.compaction.lag.ms")
    (entry.value, entry.source == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG)
  }

  protected def isHeld(topic: String): Boolean =
    lagOf(topic)._1.toLong > System.currentTimeMillis()

  private def entryOf(topic: String, name: String): ConfigEntry = {
    val resource = new ConfigResource(ConfigResource.Type.TOPIC, topic)
    brokers.admin.describeConfigs(java.util.List.of(resource)).all().get().get(resource).get(name)
  }

  /** Sets a setting, and waits until the broker has heard of it. */
  protected def configure(topic: String, name: String, value: String): Unit = {
    val change = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)
    brokers.admin.incrementalAlterConfigs(Map(
      new ConfigResource(ConfigResource.Type.TOPIC, topic) ->
        (java.util.List.of(change): java.util.Collection[AlterConfigOp])
    ).asJava).all().get(): Unit
    while (entryOf(topic, name).value != value) Thread.onSpinWait()
  }

  /** Listens, and does nothing. */
  protected class CompactionListener extends CompactionProgress {
    override def scanned(records: Long, ahead: Long): Unit = ()
    override def repaired(appended: Long, left: Long): Unit = ()
    override def said(line: String): Unit = ()
    override def isStopped: Boolean = false
  }
}
