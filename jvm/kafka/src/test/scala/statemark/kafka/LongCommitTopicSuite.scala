package statemark.kafka

import java.io.File
import org.apache.kafka.clients.producer.KafkaProducer
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.serialization.ByteArraySerializer
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.immutable.ArraySeq
import scala.jdk.CollectionConverters._
import scala.util.Using
import statemark.common.Clock
import statemark.kafka.clients.KafkaClients
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkSettings, SinkTransactionalId}
import statemark.kafka.decision.{
  BatchOrigin,
  DecidedBatch,
  DecidedRows,
  DecidedTransaction,
  Decision,
  LastDecision,
  PlanKind
}
import statemark.kafka.driver.{BatchCoordinator, CheckpointMarker, SinkContext, WrittenTopics}
import statemark.kafka.executor.CommitOrders
import statemark.kafka.log.{CommitTopic, IdentityRecord, RecordCodec, TopicCommitLog}
import statemark.kafka.rows.{OffsetRuns, TransactionName}
import statemark.kafka.sim.Simulated
import statemark.kafka.tools.{NextStart, SinkTools}

/** Goal: whoever reads the commit topic holds what it asks for, however many sinks the topic knows. Method: 4000 sinks,
  * each with a decision that remembers 100 batches, 14 MB, and a JVM whose heap is a little more than that.
  */
class LongCommitTopicSuite extends AnyFunSuite with Simulated {
  import LongCommitTopicSuite._

  override def prefix = "long"

  private lazy val settings: SinkSettings = {
    val name = topic("many")
    val commits =
      brokers.topic(s"$name-commits", CommitTopic.Partitions, Map("cleanup.policy" -> "compact"))
    val of = settingsOf(brokers.bootstrap, name, commits)
    fill(of)
    of
  }

  private def fill(settings: SinkSettings): Unit = {
    val bytes = new ByteArraySerializer
    val options = Map[String, Object]("bootstrap.servers" -> brokers.bootstrap, "linger.ms" -> "20")
    Using.resource(new KafkaProducer(options.asJava, bytes, bytes)) { producer =>
      for (number <- 0 until Sinks) {
        val identity = SinkIdentity(s"foreign-$number", settings.sink)
        val place = CommitTopic.partitionOf(settings, identity)
        val driver = SinkTransactionalId.driver(settings.prefix, identity).text
        val who =
          IdentityRecord(
            identity,
            identity.appId,
            driver,
            settings.prefix,
            1,
            Name,
            settings.topic.toVector
          )
        (RecordCodec.parts(identity, decision(number)) :+ who).foreach { record =>
          producer.send(CommitTopic.record(place, record))
        }
      }
    }
  }

  /** Also of a decision with rows for several records. */
  private def decision(number: Int): Decision = {
    val places = if (number == Large) LargePartitions else 1
    val rows = (0 until places).map { partition =>
      DecidedRows(
        new TopicPartition(s"written-${number % Topics}", partition),
        OffsetRuns(ArraySeq(1000L * number), ArraySeq(1000L * number + 1)),
        number.toLong
      )
    }
    val decided = (0 until Decision.Remembered).toVector.reverse.map { batch =>
      val digest = ArraySeq.fill(16)((number + batch).toByte)
      DecidedBatch(
        batch.toLong,
        BatchOrigin.Planned(batch.toLong, Some(PlanKind.OfInput), digest, namesContent = true)
      )
    }
    val transaction = DecidedTransaction(TransactionName("an-id", 1), Vector(0), rows.toVector)
    Decision(
      100,
      0,
      s"foreign-$number",
      1,
      None,
      BatchOrigin.Unplanned,
      Vector.empty,
      decided,
      isCommitted = true,
      Vector(transaction),
      None
    )
  }

  test("a new query, warnings and tools among 4000 sinks, in a heap of 24 MB") {
    val child = new ProcessBuilder(
      new File(System.getProperty("java.home"), "bin/java").getPath,
      "-Xmx24m",
      "-XX:+UseSerialGC",
      "-XX:+ExitOnOutOfMemoryError",
      "-cp",
      System.getProperty("java.class.path"),
      "statemark.kafka.LongCommitTopicChild",
      brokers.bootstrap,
      settings.topic.get,
      settings.commitTopic
    ).inheritIO().start()
    assert(child.waitFor() == 0)
    // The new query is there, and one was forgotten; nobody has removed another.
    assert(Using.resource(SinkTools.open(settings))(_.status(None)).sinks.size == Sinks)
  }

  test("of sinks that are not asked for, nothing is handed out") {
    val log = new TopicCommitLog(KafkaClients.of(settings), brokers.admin, settings, Clock.system)
    val asked = Set("foreign-3", s"foreign-$Large")
    val found = log.readAll(identity => asked(identity.appId))((identity, state) =>
      identity.appId -> state.last
    ).toMap
    assert(found.keySet == asked)
    assert(found.values.forall {
      case LastDecision.Decided(d) => d.history.size == 100; case _ => false
    })
  }
}

private object LongCommitTopicSuite {
  val Sinks = 4000
  val Topics = 10
  val Name = "many"

  /** The sink whose decision takes several records. */
  val Large = 8
  val LargePartitions = 30000

  def settingsOf(bootstrap: String, topic: String, commitTopic: String): SinkSettings =
    SinkSettings.of(Map(
      "kafka.bootstrap.servers" -> bootstrap,
      "kafka.transaction.timeout.ms" -> "60000",
      "topic" -> topic,
      "commitTopic" -> commitTopic
    ))
}

/** What reads the commit topic: the first batch of a query, the warning of a source, and the commands. */
private object LongCommitTopicChild {
  import LongCommitTopicSuite._

  def main(args: Array[String]): Unit = {
    val settings = settingsOf(args(0), args(1), args(2))
    val notes = newcomer(settings)
    require(notes.count(
      _.contains(s"of the name '$Name' has written to ${args(1)}, last batch 100")
    ) == 20)
    require(notes.last.startsWith(s"More queries of the name '$Name'"), notes.toString)

    val asked = Set("written-7", s"written-$Large", "absent")
    require(WrittenTopics.of(settings)(asked) == asked - "absent")

    Using.resource(SinkTools.open(settings)) { tools =>
      val (sink, _) = tools.one("foreign-7")
      require(sink.next == NextStart.GoesOn(100))
      require(tools.finish(sink).run == 2)
      tools.forget(sink, isGivenUp = false, isWhole = true): Unit
      val gone =
        try Left(tools.one("foreign-7"))
        catch { case e: SinkException.RefusedSetting => Right(e) }
      require(gone.exists(_.reason.endsWith(s"and ${Sinks - 20} more")), gone.toString)
    }
  }

  private def newcomer(settings: SinkSettings): Vector[String] = {
    val context =
      SinkContext(SinkIdentity("newcomer", settings.sink), settings, "newcomer", Name)
    val coordinator =
      BatchCoordinator.open(context, CommitOrders.none, CheckpointMarker.none, None)
    try coordinator.recover().notes
    finally coordinator.close()
  }
}
