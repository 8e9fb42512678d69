package statemark.kafka

import java.nio.charset.StandardCharsets.UTF_8
import org.apache.kafka.clients.producer.Partitioner
import org.scalatest.funsuite.AnyFunSuite
import statemark.kafka.conf.{SinkException, SinkPhase}
import statemark.kafka.executor.{RefusedRows, RowSize}
import statemark.kafka.sim._

/** What options change on the way of a row. */
class SinkOptionsSuite extends AnyFunSuite with SingleRows {
  override def prefix = "options"

  test(
    "producersPerExecutor: each executor has so many transactions, and a death costs copies only"
  ) {
    val deaths = new Deaths
    val options = Map("producersPerExecutor" -> "2")
    running(new Simulation(brokers, topic("producers"), deaths, options = options)) { s =>
      s.runBatch()
      assert(s.figures.head.transactions == 4 && copied(s) == 0)
      deaths.at(SinkPhase.DecisionDurable)
      s.runBatches(2)
      judged(s)
      assert(s.reports.last.completion.exists(c => c.copiedTransactions == 4 && c.copiedRows > 0))
    }
  }

  test("producersPerExecutor: open transactions of all producers of a dead executor are ended") {
    val deaths = new Deaths().at(SinkPhase.BeforeDecision)
    val options = Map("producersPerExecutor" -> "2")
    running(new Simulation(brokers, topic("dead"), deaths, options = options)) { s =>
      intercept[Died](s.attemptBatch(0))
      s.killDriver(withExecutors = true)
      s.runBatch()
      assert(s.reports.last.fenced.size == 4)
      judged(s)
    }
  }

  test("producersPerExecutor: local mode has one, and rows and decision are one transaction") {
    val options = Map("producersPerExecutor" -> "2")
    running(new Simulation(
      brokers,
      topic("local"),
      new Deaths,
      options = options,
      isLocal = true
    )) {
      s =>
        s.runBatch()
        judged(s)
        assert(s.figures.head.transactions == 1)
    }
  }

  test("refusedRowsTopic: rows that can never be sent go there, with headers that say why") {
    val name = topic("refusing", Map("max.message.bytes" -> "2000"))
    val other = topic("refused", Map("max.message.bytes" -> "3000"))
    val options = Map(
      "refusedRowsTopic" -> other,
      "kafka.max.request.size" -> "600000",
      "kafka.max.block.ms" -> "5000",
      "kafka.batch.size" -> "2000"
    )
    running(new Simulation(brokers, name, new Deaths, options = options)) { s =>
      val figures = write(
        s,
        0,
        row(name, "fits".getBytes(UTF_8)),
        row(name, new Array(2500)),
        row(name, new Array(50000)),
        row(name, new Array(700000)),
        row("options-absent", "v".getBytes(UTF_8)),
        row("no topic has a blank", "w".getBytes(UTF_8)),
        row(name, "x".getBytes(UTF_8), partition = Some(99))
      )
      assert(figures.rows == 7 && figures.refusedRows == 6)
      Conditions.awaitMarkers(brokers, s.identity)
      assert(brokers.read(name).map(r => new String(r.value)) == Vector("fits"))
      val found = brokers.read(other)
      assert(found.size == 6 && found.forall(r => new String(r.key) == "key"))
      val told = found.map(headers)
      assert(told.groupBy(_(RefusedRows.Reason)).view.mapValues(_.size).toMap ==
        Map("too-large" -> 3, "no-topic" -> 2, "no-partition" -> 1))
      val large = found.filter(r => headers(r)(RefusedRows.Reason) == "too-large")
        .sortBy(r => headers(r)(RefusedRows.Bytes).toInt)
      assert(large.map(r => Option(r.value).map(_.length)) == Vector(Some(2500), None, None))
      assert(large.map(r => headers(r).get(RefusedRows.Withheld)) ==
        Vector(None, Some("value headers"), Some("value headers")))
      assert(large.map(r => headers(r).get("own")) == Vector(Some("1"), None, None))
      assert(large.forall(r => headers(r)(RefusedRows.Topic) == name))
      assert(told.flatMap(_.get(RefusedRows.Partition)) == Vector("99"))
      // A topic that is made meanwhile, and a limit that is raised, count from the next batch on.
      brokers.topic("options-absent")
      assert(write(s, 1, row("options-absent", "v".getBytes(UTF_8))).refusedRows == 0)
      brokers.deleteTopic("options-absent")
    }
  }

