package statemark.kafka

import java.time.Duration
import java.util.{Collections, Map => JMap, Properties, Random}
import org.apache.kafka.clients.consumer.{ConsumerGroupMetadata, KafkaConsumer, OffsetAndMetadata}
import org.apache.kafka.clients.producer.{MockProducer, RoundRobinPartitioner}
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.serialization.{ByteArrayDeserializer, ByteArraySerializer}
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import scala.util.Using
import statemark.common.Clock
import statemark.kafka.clients.{GroupOffsets, KafkaClients}
import statemark.kafka.conf.{SinkException, SinkPhase, SinkSettings}
import statemark.kafka.crash.GroupKills
import statemark.kafka.decision.{LastDecision, SourceEnds}
import statemark.kafka.driver.{DecisionLog, DriverSeams, InputGroup}
import statemark.kafka.sim._
import statemark.kafka.tools.OutputWait

/** Input and output of a query in one place: decisions say how far it has read, a group is committed with them, and readers
  * wait for them.
  */
class InputGroupSuite extends AnyFunSuite with Simulated {
  override def prefix = "groups"

  private val place = new TopicPartition(Simulation.Input, 0)

  private def grouped(
      name: String,
      deaths: Deaths = new Deaths,
      isLocal: Boolean = false,
      workload: (Long, Long, Int) => Try = Try.of,
      seams: DriverSeams = DriverSeams()
  ) = new Simulation(
    brokers,
    topic(name),
    deaths,
    isLocal = isLocal,
    options = Map("kafkaConsumerGroup" -> s"group-$name"),
    workload = workload,
    seams = seams
  )

  private def refusal(s: Simulation): String =
    intercept[SinkException.RefusedSetting](s.attemptBatch(s.checkpoint.next)).getMessage

  for (isLocal <- Seq(false, true))
    test(s"each decision moves the group${if (isLocal) ", local mode" else ""}") {
      running(grouped(s"moves-$isLocal", isLocal = isLocal)) { s =>
        val input = new InputOffsets(brokers, s)
        assert(input.committed.isEmpty)
        s.runBatches(2)
        Conditions.awaitMarkers(brokers, s.identity)
        assert(input.offset.contains(1L))
        assert(input.committed.map(_.metadata).contains(s"statemark ${s.identity}"))
        assert(input.decided.contains(1L))
        s.restart()
        s.runBatch()
        Conditions.awaitMarkers(brokers, s.identity)
        assert(input.offset.contains(2L))
        judged(s)
      }
    }

  test("a batch without rows moves the group, and one without input decides nothing") {
    val empty = (batch: Long, nonce: Long, n: Int) => Try(batch, nonce, Vector.fill(n)(0))
    running(grouped("empty", workload = empty)) { s =>
      val input = new InputOffsets(brokers, s)
      s.runBatches(2)
      Conditions.awaitMarkers(brokers, s.identity)
      assert(input.offset.contains(1L) && input.decided.contains(1L))
      val same = Some(Simulation.fingerprint(1).copy(batch = 2, ends = s.start(1).planned.get.ends))
      s.attemptBatch(2, same)
      val LastDecision.Decided(last) = s.commitLog.read(s.identity).last: @unchecked
      assert(last.batch == 1)
    }
    running(new Simulation(brokers, topic("ungrouped"), new Deaths, workload = empty)) { s =>
      s.runBatch()
      assert(s.commitLog.read(s.identity).last == LastDecision.Nothing)
    }
  }

  test("a group with members is refused before each decision, and before each run") {
    running(grouped("members")) { s =>
      val input = new InputOffsets(brokers, s)
      s.runBatch()
      Using.resource(member(input.group)) { _ =>
        val late = refusal(s)
        assert(
          late.contains("Option 'kafkaConsumerGroup' is refused: it has 1 members, such as "),
          late
        )
        s.restart()
        assert(refusal(s) == late)
        // Nothing was decided.
        assert(s.commitLog.read(s.identity).last.decided.map(_.batch) == Vector(0L))
      }
      s.restart()
      s.runBatch()
      Conditions.awaitMarkers(brokers, s.identity)
      assert(input.offset.contains(1L))
    }
  }

  /** A consumer that has joined the group. */
  private def member(group: String): KafkaConsumer[Array[Byte], Array[Byte]] = {
    val properties = new Properties
    Map(
      "bootstrap.servers" -> brokers.bootstrap,
      "group.id" -> group,
      "enable.auto.commit" -> "false"
    ).foreach { case (name, value) => properties.put(name, value) }
    val bytes = new ByteArrayDeserializer
    val consumer = new KafkaConsumer(properties, bytes, bytes)
    consumer.subscribe(Collections.singleton(Simulation.Input))
    while (consumer.assignment.isEmpty) consumer.poll(Duration.ofMillis(50))
    consumer
  }

  test(
    "offsets that are not the sink's are refused; those that brokers have dropped are not missed"
  ) {
    running(grouped("foreign")) { s =>
      val input = new InputOffsets(brokers, s)
      val foreign = Map(place -> new OffsetAndMetadata(7L)).asJava
      def set() = brokers.admin.alterConsumerGroupOffsets(input.group, foreign).all().get()
      def drop() =
        brokers.admin.deleteConsumerGroups(Collections.singleton(input.group)).all().get()
      set()
      val first = refusal(s)
      assert(first.contains("offsets that this sink has not committed: in-0 at 7"), first)
      assert(s.commitLog.read(s.identity).last == LastDecision.Nothing)
      drop()
      s.runBatch()
      set()
      assert(refusal(s) == first)
      drop()
      s.restart()
      s.runBatch()
      Conditions.awaitMarkers(brokers, s.identity)
      assert(input.offset.contains(1L))
      val other = new Simulation(
        brokers,
        topic("foreign-other"),
        new Deaths,
        options = Map("kafkaConsumerGroup" -> input.group)
      )
      running(other)(o => assert(refusal(o).contains("not committed: in-0 at 1")))
    }
  }

