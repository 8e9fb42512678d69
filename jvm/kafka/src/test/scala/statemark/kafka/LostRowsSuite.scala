package statemark.kafka

import org.apache.kafka.clients.admin.RecordsToDelete
import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.TopicPartition
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import scala.util.Using
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkPhase}
import statemark.kafka.decision.{LastDecision, Outcome, Placement}
import statemark.kafka.driver.{BatchPlan, DriverSeams}
import statemark.kafka.executor.{AttemptWriter, CommitAnswer, CommitOrder, CommitOrders}
import statemark.kafka.log.Progress
import statemark.kafka.rows.TransactionName
import statemark.kafka.sim._
import statemark.kafka.tools.SinkTools

/** Row 16: a decision names rows that the log does not have any more. */
class LostRowsSuite extends AnyFunSuite with Simulated {
  override def prefix = "lost"

  /** A batch is decided, perhaps one executor has committed, the driver dies, and rows are deleted. */
  private def lose(
      name: String,
      options: Map[String, String],
      isPartlyCommitted: Boolean,
      placement: Placement = Simulation.placement
  )(check: Simulation => Unit): Unit = {
    lazy val simulation: Simulation = new Simulation(
      brokers,
      topic(name),
      new Deaths,
      options = options,
      orders = real =>
        new CommitOrders {
          override def commit(orders: Seq[CommitOrder]): Map[TransactionName, CommitAnswer] =
            if (simulation.reports.size > 1) real.commit(orders)
            else {
              if (isPartlyCommitted) real.commit(orders.take(1))
              throw new Died(SinkPhase.OrdersAnswered)
            }
          override def abort(identity: SinkIdentity, batch: Long): Unit =
            real.abort(identity, batch)
        }
    )
    running(simulation) { s =>
      s.placement = Some(placement)
      intercept[Died](s.attemptBatch(0))
      s.killDriver(withExecutors = true)
      // Open transactions of the dead would hide what was committed behind them.
      val open = Conditions.openTransactions(brokers, s.identity)
      brokers.admin.fenceProducers(open.asJava).all().get(): Unit
      check(s)
    }
  }

  private def recreated(topic: String): Unit = {
    brokers.deleteTopic(topic)
    brokers.topic(topic): Unit
  }

  test("row 16: where no reader has a row, the decision is taken back and the batch runs whole") {
    lose("none", Map.empty, isPartlyCommitted = false) { s =>
      recreated(s.topic)
      s.runBatches(2)
      judged(s)
      assert(s.reports.last.completion.flatMap(_.reopened).exists(_.missing.isEmpty))
      // It was decided, and is not with the readers all the same.
      assert(s.reports.last.decided.isDefined && s.reports.last.outcome == Outcome.Lost)
      assert(!s.figures.head.isDiscarded)
      // What the rerun decided is known again.
      s.restart()
      s.checkpoint.committed -= 1L
      s.runBatches(2)
      judged(s)
    }
  }

  test("row 16: rows at the offsets are others: their hash says so") {
    lose("hash", Map.empty, isPartlyCommitted = false) { s =>
      recreated(s.topic)
      val writer = new ProcessClients(s.settings)
      val producer = writer.producer("somebody-else")
      producer.initTransactions()
      producer.beginTransaction()
      for (at <- 0 until 200; partition <- 0 until 4)
        producer.send(
          new org.apache.kafka.clients.producer.ProducerRecord(
            s.topic,
            partition,
            s"$at".getBytes,
            s"-1|0|1|0|0|$at".getBytes
          )
        )
      producer.abortTransaction()
      s.runBatches(2)
      judged(s)
      assert(s.reports.last.completion.flatMap(_.reopened).exists(_.missing.isEmpty))
      writer.kill()
    }
  }

  test("row 16: where readers have some rows, it fails by name") {
    lose("some", Map.empty, isPartlyCommitted = true) { s =>
      recreated(s.topic)
      val e = intercept[SinkException.LostRows](s.attemptBatch(0))
      assert(!e.isRetryable)
      assert(e.getMessage.contains("onLostRows"))
      assert(e.values("batch") == "0")
      // As the error says: with what was decided given up, the batch is written whole.
      s.restart()
      assert(e.getMessage.contains("forget --force"))
      Using.resource(SinkTools.open(s.settings)) { tools =>
        val (sink, _) = tools.one(s.identity.toString)
        tools.forget(sink, isGivenUp = true, isWhole = false): Unit
      }
      s.runBatches(2)
      judged(s)
    }
  }

  test("row 16: onLostRows=rerun writes the missing partitions again, and no others") {
    lose("rerun", Map("onLostRows" -> "rerun"), isPartlyCommitted = true) { s =>
      val visible = s.judge().rows
      assert(visible > 0)
      // All that is not with the readers goes.
      deleteUncommitted(s)
      s.runBatch()
      val reopened = s.reports.last.completion.flatMap(_.reopened).get
      assert(reopened.missing.exists(missing => missing.nonEmpty && missing.size < 6))
      val judgement = s.judge()
      assert(judgement.duplicated == 0)
      assert(judgement.mixed == 1, "rows of two tries, as the option says")
      val partitions = brokers.read(s.topic).map(r => new String(r.value).split('|')(3)).distinct
      assert(partitions.size == 6)
      s.runBatch()
      assert(!s.figures.last.isDiscarded)
    }
  }