  test("a row for the commit topic is refused, whatever that topic would take") {
    val lax = Map("allowShortCompactionLag" -> "true")
    running(new Simulation(brokers, topic("no-commits"), new Deaths, options = lax)) { s =>
      val e = intercept[SinkException.RefusedSetting](
        write(s, 0, row(s.settings.commitTopic, "v".getBytes(UTF_8)))
      )
      assert(e.reason.contains("its topic is the commit topic"))
    }
    val other = topic("not-commits")
    val options = lax + ("refusedRowsTopic" -> other)
    running(new Simulation(brokers, topic("some-commits"), new Deaths, options = options)) { s =>
      val figures = write(
        s,
        0,
        row(s.settings.commitTopic, "v".getBytes(UTF_8)),
        row("__transaction_state", "w".getBytes(UTF_8))
      )
      assert(figures.rows == 2 && figures.refusedRows == 2)
      Conditions.awaitMarkers(brokers, s.identity)
      assert(brokers.read(other).map(headers(_)(RefusedRows.Reason)).toSet ==
        Set("commit-topic", "not-allowed"))
    }
  }

  test(
    "refusedRowsTopic: a topic that the brokers make is made, and a name that none has is refused"
  ) {
    val making = new TestBrokers(settings = Map("auto.create.topics.enable" -> "true"))
    try {
      val other = making.topic("making-refused")
      val options = Map("refusedRowsTopic" -> other)
      val name = making.topic("making")
      running(new Simulation(making, name, new Deaths, options = options)) { s =>
        val figures = write(
          s,
          0,
          row("made-by-the-row", "v".getBytes(UTF_8)),
          row("no topic has a blank", "w".getBytes(UTF_8))
        )
        assert(figures.rows == 2 && figures.refusedRows == 1)
        Conditions.awaitMarkers(making, s.identity)
        assert(making.read("made-by-the-row").map(r => new String(r.value)) == Vector("v"))
      }
    } finally making.close()
  }

  test("refusedRowsTopic: sizes are those of Kafka, to the byte") {
    val name = topic("exact", Map("max.message.bytes" -> "700000"))
    val small = "kafka.batch.size" -> "2000"
    val options =
      Map("kafka.max.request.size" -> "600000", "refusedRowsTopic" -> topic("inexact"), small)
    def largest(most: Int, size: Row => Long): Array[Byte] =
      Iterator.from(most, -1).map(new Array[Byte](_)).find(v => size(row(name, v)) <= most).get
    val byRequest = largest(600000, RowSize.ofRequest)
    running(new Simulation(brokers, name, new Deaths, options = options)) { s =>
      assert(write(s, 0, row(name, byRequest)).refusedRows == 0)
      assert(write(s, 1, row(name, new Array(byRequest.length + 1))).refusedRows == 1)
    }
    val byBatch = largest(700000, RowSize.ofBatch)
    running(new Simulation(
      brokers,
      name,
      new Deaths,
      options = options +
        ("kafka.max.request.size" -> "800000") + ("sinkName" -> "batch")
    )) { s =>
      assert(write(s, 0, row(name, byBatch)).refusedRows == 0)
      assert(write(s, 1, row(name, new Array(byBatch.length + 1))).refusedRows == 1)
    }
    // Kafka refuses what the sink would refuse.
    for ((sink, size, most) <- Seq(("q", byRequest, "600000"), ("b", byBatch, "800000")))
      running(new Simulation(
        brokers,
        name,
        new Deaths,
        options = Map("kafka.max.request.size" -> most, "sinkName" -> sink, small)
      )) { s =>
        val e =
          intercept[SinkException.UnsendableRow](write(s, 0, row(name, new Array(size.length + 1))))
        assert(!e.isRetryable && e.getMessage.contains("refusedRowsTopic"))
        assert(e.values("topic") == name && e.values("key") == "key")
      }
  }

  test(
    "a topic that takes smaller batches than the producer makes is refused before a row is sent"
  ) {
    val name = topic("narrow", Map("max.message.bytes" -> "5000"))
    def batch(options: (String, String)*) =
      running(new Simulation(brokers, name, new Deaths, options = options.toMap)) { s =>
        assert(write(s, 0, row(name, new Array(1))).rows == 1)
      }
    val e = intercept[SinkException.RefusedSetting](batch())
    assert(e.values == Map(
      "topic" -> name,
      "max.message.bytes" -> "5000",
      "kafka.batch.size" -> "16384"
    ))
    batch("kafka.batch.size" -> "5000")
  }

  test("a topic of the column that takes smaller batches than the producer makes is named") {
    val name = topic("narrow-column", Map("max.message.bytes" -> "5000"))
    // The producer tries until its timeout.
    val soon = Map(
      "kafka.delivery.timeout.ms" -> "3000",
      "kafka.request.timeout.ms" -> "1000",
      "kafka.linger.ms" -> "500"
    )
    running(new Simulation(brokers, topic("wide"), new Deaths, options = soon)) { s =>
      val rows = Seq.fill(12)(row(name, new Array(1000), Some(0)))
      val e = intercept[SinkException.RefusedSetting](write(s, 0, rows: _*))
      assert(e.values("max.message.bytes") == "5000")
    }
  }

