package statemark.kafka.sink.commands

import java.nio.file.Files
import org.apache.kafka.common.TopicPartition
import org.json4s.jackson.JsonMethods.{compact, render}
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.InvalidInputException
import statemark.kafka.compaction.{
  CompactionSettings,
  RepairReport,
  TombstoneRisk,
  TopicReport,
  VersionRule
}
import statemark.kafka.conf.{SinkException, SinkIdentity}
import statemark.kafka.decision.SourceEnds
import statemark.kafka.doctor.{Check, CheckState}
import statemark.kafka.log.IdentityRecord
import statemark.kafka.rows.TransactionName
import statemark.kafka.tools.{
  DecisionStatus,
  HeldPartition,
  NextStart,
  OpenTransaction,
  SinkStatus,
  StatusReport,
  UnfinishedTransaction
}

/** What the commands on topics print, and what they make of their arguments. */
class TopicTextSuite extends AnyFunSuite {
  private val identity = SinkIdentity("q", "orders")
  private val second = 1000L
  private val id = "statemark.q.orders.e1"

  private val sink = {
    val unfinished = Vector(UnfinishedTransaction(TransactionName(id, 3), 500, false))
    SinkStatus(
      identity,
      Some(IdentityRecord(
        identity,
        "q",
        "statemark.q.orders.driver",
        "statemark",
        3,
        "counts",
        Vector("orders")
      )),
      Some(61 * second),
      Some(DecisionStatus(
        17,
        Some(3600 * second),
        1200,
        3,
        Set("orders"),
        Vector(SourceEnds("0", "lag", Vector("in" -> Vector(0 -> 120L, 1 -> 98L)))),
        unfinished
      )),
      NextStart.Completes(17, 3, unfinished)
    )
  }
  private val ours = OpenTransaction(
    4001,
    Some(id),
    Some(identity),
    Some(3599 * second),
    Some(900 * second),
    isEnding = false,
    Vector(HeldPartition(new TopicPartition("orders", 0), 120, 120, 640))
  )
  private val stranger = OpenTransaction(
    5001,
    None,
    None,
    None,
    None,
    isEnding = false,
    Vector(HeldPartition(new TopicPartition("orders", 1), 77, 77, 90))
  )

  test("a status in lines") {
    val report = StatusReport("commits", Vector(sink), Vector(ours, stranger), Vector("a note"))
    assert(
      TopicText.lines(report) == Seq(
        "q/orders",
        "  query       'counts'",
        "  run         3, begun 1970-01-01T00:01:01Z",
        "  topics      orders",
        "  last        batch 17, decided 1970-01-01T01:00:00Z: 1200 rows in 3 transactions, not " +
          "complete, 1 of them not with the readers",
        "  input       in-0 120, in-1 98; committed to group lag",
        "  next start  batch 17 is decided, not complete: of 3 transactions 2 are with the readers, " +
          "1 is to be copied (500 rows)",
        "  open",
        s"    $id (producer 4001), since 1970-01-01T00:59:59Z, the brokers end it after 900 s",
        "      orders-0: from offset 120 on; readers see up to 120, the log ends at 640",
        "transactions of others that hold readers back",
        "  transactional id unknown (producer 5001)",
        "    orders-1: from offset 77 on; readers see up to 77, the log ends at 90",
        "  remedy: they end with their application, or after its transaction timeout; " +
          "kafka-transactions.sh abort ends one",
        "not looked at: a note",
        "commits: 1 sink, 1 not complete: a run that goes on completes it, or statemark topic " +
          "finish, 1 transaction of others"
      )
    )
  }

  test("input of many partitions in a line") {
    def line(partitions: Vector[(Int, Long)], group: String = "") = {
      val of =
        sink.decision.map(_.copy(input = Vector(SourceEnds("0", group, Vector("t" -> partitions)))))
      val lines = TopicText.ofSink(sink.copy(decision = of), Nil)
      lines.find(_.startsWith("  input ")).map(_.drop("  input       ".length))
    }
    val many = Vector.tabulate(10)(_ -> 5L)
    assert(line(many).contains((0 to 7).map(n => s"t-$n 5").mkString(", ") + " and 2 more"))
    val unnoted = "more than 10000 partitions, which are not noted"
    assert(line(Vector.empty).contains(unnoted))
    assert(line(Vector.empty, "g").contains(s"$unnoted; committed to group g"))
  }

