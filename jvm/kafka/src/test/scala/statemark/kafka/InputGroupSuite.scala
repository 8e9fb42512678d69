package statemark.kafka

import java.time.Duration
import java.util.{Collection, Collections, Map => JMap, Properties, Random}
import org.apache.kafka.clients.admin.{
  Admin,
  ConsumerGroupDescription,
  DescribeConsumerGroupsOptions,
  DescribeConsumerGroupsResult,
  ForwardingAdmin
}
import org.apache.kafka.clients.consumer.{ConsumerGroupMetadata, KafkaConsumer, OffsetAndMetadata}
import org.apache.kafka.clients.producer.{MockProducer, RoundRobinPartitioner}
import org.apache.kafka.common.{KafkaFuture, TopicPartition}
import org.apache.kafka.common.internals.KafkaFutureImpl
import org.apache.kafka.common.serialization.{ByteArrayDeserializer, ByteArraySerializer}
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import scala.util.Using
import statemark.common.Clock
import statemark.kafka.clients.{GroupOffsets, KafkaClients}
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkPhase, SinkSettings}
import statemark.kafka.crash.GroupKills
import statemark.kafka.decision.{LastDecision, SourceEnds}
import statemark.kafka.driver.{DecisionLog, DriverSeams, InputGroup, SinkContext}
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
        val before = s.lastTry
        // Also one that is tried again, before its rows are.
        for (_ <- 1 to 2) assert(refusal(s) == late && s.lastTry == before)
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
      assert(s.commitLog.read(s.identity).last == LastDecision.Nothing && s.lastTry.isEmpty)
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

  test("a topic or a partition that is gone is refused by name, and not tried in vain") {
    running(grouped("gone")) { s =>
      new InputOffsets(brokers, s): Unit
      s.runBatch()
      for (
        (topic, partition, named) <- Seq(
          ("not-there", 0, "topic not-there"),
          (Simulation.Input, 7, "partition in-7")
        )
      ) {
        val ends = Vector(SourceEnds("0", "group-gone", Vector(topic -> Vector(partition -> 1L))))
        val planned = s.start(1).planned.map(_.copy(ends = ends))
        val e = intercept[SinkException.RefusedSetting](s.attemptBatch(1, planned))
        assert(e.reason.startsWith(s"$named, of which the batch has read, is not there"), e)
      }
      s.restart()
      s.runBatch()
    }
  }

  private def looking(settings: SinkSettings, admin: Admin): Unit = {
    val context = SinkContext(SinkIdentity("q", "s"), settings, "q", queryName = "")
    new InputGroup(context, admin).requireOwn(Vector.empty)
  }

  private def settingsOf(group: String, servers: String, more: (String, String)*): SinkSettings =
    SinkSettings.of(more.toMap ++ Map(
      "kafka.bootstrap.servers" -> servers,
      "topic" -> "out",
      "kafkaConsumerGroup" -> group
    ))

  test("brokers that do not say whose a group is are named as what is wrong, and no decision is") {
    val times =
      Seq("default.api.timeout", "request.timeout").map(of => s"kafka.$of.ms" -> "200")
    val settings = settingsOf("g", "127.0.0.1:1", times: _*)
    Using.resource(KafkaClients.of(settings).admin()) { admin =>
      val e = intercept[SinkException.Unavailable](looking(settings, admin))
      assert(e.problem == "Consumer group g cannot be looked at")
      assert(e.reason.startsWith("nothing of the batch is decided yet"))
      assert(e.remedy.contains("offsets.topic.replication.factor"))
    }
  }

  test("a group of another kind is refused by name") {
    val settings = settingsOf("connect-g", brokers.bootstrap)
    val properties = Map[String, AnyRef]("bootstrap.servers" -> brokers.bootstrap).asJava
    val kind = new IllegalArgumentException("GroupId connect-g is not a consumer group (connect).")
    val admin = new ForwardingAdmin(properties) {
      override def describeConsumerGroups(
          groups: Collection[String],
          options: DescribeConsumerGroupsOptions
      ): DescribeConsumerGroupsResult = {
        val failed = new KafkaFutureImpl[ConsumerGroupDescription]
        failed.completeExceptionally(kind)
        new DescribeConsumerGroupsResult(
          groups.asScala.map(_ -> (failed: KafkaFuture[ConsumerGroupDescription])).toMap.asJava
        )
      }
    }
    Using.resource(admin) { _ =>
      val e = intercept[SinkException.RefusedSetting](looking(settings, admin))
      assert(e.reason.contains("it is a group of another kind: GroupId connect-g"), e)
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

  test("a batch that moves nothing decides nothing, also with more partitions than are noted") {
    val empty = (batch: Long, nonce: Long, n: Int) => Try(batch, nonce, Vector.fill(n)(0))
    running(grouped("many", workload = empty)) { s =>
      new InputOffsets(brokers, s): Unit
      val ends = Vector(
        SourceEnds("0", "group-many", Vector(Simulation.Input -> Vector(0 -> 1L))),
        SourceEnds("1", "", Vector("elsewhere" -> Vector.tabulate(10000)(_ -> 1L)))
      )
      for (batch <- 0L to 1L)
        s.attemptBatch(batch, s.start(batch).planned.map(_.copy(ends = ends)))
      Conditions.awaitMarkers(brokers, s.identity)
      val LastDecision.Decided(last) = s.commitLog.read(s.identity).last: @unchecked
      assert(last.batch == 0 && last.ends.map(_.partitions) == Vector(0, 0))
    }
  }

  test("of sources that read one topic, each is waited for at its own place") {
    def source(topic: String, end: Long) = SourceEnds("0", "", Vector(topic -> Vector(0 -> end)))
    def wanted(ends: (String, Long)*) =
      ends.toVector.map { case (topic, end) => Map(new TopicPartition(topic, 0) -> end) }
    val twice = Vector(source("t", 5), source("t", 3))
    assert(SourceEnds.behind(twice, wanted("t" -> 5L, "t" -> 3L)).isEmpty)
    val there = new TopicPartition("t", 0)
    assert(SourceEnds.behind(twice, wanted("t" -> 5L, "t" -> 4L)).contains(there -> Some(3L)))
    // Offsets that somebody names, and not of the query's own position.
    assert(SourceEnds.behind(twice, wanted("t" -> 3L)).isEmpty)
    assert(SourceEnds.behind(twice, wanted("t" -> 5L)).contains(there -> Some(3L)))
    val two = Vector(source("a", 1), source("b", 2))
    assert(SourceEnds.behind(two, wanted("b" -> 2L, "a" -> 1L)).isEmpty)
    assert(SourceEnds.behind(two, wanted("a" -> 1L, "b" -> 3L)).map(_._2).contains(Some(2L)))
    assert(SourceEnds.behind(two, wanted("c" -> 1L)).map(_._2).contains(None))
  }

  private def waiting(s: Simulation, name: String, end: Long): Either[String, Long] =
    Using.resource(new OutputWait(s.settings, KafkaClients.of(s.settings), Clock.system, name))(
      _.await(Vector(Map(place -> end)), 0)
    )

  test("a reader waits until all transactions of a decision are with the readers") {
    val deaths = new Deaths
    running(grouped("waits", deaths)) { s =>
      val input = new InputOffsets(brokers, s)
      val name = s.identity.toString
      assert(waiting(s, name, 0).left.exists(_.contains("knows no such sink")))
      // As of a write that gives a txnAppId.
      s.startDriver(_.copy(queryId = "an-id")): Unit
      s.runBatch()
      Conditions.awaitMarkers(brokers, s.identity)
      val named = Seq(s.identity.appId, s"name-of-${s.topic}", "an-id")
      for (of <- name +: named :++ named.map(of => s"$of/${s.identity.sink}"))
        assert(waiting(s, of, 0) == Right(0L), of)
      for (other <- Seq("an-id/other", s"other/${s.identity.sink}", "/", s"/${s.identity.sink}"))
        assert(waiting(s, other, 0).left.exists(_.contains("knows no such sink")), other)
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
