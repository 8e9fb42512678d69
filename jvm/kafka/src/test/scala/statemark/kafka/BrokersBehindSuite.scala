package statemark.kafka

import java.util.concurrent.atomic.AtomicInteger
import org.apache.kafka.clients.admin.Admin
import org.apache.kafka.clients.producer.ProducerRecord
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.Clock
import statemark.kafka.clients.KafkaClients
import statemark.kafka.conf.SinkSettings
import statemark.kafka.decision.LastDecision
import statemark.kafka.driver.{TopicLogRows, UncopiedRows}
import statemark.kafka.executor.RefusedRows
import statemark.kafka.sim._

/** A broker that has just started, or is behind, says of topics that are there that it does not know them. */
class BrokersBehindSuite extends AnyFunSuite with Simulated {
  override def prefix = "behind"

  private class Fixture(name: String, answers: Int, knowsCommitTopic: Boolean) {
    val target: String = topic(s"$name-refused")
    val output: String = topic(name)
    val settings: SinkSettings = SinkSettings.of(Map(
      "kafka.bootstrap.servers" -> brokers.bootstrap,
      "refusedRowsTopic" -> target,
      "commitTopic" -> topic(s"$name-commits")
    ))
    val admins = new AtomicInteger
    private val left = new AtomicInteger(answers)
    private val knows = if (knowsCommitTopic) Set(settings.commitTopic) else Set.empty[String]
    private val clients = new KafkaClients {
      private val real = KafkaClients.of(settings)
      override def producer(id: String): RowProducer = real.producer(id)
      override def consumer(committedOnly: Boolean): RowConsumer = real.consumer(committedOnly)
      override def admin(): Admin = {
        admins.incrementAndGet()
        BehindAdmin(real.admin(), left, knows)
      }
    }
    val rows = new RefusedRows(clients, settings, target)

    def refused(batch: Long, topic: String, partition: Option[Int] = None): Option[String] = {
      val record = new ProducerRecord[Array[Byte], Array[Byte]](
        topic,
        partition.map(Int.box).orNull,
        "k".getBytes,
        "v".getBytes
      )
      rows.instead(batch, record).map(r =>
        new String(r.headers.lastHeader(RefusedRows.Reason).value)
      )
    }
  }

  for (knowsCommitTopic <- Seq(false, true)) {
    val which = if (knowsCommitTopic) "that is a little behind" else "that has just started"
    test(s"rows are not refused because of a broker $which") {
      val f = new Fixture(s"rows-$knowsCommitTopic", answers = 3, knowsCommitTopic)
      assert(f.refused(0, f.output).isEmpty)
      assert(f.refused(0, f.output, Some(3)).isEmpty)
      f.rows.forget()
      assert(f.refused(0, f.output).isEmpty)
      f.rows.close()
    }
  }

  test("topics and partitions that are not there are asked for once in a batch, by one client") {
    val f = new Fixture("once", answers = 0, knowsCommitTopic = true)
    for (batch <- 0 until 3; at <- 0 until 100) {
      assert(f.refused(batch.toLong, f.output, Some(90 + at)).contains("no-partition"))
      assert(f.refused(batch.toLong, s"behind-absent-$batch-${at % 2}").contains("no-topic"))
    }
    assert(f.admins.get == 1)
    assert(f.rows.knownNames <= 2 * 3, "names of two batches")
    f.rows.close()
  }

  test("rows of a decision are not lost because of a broker that has just started") {
    running(new Simulation(brokers, topic("decision"), new Deaths)) { s =>
      s.runBatch()
      Conditions.awaitMarkers(brokers, s.identity)
      val clients = KafkaClients.of(s.settings)
      val LastDecision.Decided(decision) = s.commitLog.read(s.identity).last: @unchecked
      for (knows <- Seq(Set.empty[String], Set(s.settings.commitTopic))) {
        val admin = BehindAdmin(brokers.admin, new AtomicInteger(3), knows)
        val found = new TopicLogRows(clients, admin, Clock.system, s.settings.commitTopic, 10000)
          .read(decision.transactions.map(UncopiedRows(_, copied = 0)))
        assert(found.lost.isEmpty)
        assert(decision.transactions.map(found.of(_).size).sum == decision.count)
        found.close()
      }
    }
  }
}