  test("a decision that nothing can complete is not sent back to be completed") {
    val e = intercept[InvalidInputException](TopicForgetCommand.requireComplete(sink))
    assert(e.getMessage.contains("complete it first: statemark topic finish q/orders"), e)
    assert(e.getMessage.contains("Where `finish` says that rows are lost, nothing completes it"), e)
    assert(e.getMessage.contains("readers keep what they have of batch 17"), e)
    TopicForgetCommand.requireComplete(sink.copy(next = NextStart.GoesOn(17)))
  }

  test("a status of nothing") {
    assert(TopicText.lines(StatusReport("commits", Vector.empty, Vector.empty, Vector.empty)) ==
      Seq("commits: 0 sinks"))
  }

  test("a status for programs") {
    val report = StatusReport("commits", Vector(sink), Vector(ours, stranger), Vector.empty)
    val json = compact(render(TopicText.json(report)))
    for (
      part <- Seq(
        """"identity":"q/orders","appId":"q","sink":"orders","queryId":"q","queryName":"counts"""",
        """"run":3,"begunAt":"1970-01-01T00:01:01Z","topics":["orders"]""",
        """"lastDecision":{"batch":17,"decidedAt":"1970-01-01T01:00:00Z","rows":1200""",
        """"input":[{"source":"0","group":"lag","offsets":{"in":{"0":120,"1":98}}}]""",
        s""""unfinished":[{"transactionalId":"$id","rows":500,"committing":false}]""",
        """"nextStart":{"kind":"completes","text":"batch 17 is decided""",
        """"others":[{"producerId":5001,"ending":false,"partitions":[{"topic":"orders"""",
        """"since":120,"lastStableOffset":120,"end":640"""
      )
    ) assert(json.contains(part), json)
  }

  test("what a doctor found in lines") {
    val checks = Seq(
      Check("clients", CheckState.Ok, "fine", None),
      Check("output topic", CheckState.Problem, "t is not there", Some("Make it"))
    )
    assert(DoctorCommand.lines(checks) == Seq(
      "ok       clients       fine",
      "problem  output topic  t is not there",
      "  remedy: Make it",
      "2 checks: 1 problem, 0 warnings"
    ))
  }

  test("a dry run says that deletions may be gone, with the figures, for people and programs") {
    val risk = TombstoneRisk(3600 * second, 86400 * second, 0, Some(604800 * second))
    val found =
      TopicReport(9, 0, 5, 0, Vector.empty, 0, 0, 0, Map(0 -> 9L), isWhole = true, Some(risk))
    val settings = CompactionSettings("orders", VersionRule.Timestamp)
    assert(CompactionText.lines(settings, found).slice(1, 3) == Seq(
      "warning: deleted keys may come back: a tombstone stays for 90000000 ms (delete.retention.ms=86400000, " +
        "min.compaction.lag.ms=3600000), and the last repair was 604800000 ms ago",
      "  remedy: Set delete.retention.ms to 601200000 or more, or repair more often"
    ))
    val done = RepairReport(found, 0, 0, 0, Some(Map(0 -> 9L)), None)
    assert(CompactionText.lines(
      settings,
      done
    ).slice(1, 2).head.startsWith("warning: deleted keys"))
    assert(compact(render(CompactionText.json(done))).contains(
      """"tombstones":{"keptMs":90000000,"neededMs":604800000}"""
    ))
    assert(!CompactionText.lines(
      settings,
      found.copy(tombstones = None)
    ).exists(_.contains("warning")))
  }

  test("a file of client properties, and what it must not have") {
    def settings(text: String) = {
      val file = Files.createTempFile("client", ".properties")
      Files.writeString(file, text)
      KafkaCommand.settings("b:9092", Some(file.toString), Map("commitTopic" -> "c")).kafka
    }
    val own = settings("security.protocol=SASL_SSL\nbootstrap.servers=other:1\n")
    assert(own("security.protocol") == "SASL_SSL" && own("bootstrap.servers") == "b:9092")
    assert(own("default.api.timeout.ms") == "20000")
    val patient = settings("request.timeout.ms=60000\nmax.block.ms=1\n")
    assert(!patient.contains("default.api.timeout.ms") && patient("max.block.ms") == "1")
    val e = intercept[SinkException.RefusedSetting](settings("transactional.id=mine"))
    assert(e.problem == "Option 'kafka.transactional.id' is refused")
    val absent = intercept[InvalidInputException](KafkaCommand.settings(
      "b:9092",
      Some("/no/such/file"),
      Map.empty
    ))
    assert(absent.getMessage.startsWith("the file /no/such/file cannot be read\n  reason: "))
  }
}
