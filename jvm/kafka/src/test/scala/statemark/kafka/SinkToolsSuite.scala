package statemark.kafka

import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.TopicPartition
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import scala.util.Using
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkPhase, SinkSettings}
import statemark.kafka.decision.Outcome
import statemark.kafka.rows.TransactionName
import statemark.kafka.sim._
import statemark.kafka.tools.{NextStart, SinkTools, StatusReport, UnfinishedTransaction}

/** What `statemark topic` sees of sinks, completes and removes. */
class SinkToolsSuite extends AnyFunSuite with Simulated {
  override def prefix = "tools"

  /** A query whose batch 0 is through, and whose batch 1 was decided before driver and executors died. */
  private def withUnfinished(name: String)(check: Simulation => Unit): Unit = {
    val deaths = new Deaths
    running(new Simulation(brokers, topic(name), deaths)) { s =>
      s.runBatch()
      deaths.at(SinkPhase.DecisionDurable)
      intercept[Died](s.attemptBatch(1))
      s.killDriver(withExecutors = true)
      check(s)
    }
  }

  private def tools[A](s: Simulation)(body: SinkTools => A): A =
    Using.resource(SinkTools.open(s.settings))(body)

  private def nextOf(s: Simulation): NextStart = tools(s)(_.one(s.identity.toString)._1.next)

  /** Leaves a transaction of another application open in a partition. */
  private def withStranger[A](s: Simulation, place: TopicPartition, id: String)(body: => A): A = {
    val clients = new ProcessClients(s.settings)
    val producer = clients.producer(id)
    producer.initTransactions()
    producer.beginTransaction()
    val bytes = Array[Byte](1)
    producer.send(new ProducerRecord(place.topic, place.partition, bytes, bytes)).get()
    Conditions.awaitOpenRecord(brokers, place)
    try body
    finally {
      producer.abortTransaction()
      clients.kill()
    }
  }

  test("a decision that nobody carried out is shown, completed once, and the query goes on") {
    withUnfinished("finish") { s =>
      tools(s) { tools =>
        val (sink, report) = tools.one(s.identity.toString)
        val decision = sink.decision.get
        assert(sink.record.exists(r => r.run == 1 && r.queryName == s"name-of-${s.topic}"))
        assert(decision.batch == 1 && decision.decidedAtMs.exists(_ >= sink.begunAtMs.get))
        assert(decision.unfinished.size == decision.transactions && decision.transactions == 2)
        assert(decision.unfinished.map(_.rows).sum == decision.rows && decision.rows > 0)
        assert(
          sink.next.text == "batch 1 is decided, not complete: of 2 transactions 2 are to be " +
            s"copied (${decision.rows} rows)"
        )
        assert(sink.topics == Set(s.topic))
        val open = report.openOf(s.identity)
        assert(open.flatMap(_.transactionalId).toSet == decision.unfinished.map(
          _.name.transactionalId
        ).toSet)
        assert(open.forall(t => t.sinceMs.isDefined && t.timeoutMs.contains(60000L)))
        assert(open.flatMap(_.held).forall(h => h.stable <= h.since && h.since < h.end))
        assert(open.forall(_.held.nonEmpty) && report.openOfOthers.isEmpty)

        val done = tools.finish(sink)
        assert(done.run == 2 && done.completion.exists(_.copiedRows == decision.rows))
        assert(done.notes.isEmpty)
      }
      assert(nextOf(s) == NextStart.GoesOn(1))
      s.checkpoint.committed = Set(0, 1)
      judged(s)
      tools(s) { tools =>
        val (sink, report) = tools.one(s.identity.appId)
        assert(report.open.isEmpty)
        assert(sink.record.exists(r => r.run == 2 && r.queryName == s"name-of-${s.topic}"))
      }
      s.runBatch()
      judged(s)
    }
  }

  test("a driver that runs is fenced, and says so") {
    running(new Simulation(brokers, topic("fence"), new Deaths)) { s =>
      s.runBatch()
      tools(s)(tools => tools.finish(tools.one(s.identity.toString)._1))
      val e = intercept[SinkException.Superseded](s.attemptBatch(1))
      assert(e.getMessage.startsWith("Another run writes for the same sink"))
      // Under another name it would write the batch again that was finished for it.
      assert(e.getMessage.contains("start this one again as it was"))
    }
  }

  test("transactions of others are shown where readers wait for them, with their ids") {
    running(new Simulation(brokers, topic("others"), new Deaths)) { s =>
      s.runBatch()
      val place = new TopicPartition(s.topic, 2)
      def others: StatusReport = tools(s)(_.status(Some(s.identity.toString)))
      withStranger(s, place, "a-stranger") {
        val Vector(open) = others.openOfOthers: @unchecked
        assert(open.transactionalId.contains("a-stranger") && open.sink.isEmpty)
        val Vector(held) = open.held: @unchecked
        assert(held.topicPartition == place && held.stable == held.since)
        assert(held.end == held.since + 1)
      }
      // What it hides is not waited for.
      val commits = new TopicPartition(s.settings.commitTopic, s.identity.commitPartition)
      withStranger(s, commits, "another.stranger") {
        val report = others
        assert(report.sinks.map(_.next) == Vector(NextStart.GoesOn(0)))
        assert(report.openOfOthers.flatMap(_.held).map(_.topicPartition) == Vector(commits))
      }
    }
  }

