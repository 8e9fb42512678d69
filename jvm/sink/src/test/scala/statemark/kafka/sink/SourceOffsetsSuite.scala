package statemark.kafka.sink

import java.net.URLClassLoader
import org.scalatest.funsuite.AnyFunSuite
import scala.io.Source
import scala.util.Using
import statemark.kafka.conf.{SinkException, SinkSettings}
import statemark.kafka.decision.{BatchFingerprint, PlanKind, SourceEnds}
import statemark.kafka.sink.conf.KafkaLibrary
import statemark.kafka.sink.driver.{InputSources, KafkaSources, SourceOffsets}

/** What the offset log says of a batch, on entries that Spark 4.2 has written (`resources/offsets`). */
class SourceOffsetsSuite extends AnyFunSuite {
  private val Formats = Seq("v1", "v2")

  private def lines(entry: String): Vector[String] =
    Using.resource(Source.fromResource(s"offsets/$entry"))(_.getLines().toVector)

  /** As Spark reads it: a version, the batch, then a source a line; the second format names the source. */
  private def ends(entry: String): Vector[(String, Option[String])] = {
    val all = lines(entry)
    all.drop(2).zipWithIndex.map { case (line, i) =>
      if (all.head == "v2") {
        val (name, end) = line.splitAt(line.indexOf(':'))
        name -> Some(end.drop(1))
      } else i.toString -> Some(line)
    }
  }

  private def of(json: String): BatchFingerprint =
    SourceOffsets.fingerprint(Vector("0" -> Some(json)), None)

  for {
    format <- Formats
    (source, namesContent) <- Seq(
      "kafka" -> true,
      "file" -> false,
      "rate" -> false,
      "rate-micro-batch" -> false,
      "socket" -> false,
      "kafka-and-file" -> false
    )
  } test(s"an entry of source $source, $format, names content: $namesContent") {
    val fingerprint = SourceOffsets.fingerprint(ends(s"$source-$format"), None)
    assert(fingerprint.namesContent == namesContent)
    assert(fingerprint.sources.map(_.namesContent).contains(true) == source.startsWith("kafka"))
  }

  test("the input that a decision names is that of Kafka's sources") {
    val both = SourceOffsets.endsOf(ends("kafka-and-file-v1"))
    assert(both.map(of => (of.source, of.group, of.partitions > 0)) == Vector(("0", "", true)))
    assert(SourceOffsets.endsOf(ends("file-v1")).isEmpty)
    assert(SourceOffsets.endsOf(Vector("0" -> None)).isEmpty)
    assert(SourceOffsets.ofPosition("""["{}",null]""").contains(Vector("{}")))
    for (wrong <- Seq("", "7", "[7]", "{}", "["))
      assert(SourceOffsets.ofPosition(wrong).isEmpty, wrong)
    val offset = """{"b":{"10":7,"2":5},"a":{"0":0}}"""
    assert(SourceOffsets.ofKafka(offset).contains(
      Vector("a" -> Vector(0 -> 0L), "b" -> Vector(2 -> 5L, 10 -> 7L))
    ))
  }

  private val clusters = Map("here:1" -> "A", "alias:1" -> "A", "there:1" -> "B")

  /** The input of a query with sources at these brokers, each of a topic of its own. */
  private def grouped(sources: (String, String)*): Vector[String] = {
    val settings = SinkSettings.of(Map(
      "kafka.bootstrap.servers" -> "here:1",
      "topic" -> "out",
      "kafkaConsumerGroup" -> "g"
    ))
    val input = new InputSources(settings, kafka => clusters(kafka("bootstrap.servers")))
    val options = sources.map { case (servers, topic) =>
      Map("kafka.bootstrap.servers" -> servers, "subscribe" -> topic, "kafka.group.id" -> "x")
    }
    val ends = sources.map { case (_, topic) =>
      SourceEnds("0", "", Vector(topic -> Vector(0 -> 1L)))
    }
    input.grouped(ends.toVector, options).map(_.group)
  }