  for (
    (name, now, says) <- Seq(
      (
        "adaptive",
        Simulation.placement.copy(isChosen = true),
        "Spark chooses places as it runs now"
      ),
      (
        "shuffles",
        Simulation.placement.copy(shuffles = Vector(4)),
        "its shuffles had 6 partitions"
      ),
      ("inputs", Simulation.placement.copy(inputs = Vector(3)), "its inputs had 2 partitions")
    )
  ) test(s"row 16: onLostRows=rerun is refused before a task where rows lie elsewhere: $name") {
    lose(s"rerun-$name", Map("onLostRows" -> "rerun"), isPartlyCommitted = true) { s =>
      val visible = s.judge().rows
      deleteUncommitted(s)
      s.placement = Some(now)
      val e = intercept[SinkException.WrongHistory](s.attemptBatch(0))
      assert(e.getMessage.contains(says), e.getMessage)
      assert(s.judge().rows == visible)
      // With what it had, it runs.
      s.restart()
      s.placement = Some(Simulation.placement)
      s.runBatch()
      assert(s.judge().duplicated == 0)
    }
  }

  test("row 16: onLostRows=rerun takes no decision back whose places Spark chose as it ran") {
    lose(
      "rerun-chosen",
      Map("onLostRows" -> "rerun"),
      isPartlyCommitted = true,
      Simulation.placement.copy(isChosen = true)
    ) { s =>
      deleteUncommitted(s)
      val e = intercept[SinkException.LostRows](s.attemptBatch(0))
      assert(e.getMessage.contains("Spark chose places as the batch ran"), e.getMessage)
    }
  }

  test("row 16: where the batch has no rows any more, the next one is written") {
    lose("empty", Map("onLostRows" -> "rerun"), isPartlyCommitted = true) { s =>
      deleteUncommitted(s)
      val BatchPlan.Write(spec) = s.coordinator.begin(s.start(0)): @unchecked
      val empty = s.runTasks(spec, Try(0, 99, Vector.fill(6)(0)))
      assert(s.coordinator.commit(0, empty).rows == 0)
      s.checkpoint.committed = Set(0)
      s.runBatch()
      assert(s.figures.last.rows > 0)
    }
  }

  test("row 16: rows that are lost a second time are written again, and no others") {
    lose("twice", Map("onLostRows" -> "rerun"), isPartlyCommitted = true) { s =>
      deleteUncommitted(s)
      s.deaths.at(SinkPhase.DecisionDurable)
      intercept[Died](s.attemptBatch(0)) // the second round is decided
      s.killDriver(withExecutors = true)
      val open = Conditions.openTransactions(brokers, s.identity)
      brokers.admin.fenceProducers(open.asJava).all().get(): Unit
      deleteUncommitted(s)
      s.runBatch()
      val tries = brokers.read(s.topic).map(r => new String(r.value).split('|'))
        .groupBy(_(3)).view.mapValues(_.map(_(1)).distinct.size).toMap
      assert(tries.size == 6)
      assert(tries.values.forall(_ == 1), tries)
    }
  }

  test("row 16: where no reader has a row of the second round, all of it runs again") {
    lose("hidden", Map("onLostRows" -> "rerun"), isPartlyCommitted = true) { s =>
      deleteUncommitted(s)
      val BatchPlan.Write(spec) = s.coordinator.begin(s.start(0)): @unchecked
      val missing = spec.partitions.get
      val executor = new SimExecutor("900", s.settings, new Deaths)
      s.executors = Vector(executor)
      val tried = Try(0, 99, Vector.fill(6)(2))
      def send(writer: AttemptWriter, task: Int, at: Int, to: Int): Unit = {
        val row = tried.row(s.topic, task, 900, at)
        writer.write(new ProducerRecord(s.topic, Int.box(to), row.key, row.value))
      }
      val messages = (0 until 6).map { task =>
        val writer = executor.sinks.writer(spec, executor.id, task, 900L + task)
        if (missing(task)) {
          send(writer, task, 0, to = 0)
          // Ends the transaction: the task's other row is in the next one.
          val surplus = executor.sinks.writer(spec, executor.id, task, 950L + task)
          send(surplus, task, 0, to = 0)
          surplus.abort()
          send(writer, task, 1, to = 1)
        }
        writer.commit()
      }
      s.deaths.at(SinkPhase.DecisionDurable)
      intercept[Died](s.coordinator.commit(0, messages))
      s.killDriver(withExecutors = true)
      val open = Conditions.openTransactions(brokers, s.identity)
      brokers.admin.fenceProducers(open.asJava).all().get()
      brokers.admin.deleteRecords(Map(
        new TopicPartition(s.topic, 0) -> RecordsToDelete.beforeOffset(-1)
      ).asJava).all().get()
      s.runBatch()
      assert(s.reports.last.completion.flatMap(_.reopened).flatMap(_.missing).contains(missing))
      Conditions.awaitMarkers(brokers, s.identity)
      val tries = brokers.read(s.topic).map(r => new String(r.value).split('|'))
        .filter(row => missing(row(3).toInt)).map(row => row(3) -> row(1)).distinct
      assert(tries.size == missing.size && !tries.exists(_._2 == "99"), tries)
    }
  }

