package statemark.kafka

import java.io.{BufferedReader, File, InputStreamReader, PrintWriter}
import java.nio.file.Files
import java.time.Duration
import java.util.Properties
import java.util.concurrent.ExecutionException
import org.apache.kafka.clients.admin.{Admin, NewTopic, OffsetSpec}
import org.apache.kafka.clients.consumer.{ConsumerRecord, KafkaConsumer}
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.errors.InvalidReplicationFactorException
import org.apache.kafka.common.serialization.ByteArrayDeserializer
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Try

/** Brokers in processes of their own: `tests/support/broker_server.py` starts them, and kills them when it is told to. */
final class TestBrokers(
    nodes: Int = 1,
    settings: Map[String, String] = Map.empty,
    secured: Boolean = false
) extends AutoCloseable {
  private val folder = Files.createTempDirectory("statemark-brokers-")
  private val process = {
    val python = sys.props("statemark.python")
    val command =
      Seq(python, "-m", "support.broker_server", folder.toString, "--nodes", s"$nodes") ++
        settings.flatMap { case (name, value) => Seq("--set", s"$name=$value") } ++
        Option.when(secured)("--secured")
    val builder = new ProcessBuilder(command.asJava).directory(TestBrokers.root)
      .redirectError(ProcessBuilder.Redirect.INHERIT)
    builder.environment.put("PYTHONPATH", "tests")
    builder.start()
  }
  private val out = new PrintWriter(process.getOutputStream, true)
  private val in = new BufferedReader(new InputStreamReader(process.getInputStream))

  private val told: Array[String] =
    Option(in.readLine()).getOrElse(sys.error("No broker has started")).split(' ')

  val bootstrap: String = told(0)

  /** What a client has to be told to be a user, of those of brokers that are secured. */
  def login(user: String = "writer"): Map[String, String] = Map(
    "bootstrap.servers" -> told(1),
    "security.protocol" -> "SASL_SSL",
    "sasl.mechanism" -> "PLAIN",
    "sasl.jaas.config" ->
      ("org.apache.kafka.common.security.plain.PlainLoginModule required " +
        s"username=$user password=${TestBrokers.passwordOf(user)};"),
    "ssl.truststore.type" -> "PEM",
    "ssl.truststore.location" -> told(2)
  )

  def kill(node: Int): Unit = command(s"kill $node")
  def start(node: Int): Unit = command(s"start $node")
  def awaitNodes(): Unit = command("wait")

  val admin: Admin =
    Admin.create(Map[String, Object]("bootstrap.servers" -> bootstrap).asJava)

  /** Makes a topic; what this returns is its name. */
  def topic(name: String, partitions: Int = 4, config: Map[String, String] = Map.empty): String = {
    val topic = new NewTopic(
      name,
      java.util.Optional.of[Integer](partitions),
      java.util.Optional.empty[java.lang.Short]
    )
    val wanted = List(topic.configs(config.asJava)).asJava
    // On a busy machine a broker may miss its heartbeats, and counts as gone until the next one.
    var isMade = false
    while (!isMade)
      try {
        admin.createTopics(wanted).all().get()
        isMade = true
      } catch {
        case e: ExecutionException
            if e.getCause.isInstanceOf[InvalidReplicationFactorException] =>
          Thread.onSpinWait()
      }
    // A leader is named before its broker knows. Of an idempotent producer it may then refuse the first batch and take the
    // second, and the first is out of order until it expires.
    val places = (0 until partitions).map(n => new TopicPartition(name, n) -> OffsetSpec.latest())
    while (Try(admin.listOffsets(places.toMap.asJava).all().get()).isFailure) Thread.onSpinWait()
    name
  }

  def has(topic: String): Boolean = admin.listTopics().names().get().contains(topic)

  def deleteTopic(name: String): Unit = {
    admin.deleteTopics(List(name).asJava).all().get(): Unit
    while (has(name)) Thread.onSpinWait()
  }

  /** All records of a topic up to the end, by a consumer that shares no code with the sink. */
  def read(
      topic: String,
      committed: Boolean = true
  ): Vector[ConsumerRecord[Array[Byte], Array[Byte]]] = {
    val properties = new Properties
    properties.put("bootstrap.servers", bootstrap)
    properties.put("isolation.level", if (committed) "read_committed" else "read_uncommitted")
    properties.put("enable.auto.commit", "false")
    // The end of a partition is told at once, and not after half a second.
    properties.put("fetch.max.wait.ms", "10")
    val bytes = new ByteArrayDeserializer
    val consumer = new KafkaConsumer(properties, bytes, bytes)
    try {
      val places = consumer.partitionsFor(topic).asScala
        .map(p => new TopicPartition(topic, p.partition)).asJava
      consumer.assign(places)
      consumer.seekToBeginning(places)
      // The end is the last stable offset for a reader of committed rows.
      val ends = consumer.endOffsets(places).asScala
      val found = mutable.ArrayBuffer.empty[ConsumerRecord[Array[Byte], Array[Byte]]]
      while (ends.exists { case (place, end) => consumer.position(place) < end })
        found ++= consumer.poll(Duration.ofMillis(100)).asScala
      found.toVector
    } finally consumer.close()
  }

  override def close(): Unit = {
    admin.close()
    out.close()
    process.waitFor(): Unit
  }

  private def command(line: String): Unit = synchronized {
    out.println(line)
    val answer = in.readLine()
    assert(answer == "done", answer)
  }
}

object TestBrokers {

  /** As `tests/support/brokers.py` has it. */
  def passwordOf(user: String): String = s"secret-of-$user"

  /** One for all suites of the process; it ends with the process. */
  lazy val shared: TestBrokers = {
    val brokers = new TestBrokers()
    sys.addShutdownHook(brokers.close()): Unit
    brokers
  }

  private val root: File =
    Iterator.iterate(new File("").getAbsoluteFile)(_.getParentFile)
      .find(new File(_, "build.sbt").exists).get
}
