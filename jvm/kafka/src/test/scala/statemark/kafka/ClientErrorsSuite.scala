package statemark.kafka

import java.io.{File, IOException}
import java.util.jar.JarFile
import org.apache.kafka.clients.producer.{ProducerRecord, RecordMetadata}
import org.apache.kafka.common.{KafkaException, TopicPartition}
import org.apache.kafka.common.errors._
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import scala.util.Using
import statemark.common.{Disk, DiskUnwritableException, DiskWrites}
import statemark.kafka.clients.{ClientErrors, KafkaClients, KafkaFailures, Meaning, RefusedRecord}
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkKind, SinkSettings}
import statemark.kafka.driver.{DriverFailures, SinkContext}
import statemark.kafka.sim.FailingReporter

/** What failures of Kafka's clients mean, without a broker. */
class ClientErrorsSuite extends AnyFunSuite {
  private val least = Map("kafka.bootstrap.servers" -> "127.0.0.1:1", "topic" -> "t")
  private val context = SinkContext(SinkIdentity("q", "t"), SinkSettings.of(least), "q", "")

  /** Throwables that never leave a client: of brokers' rules for names, of a shell, of a thread that ends. */
  private val inner = Set(
    "org.apache.kafka.common.internals.FatalExitError",
    "org.apache.kafka.common.security.kerberos.BadFormatString",
    "org.apache.kafka.common.security.kerberos.NoMatchingRule",
    "org.apache.kafka.common.security.oauthbearer.internals.expiring." +
      "ExpiringCredentialRefreshingLogin$ExitRefresherThreadDueToIllegalStateException",
    "org.apache.kafka.common.security.ssl.SslPrincipalMapper$NoMatchingRule",
    "org.apache.kafka.common.utils.Shell$ExitCodeException"
  )

  /** Every class that can be thrown, of the client's jar. */
  private lazy val thrown: Seq[Class[_]] = {
    val jar = new File(classOf[KafkaException].getProtectionDomain.getCodeSource.getLocation.toURI)
    val names = Using.resource(new JarFile(jar))(
      _.entries.asScala.map(_.getName).filter(_.endsWith(".class")).toVector
    )
    names.filterNot(_.contains("/shaded/")).map(_.stripSuffix(".class").replace('/', '.'))
      .filter(_.startsWith("org.apache.kafka.")).flatMap { name =>
        // Some need libraries that only brokers have.
        try Some(Class.forName(name, false, getClass.getClassLoader))
        catch { case _: LinkageError => None }
      }.filter(classOf[Throwable].isAssignableFrom(_))
  }

  test("each exception of Kafka's clients has a row of its own") {
    assert(thrown.size > 150)
    assert(thrown.map(_.getName).filterNot(inner).filter(ClientErrors.row(_).isEmpty).isEmpty)
  }

  test("what can be sent again is retryable, but for what loses rows") {
    for (of <- thrown.filter(classOf[RetriableException].isAssignableFrom(_))) {
      val meaning = ClientErrors.row(of.getName).get
      assert(meaning.kind.isRetryable || meaning == Meaning.Foreign, of)
    }
    for (of <- thrown.filter(classOf[OutOfOrderSequenceException].isAssignableFrom(_)))
      assert(ClientErrors.row(of.getName).contains(Meaning.LostAcknowledged), of)
  }

  test("lost acknowledgements are a kind of their own, with topic and partition") {
    val place = Map("topic" -> "t", "partition" -> "3")
    // Which partition it was, the producer has chosen.
    val row = new ProducerRecord[Array[Byte], Array[Byte]]("t", Array[Byte](1))
    val where = new RecordMetadata(new TopicPartition("t", 3), -1, 0, -1, 0, 0)
    assert(KafkaFailures.valuesOf(row, Some(where)) == place + ("bytes" -> "1"))
    val lost = new KafkaException("in an error state", new UnknownProducerIdException("who?"))
    val e = KafkaFailures.ofAttempt(lost, "A write to Kafka", place)
    assert(e.kind == SinkKind.BrokenLog && !e.isRetryable && e.values == place)
    DriverFailures.of(lost, "Batch 1 could not be decided", context) match {
      case of: SinkException =>
        assert(of.kind == SinkKind.BrokenLog && of.remedy.contains("leaders"))
      case other => fail(other)
    }
  }