  /** A topic that holds only what was committed, at the offsets that it had. */
  private def deleteUncommitted(s: Simulation): Unit = {
    val all = brokers.read(s.topic, committed = false)
    val kept = brokers.read(s.topic)
    recreated(s.topic)
    val clients = new ProcessClients(s.settings)
    val producer = clients.producer("the-restorer")
    producer.initTransactions()
    producer.beginTransaction()
    kept.foreach { r =>
      producer.send(
        new org.apache.kafka.clients.producer.ProducerRecord(
          s.topic,
          r.partition,
          r.key,
          r.value
        )
      )
    }
    producer.commitTransaction()
    assert(all.size > kept.size)
    clients.kill()
  }

  /** The driver dies behind the first piece of a copy. Rows that lie before an offset of their partition are then deleted.
    * @param from what names that offset, of the number of rows in the piece, and the offsets of the first partition
    */
  private def copiedInPart(
      name: String,
      copyBytes: Long,
      config: Map[String, String] = Map.empty
  )(from: (Int, Vector[Long]) => Long)(check: (Simulation, Long) => Unit): Unit = {
    val deaths = new Deaths().at(SinkPhase.CopyCommitted)
    lazy val simulation: Simulation = new Simulation(
      brokers,
      topic(name, config),
      deaths,
      seams = DriverSeams(copyBytes = copyBytes),
      executorCount = 1,
      messages = m => {
        simulation.killExecutor()
        m
      }
    )
    running(simulation) { s =>
      intercept[Died](s.attemptBatch(0))
      s.killDriver(withExecutors = true)
      val state = s.commitLog.read(s.identity)
      val LastDecision.Decided(decision) = state.last: @unchecked
      val Vector((transaction, slot)) = state.unfinished(decision): @unchecked
      val Progress.Copied(copied) = state.progress(decision, transaction, slot): @unchecked
      val first = transaction.rows.head
      val offsets = first.runs.starts.zip(first.runs.ends).flatMap { case (a, b) => a until b }
      brokers.admin.deleteRecords(Map(
        first.topicPartition -> RecordsToDelete.beforeOffset(from(copied.toInt, offsets.toVector))
      ).asJava).all().get()
      check(s, decision.count - copied)
    }
  }

  private def goesOn(s: Simulation, left: Long): Unit = {
    s.runBatch()
    assert(s.reports.last.completion.exists(c => c.copiedRows == left && c.reopened.isEmpty))
    assert(s.figures.last.isDiscarded)
    judged(s)
  }

  private val longLag =
    Map("cleanup.policy" -> "compact,delete", "min.compaction.lag.ms" -> "3600000")

  for ((what, config) <- Seq("" -> Map.empty[String, String], "-compacted" -> longLag))
    test(s"rows that were copied may go from the log$what: the copy goes on behind them") {
      copiedInPart(s"in-part$what", copyBytes = 50, config) { (copied, offsets) =>
        assert(copied < offsets.size)
        offsets(copied)
      }(goesOn)
    }

  test("all rows of a partition were copied, and are gone: the copy goes on with the next one") {
    copiedInPart("partition", copyBytes = 250) { (copied, offsets) =>
      assert(copied > offsets.size)
      offsets.last + 1
    }(goesOn)
  }

  test("a row behind those that were copied is gone: it fails by name") {
    copiedInPart("behind", copyBytes = 50)((copied, offsets) => offsets(copied) + 1) { (s, _) =>
      val e = intercept[SinkException.LostRows](s.attemptBatch(0))
      assert(e.reason.contains("begins at"), e)
    }
  }

  test("row 16: retention has passed") {
    lose("retention", Map.empty, isPartlyCommitted = false) { s =>
      val ends = brokers.read(s.topic, committed = false)
        .groupBy(r => new org.apache.kafka.common.TopicPartition(s.topic, r.partition))
        .map { case (place, rows) => place -> (rows.map(_.offset).max + 1) }
      brokers.admin.deleteRecords(
        ends.map { case (place, end) =>
          place -> RecordsToDelete.beforeOffset(end)
        }.asJava
      ).all().get()
      s.runBatches(2)
      judged(s)
      assert(s.reports.last.completion.flatMap(_.reopened).isDefined)
    }
  }
}
