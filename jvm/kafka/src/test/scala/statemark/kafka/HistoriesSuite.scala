package statemark.kafka

import java.nio.charset.StandardCharsets.UTF_8
import org.apache.kafka.clients.admin.ListTransactionsOptions
import org.apache.kafka.clients.consumer.ConsumerRecord
import org.apache.kafka.clients.producer.{KafkaProducer, ProducerRecord}
import org.apache.kafka.common.serialization.ByteArraySerializer
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import scala.util.Using
import statemark.common.Clock
import statemark.kafka.clients.KafkaClients
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkPhase, SinkTransactionalId}
import statemark.kafka.decision.BatchStart
import statemark.kafka.driver.{BatchPlan, DriverSeams, OutputTopics}
import statemark.kafka.executor.WriterSpec
import statemark.kafka.log.{CommitTopic, IdentityRecord, RecordCodec, Token, TopicCommitLog}
import statemark.kafka.rows.TransactionName
import statemark.kafka.sim._

/** What happens to topics, checkpoints and processes over the life of a query. */
class HistoriesSuite extends AnyFunSuite with Simulated {
  override def prefix = "histories"

  private type Record = ConsumerRecord[Array[Byte], Array[Byte]]

  /** Closes segments soon, and compacts all that is closed. */
  private val compacted = Map(
    "cleanup.policy" -> "compact",
    "segment.ms" -> "200",
    "min.cleanable.dirty.ratio" -> "0.001",
    "min.compaction.lag.ms" -> "0",
    "delete.retention.ms" -> "0"
  )
  private val Filler = "filler"

  private def isFiller(record: Record): Boolean = new String(record.value, UTF_8) == Filler

  /** Sends rows of one key until what the log holds is as wanted: each may close a segment. */
  private def fillUntil(topic: String)(isDone: Vector[Record] => Boolean): Unit = {
    val bytes = new ByteArraySerializer
    val settings = Map[String, Object]("bootstrap.servers" -> brokers.bootstrap)
    Using.resource(new KafkaProducer(settings.asJava, bytes, bytes)) { producer =>
      var sent = 0
      def fill(): Unit = {
        (0 until 4).foreach(partition =>
          producer.send(
            new ProducerRecord(topic, partition, Filler.getBytes(UTF_8), Filler.getBytes(UTF_8))
          )
        )
        producer.flush()
        sent += 4
      }
      fill()
      while (!isDone(brokers.read(topic, committed = false))) fill()
    }
  }

  /** Waits until the log cleaner has taken rows of another topic. */
  private def cleanerPasses(name: String): Unit = {
    val other = topic(name, compacted)
    fillUntil(other)(_ => true)
    val first = brokers.read(other, committed = false).map(_.offset).toSet
    fillUntil(other)(rows => rows.forall(r => !first(r.offset)))
  }

  private def judgedBatch(s: Simulation): Unit = {
    Conditions.awaitMarkers(brokers, s.identity)
    val rows = brokers.read(s.topic).filterNot(isFiller)
    val judgement = Judgement.of(rows, s.checkpoint.committed)
    assert(judgement.isRight, judgement): Unit
  }

  /** The driver dies behind its decision, on a topic with a cleaner that takes what it can. */
  private def decided(name: String)(check: Simulation => Unit): Unit =
    running(new Simulation(
      brokers,
      topic(name, compacted),
      new Deaths().at(SinkPhase.DecisionDurable),
      options = Map("allowShortCompactionLag" -> "true")
    )) { s =>
      fillUntil(s.topic)(_ => true)
      intercept[Died](s.attemptBatch(0))
      s.killDriver(withExecutors = true)
      check(s)
    }

  test("K10: a log cleaner passes while transactions are open: their rows are copied") {
    decided("open") { s =>
      // The segments of the open transactions are closed: what protects them is that they are open.
      cleanerPasses("open-before")
      fillUntil(s.topic)(_ => true)
      cleanerPasses("open-after")
      s.runBatch()
      assert(s.reports.last.completion.exists(c => c.copiedRows > 0 && c.reopened.isEmpty))
      assert(s.figures.last.isDiscarded)
      judgedBatch(s)
    }
  }

  test("row 16: the log cleaner has taken rows of a decision: the batch runs again, whole") {
    decided("aborted") { s =>
      val open = Conditions.openTransactions(brokers, s.identity)
      brokers.admin.fenceProducers(open.asJava).all().get()
      fillUntil(s.topic)(_.forall(isFiller))
      s.runBatch()
      assert(s.reports.last.completion.flatMap(_.reopened).exists(_.missing.isEmpty))
      assert(!s.figures.last.isDiscarded)
      judgedBatch(s)
    }
  }

  private def batchOf(record: Record): Long =
    new String(record.value, UTF_8).takeWhile(_ != '|').toLong