  test("what was decided is forgotten: the next batch is written, whatever its number") {
    running(new Simulation(brokers, topic("forget"), new Deaths)) { s =>
      s.runBatches(2)
      s.restart()
      val (sink, _) = tools(s)(_.one(s.identity.toString))
      tools(s)(_.forget(sink, isGivenUp = false, isWhole = false))
      assert(nextOf(s) == NextStart.Begins)
      // The checkpoint was set back.
      s.checkpoint.committed = Set(0)
      s.attemptBatch(1, Some(Simulation.fingerprint(7)))
      assert(!s.figures.last.isDiscarded)
      tools(s)(_.forget(sink, isGivenUp = false, isWhole = true))
      val e = intercept[SinkException.RefusedSetting](nextOf(s))
      assert(e.problem == s"No sink ${s.identity} is known", e)
    }
  }

  test("a decision that is given up never reaches readers") {
    withUnfinished("give-up") { s =>
      val (sink, _) = tools(s)(_.one(s.identity.toString))
      tools(s)(_.forget(sink, isGivenUp = true, isWhole = false))
      assert(nextOf(s) == NextStart.Begins)
      // Batch 1 is written anew.
      s.runBatches(2)
      judged(s)
      assert(copied(s) == 0)
    }
  }

  test("rows that are lost are not finished, and not forgotten without a word") {
    withUnfinished("lost") { s =>
      val open = Conditions.openTransactions(brokers, s.identity)
      brokers.admin.fenceProducers(open.asJava).all().get(): Unit
      brokers.deleteTopic(s.topic)
      brokers.topic(s.topic)
      val (sink, _) = tools(s)(_.one(s.identity.toString))
      intercept[SinkException.LostRows](tools(s)(_.forget(
        sink,
        isGivenUp = false,
        isWhole = false
      )))
      assert(nextOf(s) == NextStart.RunsAgain(1, None))
      // Found again, it still is not complete.
      assert(tools(s)(_.finish(sink)).outcome == Outcome.Lost)
    }
  }

  test("only those of a prefix, or of one name") {
    val name = topic("names")
    val options = Map("commitTopic" -> s"$name-commits")
    for (id <- Seq("a.b", "c"))
      running(new Simulation(
        brokers,
        name,
        new Deaths,
        queryId = s"query-$id",
        options = options + ("transactionalIdPrefix" -> id)
      ))(_.runBatch())
    running(new Simulation(brokers, name, new Deaths, options = options)) { s =>
      def found(name: Option[String], prefix: Option[String]) =
        tools(s)(_.status(name, prefix)).sinks.map(_.identity.appId)
      assert(found(None, None) == Vector("query-a.b", "query-c"))
      assert(found(None, Some("a.b")) == Vector("query-a.b"))
      assert(found(Some(s"query-c/$name"), None) == Vector("query-c"))
      val e = intercept[SinkException](found(Some("query"), None))
      assert(e.reason == s"there are query-a.b/$name, query-c/$name")
    }
  }

  test("a name stands for one sink, or those of one app id") {
    val all = Set("q" -> "a", "q" -> "b", "r" -> "q/a").map { case (a, s) => SinkIdentity(a, s) }
    def named(name: String) = SinkTools.named("c", all, Some(name)).map(_.toString)
    assert(named("q/a") == Vector("q/a"))
    assert(named("q") == Vector("q/a", "q/b"))
    assert(named("r/q/a") == Vector("r/q/a"))
    assert(intercept[SinkException](named("a")).remedy.contains("<sink name>"))
    assert(intercept[SinkException](SinkTools.named("c", Set.empty, Some("q")))
      .reason.contains("knows none"))
  }

  test("what next starts are, in words") {
    def committing(is: Boolean, rows: Long) =
      UnfinishedTransaction(TransactionName("id", 1), rows, is)
    assert(NextStart.GoesOn(17).text == "batch 17 is complete: goes on with 18, or a later one")
    assert(NextStart.RunsAgain(3, Some(Set(2, 0))).text ==
      "batch 3 was decided, and rows of it were lost: writes partitions 0, 2 again")
    assert(
      NextStart.Completes(17, 3, Vector(committing(true, 5), committing(false, 1))).text ==
        "batch 17 is decided, not complete: of 3 transactions 1 is with the readers, 1 is being " +
        "committed, 1 is to be copied (1 row)"
    )
  }

  test("no commit topic, and no brokers") {
    val fast = Map(
      "kafka.default.api.timeout.ms" -> "1500",
      "kafka.request.timeout.ms" -> "1000"
    )
    def failure(bootstrap: String): SinkException = intercept[SinkException] {
      val options = Map("kafka.bootstrap.servers" -> bootstrap, "commitTopic" -> "tools-none")
      Using.resource(SinkTools.open(SinkSettings.of(options ++ fast)))(_.status(None))
    }
    assert(failure(brokers.bootstrap).problem == "Topic tools-none is not there")
    val e = failure("127.0.0.1:1")
    assert(e.isInstanceOf[SinkException.Unavailable] && e.reason.contains("gave no answer"), e)
    assert(failure("no.such.host.invalid:9092").reason.contains("has a name that can be looked up"))
  }
}