  test("a topic of a source that is gone is refused by name, and not tried in vain") {
    running(grouped("gone")) { s =>
      new InputOffsets(brokers, s): Unit
      s.runBatch()
      val gone = Vector(SourceEnds("0", s"group-gone", Vector("not-there" -> Vector(0 -> 1L))))
      val planned = s.start(1).planned.map(_.copy(ends = gone))
      val e = intercept[SinkException.RefusedSetting](s.attemptBatch(1, planned))
      assert(e.reason.startsWith("topic not-there, of which the batch has read, is not there"), e)
      s.restart()
      s.runBatch()
    }
  }

  test("offsets of many partitions are committed in requests that brokers take") {
    val bytes = new ByteArraySerializer
    var sizes = Vector.empty[Int]
    val producer = new MockProducer(true, new RoundRobinPartitioner, bytes, bytes) {
      override def sendOffsetsToTransaction(
          offsets: JMap[TopicPartition, OffsetAndMetadata],
          group: ConsumerGroupMetadata
      ): Unit = {
        sizes :+= offsets.size
        super.sendOffsetsToTransaction(offsets, group)
      }
    }
    producer.initTransactions()
    producer.beginTransaction()
    val ends = (0 until 2500).map(n => new TopicPartition("t", n) -> n.toLong).toMap
    GroupOffsets("g", "mark", ends).addTo(producer)
    GroupOffsets.none.addTo(producer)
    producer.commitTransaction()
    val sent = producer.consumerGroupOffsetsHistory.asScala.flatMap(_.asScala.get("g"))
    assert(sent.map(_.size).toVector == Vector(2500) && sizes == Vector(1000, 1000, 500))
    val long = InputGroup.markOf("q" * 1000)
    assert(long.length < 300 && long != InputGroup.markOf("q" * 1001))
  }

  test("what a decision names of its input is bounded, and the group is not") {
    def ends(n: Int) = Vector(SourceEnds("0", "g", Vector("t" -> Vector.tabulate(n)(_ -> 1L))))
    assert(SourceEnds.recorded(ends(10000)) == ends(10000))
    assert(SourceEnds.recorded(ends(10001)) == Vector(SourceEnds("0", "g", Vector.empty)))
    val twice = Vector(("0", 5L), ("1", 3L)).map { case (source, end) =>
      SourceEnds(source, "", Vector("t" -> Vector(0 -> end)))
    }
    assert(SourceEnds.reached(twice) == Map(new TopicPartition("t", 0) -> 3L))
  }

  private def waiting(s: Simulation, name: String, end: Long): Either[String, Long] =
    Using.resource(new OutputWait(s.settings, KafkaClients.of(s.settings), Clock.system, name))(
      _.await(Map(place -> end), 0)
    )

  test("a reader waits until all transactions of a decision are with the readers") {
    val deaths = new Deaths
    running(grouped("waits", deaths)) { s =>
      val input = new InputOffsets(brokers, s)
      val name = s.identity.toString
      assert(waiting(s, name, 0).left.exists(_.contains("knows no such sink")))
      s.runBatch()
      Conditions.awaitMarkers(brokers, s.identity)
      for (named <- Seq(name, s.identity.appId, s"name-of-${s.topic}"))
        assert(waiting(s, named, 0) == Right(0L))
      val behind = waiting(s, name, 1)
      assert(behind.left.exists(_.endsWith("which has read in-0 up to 0,")), behind)
      deaths.at(SinkPhase.DecisionDurable)
      intercept[Died](s.attemptBatch(1))
      s.killDriver(withExecutors = true)
      assert(input.decided.contains(1L) && input.offset.contains(1L))
      val half = waiting(s, name, 1)
      assert(half.left.exists(_.contains("transactions are not with the readers")), half)
      s.recover()
      Conditions.awaitMarkers(brokers, s.identity)
      assert(waiting(s, name, 1) == Right(1L))
      assert(waiting(s, name, 2).isLeft)
    }
  }

  for (isEarly <- Seq(true, false))
    test(s"planted: the group is ${if (isEarly) "ahead of" else "behind"} the decision") {
      val apart: SinkSettings => DecisionLog = settings =>
        (line, records, offsets, observer) => {
          if (isEarly) {
            val early = offsets.offsets.map { case (of, end) =>
              of -> new OffsetAndMetadata(end, offsets.mark)
            }
            brokers.admin.alterConsumerGroupOffsets(offsets.group, early.asJava).all().get()
          }
          DecisionLog.fenced(settings).write(line, records, GroupOffsets.none, observer)
        }
      val deaths = new Deaths
      val name = s"apart-$isEarly"
      running(grouped(name, deaths, seams = DriverSeams(decisions = apart))) { s =>
        val input = new InputOffsets(brokers, s)
        s.runBatches(2)
        if (isEarly) {
          assert(input.fault().isEmpty)
          deaths.at(SinkPhase.DecisionSent)
          intercept[Died](s.attemptBatch(2))
          s.killDriver()
        }
        val where = if (isEarly) "ahead of" else "behind"
        assert(input.fault().exists(_.contains(where)))
      }
    }

  test("kills: the group is never ahead of a decision, and never behind the one before") {
    new GroupKills(brokers, kills = 6, new Random(5), () => ()).run().foreach(info(_))
  }
}