  test("two sinks on one topic, one named as the other begins: a death of one is not the other's") {
    val name = topic("both")
    val deaths = new Deaths
    def sink(sinkName: String, of: Deaths) = new Simulation(
      brokers,
      name,
      of,
      queryId = "q-both",
      options = Map("sinkName" -> sinkName)
    )
    running(sink("orders", deaths)) { one =>
      running(sink("orders.dlq", new Deaths)) { other =>
        one.runBatch()
        // Batches of the two are told apart by their numbers.
        other.checkpoint.committed = Set(999)
        other.runBatch()
        deaths.at(SinkPhase.DecisionDurable)
        intercept[Died](one.attemptBatch(1))
        other.runBatch()
        one.killDriver(withExecutors = true)
        one.runBatches(2)
        other.runBatch()
        Conditions.awaitMarkers(brokers, one.identity)
        Conditions.awaitMarkers(brokers, other.identity)
        val (later, earlier) = brokers.read(name).partition(batchOf(_) > 999)
        val ofOne = Judgement.of(earlier, one.checkpoint.committed)
        val ofOther = Judgement.of(later, other.checkpoint.committed - 999)
        assert(ofOne.isRight && ofOther.isRight, s"$ofOne $ofOther")
        assert(copied(one) > 0 && copied(other) == 0 && other.reports.size == 1)
      }
    }
  }

  test("executors that are gone leave nothing in the commit topic for longer than a run") {
    running(new Simulation(brokers, topic("tokens"), new Deaths)) { s =>
      def tokens: Set[String] =
        s.commitLog.read(s.identity).records.values.collect { case t: Token =>
          t.transaction.transactionalId
        }.toSet
      (1 to 3).foreach { _ =>
        s.runBatch()
        s.killExecutors()
      }
      assert(tokens.size == 6)
      s.restart()
      s.runBatch()
      assert(tokens.size == 4, "those of the last decision before the start, and of the one behind")
      judged(s)
    }
  }

  test("the loss of an executor reads on in the commit topic, and removes tokens that are many") {
    running(new Simulation(brokers, topic("losses"), new Deaths)) { s =>
      s.runBatch()
      // Of executors that were launched, have written, and are gone.
      val place = CommitTopic.partitionOf(s.settings, s.identity)
      def leave(count: Int): Unit = {
        val clients = new ProcessClients(s.settings)
        val producer = clients.producer(s"${s.topic}-executors")
        producer.initTransactions()
        producer.beginTransaction()
        (0 until count).foreach { number =>
          val name = TransactionName(s"gone.e$number", 1)
          val token = Token(s.identity, 0, name, 0, 0, None)
          producer.send(CommitTopic.record(place, token)): Unit
        }
        producer.commitTransaction()
        clients.kill()
        assert(tokens == count)
      }
      def tokens: Int = s.commitLog.read(s.identity).records.values.count {
        case token: Token => token.transaction.transactionalId.startsWith("gone.")
        case _ => false
      }
      leave(100)
      s.coordinator.fenceExecutors(Set("777"))
      assert(tokens == 100, "they are few")
      val before = s.driverConsumers
      s.coordinator.fenceExecutors(Set("777"))
      assert(s.driverConsumers == before, "nothing is new, and nothing is read")
      leave(101)
      s.coordinator.fenceExecutors(Set("777"))
      assert(tokens == 0)
      s.runBatch()
      judged(s)
      assert(s.reports.size == 1 && copied(s) == 0)
    }
  }

  test("an id that the brokers have dropped while nobody used it is taken anew") {
    val clock = new ManualClock
    val forgetful = Map(
      "transactional.id.expiration.ms" -> "1000",
      "transaction.remove.expired.transaction.cleanup.interval.ms" -> "200"
    )
    Using.resource(new TestBrokers(settings = forgetful)) { short =>
      def idle(s: Simulation): Unit = {
        Conditions.awaitNoId(short, s.identity)
        clock.advanceMs(2L * 60 * 1000)
      }
      for (isLocal <- Seq(false, true))
        running(new Simulation(
          short,
          short.topic(s"idle-$isLocal"),
          new Deaths,
          isLocal = isLocal,
          seams = DriverSeams(clock = clock),
          executorClock = clock
        )) { s =>
          def begun(batch: Long): WriterSpec = {
            val BatchPlan.Write(spec) = s.coordinator.begin(s.start(batch)): @unchecked
            spec
          }
          def checked(): Unit = {
            Conditions.awaitMarkers(short, s.identity)
            val judgement = Judgement.of(short.read(s.topic), s.checkpoint.committed)
            assert(judgement.isRight, judgement): Unit
          }
          s.runBatch()
          idle(s)
          s.runBatch()
          assert(s.reports.size == 2)
          if (!isLocal) {
            // Its job takes longer than that, and writes all the while.
            val tried = Try.of(2, 1, 6)
            val written = s.runTasks(begun(2), tried)
            val driver = SinkTransactionalId.driver(s.settings.prefix, s.identity).text
            while (Conditions.ids(short, s.identity)(driver)) Thread.onSpinWait()
            s.coordinator.commit(2, written): Unit
            s.checkpoint.committed += 2L
            assert(s.coordinator.lastRun == 2, "the run goes on")
            checked()
          }
          // Executors whose clock stood still are told with their first row, and go on with the next attempt.
          val batch = s.checkpoint.next
          if (!isLocal) {
            Conditions.awaitNoId(short, s.identity)
            val spec = begun(batch)
            s.coordinator.commit(batch, s.runTasks(spec, Try.of(batch, 2, 6))): Unit
            s.checkpoint.committed += batch
            checked()
          }
          // Who has it meanwhile keeps it.
          val old = s.coordinator
          s.startDriver()
          s.runBatch()
          idle(s)
          intercept[SinkException.Superseded](old.begin(s.start(s.checkpoint.next)))
          s.runBatch()
          checked()
        }
    }
  }