  test("the group is of sources of the sink's cluster, whatever its addresses") {
    assert(grouped("here:1" -> "a", "there:1" -> "b", "alias:1" -> "c") == Vector("g", "", "g"))
    def refused(sources: (String, String)*) =
      intercept[SinkException.RefusedSetting](grouped(sources: _*)).reason
    assert(refused() == "the query reads no topic with Spark's source 'kafka'")
    assert(refused("there:1" -> "a") ==
      "the query reads topics of other clusters than the sink's, whose id is A")
    assert(refused("here:1" -> "a", "there:1" -> "a").startsWith(
      "a source reads a, which sources of the sink's cluster and of another subscribe to, by name or by a pattern"
    ))
  }

  test("the topics that a source names are known, and those of a pattern are not") {
    def names(options: (String, String)*) = KafkaSources.names(options.toMap)
    assert(names("Subscribe" -> "a, b").contains(Seq("a", "b")))
    assert(names("assign" -> """{"a": [0, 1], "b":[2]}""").contains(Seq("a", "b")))
    assert(names("subscribePattern" -> "a.*").isEmpty)
  }

  test("a source is called by what it is, where that is known") {
    val names = SourceOffsets.fingerprint(ends("kafka-and-file-v1"), None).sources.map(_.source)
    assert(names == Vector("source 0 (Kafka)", "source 1"))
  }

  test("Delta's offsets name content") {
    val end =
      """{"sourceVersion":1,"reservoirId":"a1","reservoirVersion":5,"index":-1,"isStartingVersion":false}"""
    assert(of(end).namesContent)
    assert(of(end).digest != of(end.replace(
      "\"reservoirVersion\":5",
      "\"reservoirVersion\":6"
    )).digest)
  }

  test("other offsets are counters: numbers, positions of other sources, text that is no JSON") {
    for (
      end <- Seq("5", "-1", """{"shard":{"0":"abc"}}""", """{"a":1}""", "{}", "[1]", "at the end")
    )
      assert(!of(end).namesContent, end)
  }

  test("a counter that is planned anew is another batch, and an offset that names content is not") {
    def at(ms: Long, end: String) =
      SourceOffsets.fingerprint(Vector("0" -> Some(end)), Some(ms)).digest
    assert(at(1, """{"logOffset":1}""") == at(1, """{"logOffset":1}"""))
    assert(at(1, """{"logOffset":1}""") != at(2, """{"logOffset":1}"""))
    assert(at(1, """{"orders":{"0":5}}""") == at(2, """{"orders":{"0":5}}"""))
  }

  test("of a query whose rows depend on the time, a batch that is planned anew is another one") {
    def at(ms: Long) = SourceOffsets.fingerprint(
      Vector("0" -> Some("""{"orders":{"0":5}}""")),
      Some(ms),
      PlanKind.OfTime
    )
    assert(at(1) == at(1) && at(1).digest != at(2).digest && !at(1).namesContent)
  }

  test("order of keys and blanks do not matter, numbers and names of topics do") {
    val one = of("""{"a":{"0":1,"1":2},"b":{"0":3}}""")
    assert(of("""{ "b": {"0": 3}, "a": {"1": 2, "0": 1} }""") == one)
    assert(of("""{"a":{"0":1,"1":2},"b":{"0":4}}""").digest != one.digest)
    assert(of("""{"a":{"0":1,"1":2},"c":{"0":3}}""").digest != one.digest)
  }

  test("a source that has given nothing yet changes nothing of what the others say") {
    val end = Some("""{"orders":{"0":5}}""")
    val fingerprint = SourceOffsets.fingerprint(Vector("0" -> end, "1" -> None), None)
    assert(fingerprint.namesContent)
    assert(fingerprint != SourceOffsets.fingerprint(Vector("0" -> end), None))
  }

  test("a class path without Kafka's client is an error that says what to add") {
    val withoutKafka = new URLClassLoader(Array.empty, ClassLoader.getPlatformClassLoader)
    val missing =
      intercept[SinkException.MissingLibrary](KafkaLibrary.require(withoutKafka))
    assert(missing.reason.contains("org.apache.kafka:kafka-clients"))
    assert(missing.remedy.contains(s"spark-sql-kafka-0-10_2.13:${org.apache.spark.SPARK_VERSION}"))
    assert(missing.remedy.contains("--jars"))
    KafkaLibrary.require(getClass.getClassLoader)
  }
}