  test("a topic that takes no old rows is told of") {
    val name = topic("young", Map("message.timestamp.before.max.ms" -> "86400000"))
    running(new Simulation(brokers, name, new Deaths)) { s =>
      s.runBatch()
      assert(s.reports.last.notes.exists(_.contains("message.timestamp.before.max.ms=86400000")))
    }
  }

  test("a row whose topic is not there fails by name") {
    val options = Map("kafka.max.block.ms" -> "1000")
    running(new Simulation(brokers, topic("named"), new Deaths, options = options)) { s =>
      val e =
        intercept[SinkException.FailedWrite](write(s, 0, row("options-nowhere", new Array(1))))
      assert(e.getMessage.contains("is not there") && e.remedy.contains("refusedRowsTopic"))
      assert(e.values("topic") == "options-nowhere")
    }
  }

  test("plugins of the user's have their options, in each client that has the plugin") {
    val options = Map(
      "kafka.partitioner.class" -> classOf[ModuloPartitioner].getName,
      "kafka.modulo.Only" -> "2",
      "kafka.metric.reporters" -> classOf[NotingReporter].getName,
      "kafka.config.providers" -> "own",
      "kafka.config.providers.own.class" -> classOf[EchoProvider].getName,
      "kafka.config.providers.own.param.Greeting" -> "told-",
      "kafka.client.id" -> s"$${own::me}"
    )
    Plugins.seen.clear()
    running(new Simulation(brokers, topic("plugins"), new Deaths, options = options)) { s =>
      s.runBatches(2)
      judged(s)
      assert(brokers.read(s.topic).map(_.partition).toSet == Set(2))
      for (plugin <- Seq("ModuloPartitioner", "NotingReporter")) {
        val of = Plugins.seen.get(plugin)
        assert(of.nonEmpty && of.forall(_.get("modulo.Only").contains("2")), plugin)
      }
      val clients = Plugins.seen.get("NotingReporter")
      assert(clients.exists(_.contains("transactional.id")) &&
        clients.exists(_.contains("isolation.level")) &&
        clients.exists(c => !c.contains("transactional.id") && !c.contains("isolation.level")))
      assert(clients.flatMap(_.get("client.id")).exists(_.startsWith("told-me")))
      assert(clients.filter(_.contains("transactional.id")).forall(_.get("acks").contains("all")))
    }
  }

  test("a partitioner of the user's that fails, or names no partition of the topic, is told of") {
    val odd = Map(
      "kafka.partitioner.class" -> classOf[OddPartitioner].getName,
      "kafka.request.timeout.ms" -> "1000",
      "kafka.delivery.timeout.ms" -> "2000"
    )
    for (
      (does, says) <- Seq(
        "fails" -> "it threw java.lang.IllegalStateException: fails",
        "9" -> "it put a row into partition 9, and its topic has 4",
        "-1" -> "it put a row into partition -1, and its topic has 4"
      )
    ) {
      val options = odd + ("kafka.odd.does" -> does)
      running(new Simulation(brokers, topic(s"odd$does"), new Deaths, options = options)) { s =>
        val e = intercept[SinkException.RefusedSetting](write(s, 0, row(s.topic, new Array(1))))
        assert(e.reason == says && !e.isRetryable, e)
        assert(e.values("option") == "kafka.partitioner.class", e)
        assert(e.values("class") == classOf[OddPartitioner].getName, e)
        assert(e.values("topic") == s.topic && e.values("key") == "key", e)
      }
    }
  }

  test("a partitioner of the user's hears of new batches, of a client that tells of them") {
    val options = Map("kafka.partitioner.class" -> classOf[StickyPartitioner].getName)
    running(new Simulation(brokers, topic("sticky"), new Deaths, options = options)) { s =>
      write(s, 0, row(s.topic, new Array(1))): Unit
      val tells = classOf[Partitioner].getMethods.exists(_.getName == "onNewBatch")
      Conditions.awaitMarkers(brokers, s.identity)
      assert(brokers.read(s.topic).map(_.partition) == Vector(if (tells) 1 else 0))
    }
  }

  test("refusedRowsTopic has to be there before the first batch") {
    val options = Map("refusedRowsTopic" -> "options-nowhere")
    running(new Simulation(brokers, topic("early"), new Deaths, options = options)) { s =>
      val e = intercept[SinkException.RefusedSetting](s.attemptBatch(0))
      assert(e.values("value") == "options-nowhere")
    }
  }
}