  test("a record that this release cannot read stops its own sink alone") {
    running(new Simulation(brokers, topic("newer"), new Deaths)) { s =>
      s.runBatch()
      val other = SinkIdentity("of-a-newer-release", "x")
      val place = CommitTopic.partitionOf(s.settings, s.identity)
      val key = RecordCodec.key(IdentityRecord(other, "q", "d", "p", 1, "", Vector.empty))
      val clients = new ProcessClients(s.settings)
      val producer = clients.producer("newer")
      producer.initTransactions()
      producer.beginTransaction()
      producer.send(new ProducerRecord(place.topic, place.partition, key, Array[Byte](9))): Unit
      producer.commitTransaction()
      s.restart()
      s.runBatch()
      judged(s)
      val state = s.commitLog.readAll(_ == other)((_, of) => of).head
      intercept[SinkException.UnreadableRecord](state.requireReadable())
      clients.kill()
    }
  }

  test("a record that is nobody's stops no sink, and is told of") {
    running(new Simulation(brokers, topic("foreign"), new Deaths)) { s =>
      s.runBatch()
      val clients = new ProcessClients(s.settings)
      val producer = clients.producer("foreign")
      producer.initTransactions()
      producer.beginTransaction()
      for (partition <- 0 until CommitTopic.Partitions; key <- Seq("foreign", "\u0001")) {
        val bytes = key.getBytes("UTF-8")
        producer.send(new ProducerRecord(s.settings.commitTopic, partition, bytes, bytes)): Unit
      }
      producer.commitTransaction()
      s.restart()
      s.runBatch()
      judged(s)
      val told =
        s.reports.last.notes.filter(_.contains("Something else writes to the commit topic"))
      assert(
        told.exists(_.contains(s"${CommitTopic.partitionOf(s.settings, s.identity)} at offset"))
      )
      clients.kill()
    }
  }

  test(
    "a checkpoint that is another's copy fails before it takes the sink from the query that runs"
  ) {
    running(new Simulation(brokers, topic("unfit-copy"), new Deaths)) { s =>
      s.runBatches(2)
      val original = s.coordinator
      val copy = s.startDriver()
      intercept[SinkException.WrongHistory](copy.begin(BatchStart(
        1,
        s.identity.appId,
        Some(Simulation.fingerprint(99).copy(batch = 1)),
        isRerun = false
      )))
      val BatchPlan.Write(spec) = original.begin(s.start(2)): @unchecked
      original.commit(2, s.runTasks(spec, Try.of(2, 7, 6))): Unit
      s.checkpoint.committed += 2L
      judged(s)
    }
  }

  test("a query whose sink has another name says what the one before has left") {
    val name = topic("renamed")
    def sink(called: String, deaths: Deaths) = new Simulation(
      brokers,
      name,
      deaths,
      queryId = "renamed",
      options = Map("sinkName" -> called, "commitTopic" -> "histories-renamed-commits")
    )
    running(sink("first", new Deaths().at(SinkPhase.DecisionDurable))) { s =>
      intercept[Died](s.attemptBatch(0))
      s.killDriver(withExecutors = true)
    }
    running(sink("second", new Deaths)) { s =>
      s.runBatch()
      assert(s.reports.last.notes.exists(note =>
        note.contains("renamed/first") && note.contains("statemark topic finish")
      ))
    }
  }