  test("what was never sent is not said to be unknown") {
    def reasonOf(e: Throwable) = DriverFailures.of(e, "It could not be decided", context) match {
      case e: SinkException => (e.kind, e.reason)
      case e => fail(e)
    }
    val error = "Cannot execute transactional method because we are in an error state"
    val (kind, reason) = reasonOf(new KafkaException(error, new RecordTooLargeException("2000 B")))
    assert(kind == SinkKind.UnfitCluster && reason.contains("was not committed"), reason)
    assert(reason.endsWith("2000 B"))
    assert(reasonOf(new KafkaException(
      error,
      new TimeoutException("Topic t not present in metadata")
    )) ==
      SinkKind.Unavailable -> "it was not committed: Topic t not present in metadata")
    assert(reasonOf(new TimeoutException("no answer")) ==
      SinkKind.Unavailable -> "nobody knows whether it was committed: no answer")
    val expired = new RefusedRecord(Map("topic" -> "t"), new TimeoutException("Expiring 1 record"))
    assert(reasonOf(expired) == SinkKind.Unavailable -> "it was not committed: Expiring 1 record")
    DriverFailures.ofRecovery(expired, context) match {
      case e: SinkException =>
        assert(e.values("topic") == "t" && e.reason.endsWith("Expiring 1 record"))
      case e => fail(e)
    }
    assert(reasonOf(new KafkaException("odd"))._2.startsWith("nobody knows"))
    DriverFailures.ofRecovery(new TimeoutException("no node"), context) match {
      case e: SinkException.Unavailable =>
        assert(e.problem.startsWith(s"The brokers at ${context.settings.bootstrapServers} gave no"))
        assert(e.reason.endsWith("no node"))
      case e => fail(e)
    }
  }

  test("a disk that is full stays what it is") {
    val full = DiskWrites.told(Disk.Temporary, "/tmp", new IOException("No space left on device"))
    assert(full.isInstanceOf[DiskUnwritableException])
    assert(DriverFailures.ofRecovery(full, context) eq full)
    assert(DriverFailures.of(full, "It could not be decided", context) eq full)
  }

  test("what an attempt is told of a row says what to do") {
    def of(e: Throwable) = KafkaFailures.ofAttempt(e, "A write", Map.empty)
    assert(
      of(new InvalidPidMappingException("who")).remedy.contains("transactional.id.expiration.ms") ||
        of(new InvalidPidMappingException("who")).reason.contains("transactional.id.expiration.ms")
    )
    assert(of(new InvalidTopicException("a b")).kind == SinkKind.UnsendableRow)
    assert(of(new TimeoutException("Partition 9 of topic t is not present in metadata")).remedy
      .startsWith("Partitions are counted from 0"))
    val neighbour =
      "Failed to append record because it was part of a batch which had one more more " +
        "invalid records"
    assert(of(new KafkaException(neighbour)).reason.startsWith("another row"))
    assert(of(new IllegalStateException("odd")).kind == SinkKind.FailedWrite)
    val all = Meaning.Unknown +: thrown.flatMap(c => ClientErrors.row(c.getName))
    assert(all.forall(m => m.remedy.nonEmpty && !m.remedy.endsWith(".")))
  }

  test("where a plugin of the user's fails as a client is made, its option is named") {
    val reporter = "kafka.metric.reporters" -> classOf[FailingReporter].getName
    val clients = KafkaClients.of(SinkSettings.of(least + reporter))
    val made =
      Seq(() => clients.admin(), () => clients.producer("id"), () => clients.consumer(true))
    for (make <- made) {
      val e = intercept[SinkException.RefusedSetting](make())
      assert(e.remedy.contains("kafka.metric.reporters"), e)
    }
  }

  test("clients that cannot be made say why, by name") {
    def failure(options: (String, String)*): SinkException = {
      val clients = KafkaClients.of(SinkSettings.of(least ++ options))
      val all = Seq(
        () => clients.admin().close(),
        () => clients.producer("id").close(),
        () => clients.consumer(committedOnly = true).close()
      ).map(make => intercept[SinkException](make()))
      assert(all.map(e => (e.kind, e.reason, e.remedy)).distinct.size == 1)
      all.head
    }
    val host = "no.such.host.invalid:9092"
    val unresolved = failure("kafka.bootstrap.servers" -> host)
    assert(unresolved.kind == SinkKind.Unavailable && unresolved.values.values.toSet == Set(host))
    // It may be the same again, and the kind says so.
    assert(unresolved.isRetryable && unresolved.remedy.startsWith("Start the query again"))
    val sasl = Seq(
      "kafka.security.protocol" -> "SASL_PLAINTEXT",
      "kafka.sasl.mechanism" -> "PLAIN"
    )
    val without = failure(sasl: _*)
    assert(without.kind == SinkKind.RefusedSetting && without.reason.contains("JAAS"))
    val wrong =
      "org.apache.kafka.common.security.plain.PlainLoginModule required password=a secretword"
    val unquoted = failure(sasl :+ ("kafka.sasl.jaas.config" -> wrong): _*)
    assert(!unquoted.getMessage.contains("secretword") && unquoted.getCause == null)
    val absent = failure(
      "kafka.security.protocol" -> "SSL",
      "kafka.ssl.truststore.location" -> "/nowhere/trust.jks",
      "kafka.ssl.truststore.password" -> "secretword"
    )
    assert(absent.reason == "the file /nowhere/trust.jks is not there", absent)
    assert(absent.kind == SinkKind.RefusedSetting && !absent.getMessage.contains("secretword"))
  }
}