  test("a commit topic that is read slowly is read to its end, as long as it gets on") {
    running(new Simulation(brokers, topic("slow"), new Deaths)) { s =>
      s.runBatches(12)
      val clock = new ManualClock
      // Each look at the clock is a twentieth of the time that a transaction may be open.
      val slow = new Clock {
        override def nanos(): Long = {
          clock.advanceMs(s.settings.transactionTimeoutMs / 20)
          clock.nanos()
        }
        override def epochMs(): Long = clock.epochMs()
      }
      val oneByOne = s.settings.copy(kafka = s.settings.kafka + ("max.poll.records" -> "1"))
      val log = new TopicCommitLog(KafkaClients.of(oneByOne), brokers.admin, oneByOne, slow)
      assert(log.read(s.identity).last.decided.head.batch == 11)
    }
  }

  test("a checkpoint that was deleted is another query, and the report says who wrote before") {
    val name = topic("deleted")
    running(new Simulation(brokers, name, new Deaths, queryId = "before"))(_.runBatch())
    running(new Simulation(brokers, name, new Deaths, queryId = "after")) { s =>
      s.runBatch()
      val notes = s.reports.last.notes.filter(_.contains("Another query before"))
      assert(notes.size == 1 && notes.head.contains("last batch 0"))
    }
  }

  test(
    "a checkpoint that was copied: the query that was there first is refused, and ends nothing"
  ) {
    val name = topic("copied")
    running(new Simulation(brokers, name, new Deaths, queryId = "q-copied")) { one =>
      running(new Simulation(brokers, name, new Deaths, queryId = "q-copied")) { other =>
        one.runBatch()
        other.checkpoint.committed = one.checkpoint.committed
        other.checkpoint.isMarked = true
        other.runBatch()
        intercept[SinkException.Superseded](one.attemptBatch(1))
        other.runBatch()
        judged(other)
      }
    }
  }

  test(
    "200 tasks that write to 200 partitions have a transaction an executor, also when they are copied"
  ) {
    val name = brokers.topic("histories-many", partitions = 200)
    val deaths = new Deaths
    running(new Simulation(brokers, name, deaths, partitions = 200)) { s =>
      s.runBatch()
      assert(s.figures.head.transactions == 2)
      deaths.at(SinkPhase.DecisionDurable)
      s.runBatch()
      judged(s)
      assert(s.reports.last.completion.exists(_.copiedTransactions == 2))
    }
  }

  test("of topics that rows name in the course of a run, those looked at last are kept in mind") {
    running(new Simulation(brokers, topic("topics"), new Deaths)) { s =>
      s.runBatch()
      val topics =
        new OutputTopics(KafkaClients.of(s.settings), brokers.admin, s.settings, most = 2)
      val names = (0 to 3).map(number => topic(s"topics-$number"))
      names.foreach(topics.check)
      assert(topics.known == 2 && !topics.mayBeCompacted(names.last))
      // What is not known counts as compacted, until it is looked at again.
      assert(topics.mayBeCompacted(names.head))
      topics.check(names.head)
      assert(topics.known == 2 && !topics.mayBeCompacted(names.head))
    }
  }

  test("how often an executor was fenced is forgotten when it is gone") {
    lazy val simulation: Simulation = new Simulation(
      brokers,
      topic("generations"),
      new Deaths,
      executorCount = 1,
      messages = m => {
        simulation.killExecutor()
        m
      }
    )
    running(simulation) { s =>
      s.runBatch()
      def run(batch: Long): Set[String] = {
        val BatchPlan.Write(spec) = s.coordinator.begin(s.start(batch)): @unchecked
        s.coordinator.commit(batch, s.runTasks(spec, Try.of(batch, 7, 6))): Unit
        s.checkpoint.committed += batch
        spec.generations.keySet
      }
      val first = SinkTransactionalId.executor(s.settings.prefix, s.identity, "1").text
      assert(run(1) == Set(first))
      s.coordinator.fenceExecutors(Set("1"))
      assert(run(2).isEmpty)
      judged(s)
    }
  }

  private val starts = sys.env.get("STATEMARK_KAFKA_STARTS").fold(20)(_.toInt)

  test(s"$starts starts and stops in one process leave no threads, producers or ids behind") {
    running(new Simulation(brokers, topic("starts"), new Deaths)) { s =>
      def threads = Thread.getAllStackTraces.keySet.asScala.map(_.getName).toVector
      def senders = threads.count(_.startsWith("kafka-producer-network-thread"))
      def start(): Unit = {
        s.restart()
        s.runBatch()
      }
      (1 to 3).foreach(_ => start())
      val (before, sendersBefore) = (threads, senders)
      (1 to starts).foreach(_ => start())
      assert(senders == sendersBefore, threads.diff(before))
      assert(threads.size <= before.size + 2, threads.diff(before))
      val ids = brokers.admin.listTransactions(new ListTransactionsOptions).all().get().asScala
        .map(_.transactionalId).filter(SinkTransactionalId.parse(
          _
        ).exists(_.identity == s.identity))
      assert(ids.size == 3, ids)
      judged(s)
    }
  }
}
