package statemark.kafka

import org.apache.kafka.clients.admin.TopicDescription
import org.apache.kafka.common.{Node, TopicPartitionInfo}
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import statemark.kafka.conf.SinkSettings
import statemark.kafka.doctor.{Check, CheckState, KafkaDoctor, Replication}
import statemark.kafka.sim.{ProcessClients, Simulated}

/** What `statemark doctor --kafka` finds. What it says of rights is in [[SecuritySuite]]. */
class KafkaDoctorSuite extends AnyFunSuite with Simulated {
  override def prefix = "doctor"

  /** Brokers make their transaction log for the first transactional id. */
  private lazy val hasLog: Unit = {
    val clients = new ProcessClients(SinkSettings.of(Map(
      "kafka.bootstrap.servers" -> brokers.bootstrap,
      "topic" -> "doctor-any"
    )))
    clients.producer("doctor-first").initTransactions()
    clients.kill()
  }

  private lazy val commits: String =
    brokers.topic("doctor-commits", partitions = 16, Map("cleanup.policy" -> "compact"))

  private def checks(options: (String, String)*): Map[String, Seq[Check]] = {
    hasLog
    KafkaDoctor.open(
      SinkSettings.of(
        Map(
          "kafka.bootstrap.servers" -> brokers.bootstrap,
          "commitTopic" -> commits
        ) ++ options
      )
    ).checks().groupBy(_.name)
  }

  test("brokers that would make their transaction log with one copy are not made to") {
    val fresh = new TestBrokers(settings = Map("transactional.id.expiration.ms" -> "60000"))
    try {
      val found = KafkaDoctor.open(SinkSettings.of(Map(
        "kafka.bootstrap.servers" -> fresh.bootstrap,
        "topic" -> fresh.topic("doctor-fresh")
      ))).checks().groupBy(_.name)
      assert(found("transaction log").map(_.state) == Seq(CheckState.Warning))
      assert(!found.contains("access"))
      val idle = only(found, "idle ids")
      assert(idle.state == CheckState.Warning && idle.text.contains("expiration.ms=60000"), idle)
      val internal = new org.apache.kafka.clients.admin.ListTopicsOptions().listInternal(true)
      assert(!fresh.admin.listTopics(internal).names().get().contains("__transaction_state"))
    } finally fresh.close()
  }

  private def only(found: Map[String, Seq[Check]], name: String): Check = {
    val Seq(check) = found(name): @unchecked
    check
  }

  test("brokers that are fit, of which there is one") {
    val found = checks("topic" -> topic("fit"), "commitTopic" -> "doctor-none")
    assert(only(found, "clients").text.startsWith("Kafka's client library is "))
    assert(only(found, "brokers").text.startsWith("1 broker of Kafka 4.1: "), found("brokers"))
    assert(only(found, "transaction timeout").state == CheckState.Ok)
    assert(only(found, "idle ids").text == "transactional.id.expiration.ms=604800000")
    assert(only(found, "access").text == "a transactional id 'statemark.…' is initialized")
    for (name <- Seq("transaction log", "output topic")) {
      assert(only(found, name).state == CheckState.Warning)
      assert(only(found, name).text.contains("has one copy of each row"))
    }
    val commits = only(found, "commit topic")
    assert(commits.state == CheckState.Warning && commits.text.contains("and replication 1"))
    assert(!brokers.admin.listTopics().names().get().contains("doctor-none"), "it was made")
  }

  test("each thing that is not fit is named, with its remedy") {
    brokers.topic("doctor-deletes", partitions = 16, Map("cleanup.policy" -> "delete"))
    brokers.topic("doctor-few", partitions = 3, Map("cleanup.policy" -> "compact"))
    val compacted = topic("compacted", Map("cleanup.policy" -> "compact"))
    def problem(name: String, options: (String, String)*): String = {
      val check = only(checks(options: _*), name)
      assert(check.state == CheckState.Problem && check.remedy.exists(_.nonEmpty), check)
      check.text
    }
    assert(problem("commit topic", "commitTopic" -> "doctor-deletes").contains("lose decisions"))
    assert(problem("commit topic", "commitTopic" -> "doctor-few").contains("too few partitions"))
    assert(problem("output topic", "topic" -> compacted).contains("compacted too soon"))
    assert(problem("output topic", "topic" -> "doctor-absent").contains("is not there"))
    val long = Seq("kafka.transaction.timeout.ms" -> "90000000")
    assert(problem("transaction timeout", long: _*).contains("no transaction begins"))
    assert(problem("access", long: _*).contains("transaction.max.timeout.ms"))
  }

  test("where no broker answers, nothing else is asked") {
    val found = checks(
      "kafka.bootstrap.servers" -> "127.0.0.1:1",
      "kafka.default.api.timeout.ms" -> "1500",
      "kafka.request.timeout.ms" -> "1000"
    )
    assert(found.keySet == Set("clients", "brokers"))
    assert(only(found, "brokers").text.contains("gave no answer"))
  }

  /** A topic of one partition on so many nodes, of which some are in sync. */
  private def replicated(copies: Int, inSync: Int, config: (String, String)*): Seq[Check] = {
    val nodes = (1 to copies).map(new Node(_, "h", 9092))
    val leader = nodes.headOption.filter(_ => inSync > 0).getOrElse(Node.noNode)
    val partition = new TopicPartitionInfo(0, leader, nodes.asJava, nodes.take(inSync).asJava)
    Replication.checks(
      "output topic",
      new TopicDescription("t", false, List(partition).asJava),
      config.toMap
    )
  }

  test("replication") {
    def min(n: Int) = "min.insync.replicas" -> n.toString
    def said(found: Seq[Check], state: CheckState, text: String) = {
      assert(found.map(_.state) == Seq(state), found)
      assert(found.head.text.contains(text), found)
    }
    assert(replicated(3, 3, min(2)).isEmpty && replicated(3, 2, min(2)).isEmpty)
    said(replicated(3, 3, min(1)), CheckState.Warning, "min.insync.replicas=1")
    said(replicated(2, 2, min(2)), CheckState.Warning, "while a broker is down")
    said(replicated(3, 1, min(2)), CheckState.Problem, "takes no rows in partitions 0")
    said(replicated(3, 0, min(2)), CheckState.Problem, "no leader of partitions 0")
    said(
      replicated(3, 3, min(2), "unclean.leader.election.enable" -> "true"),
      CheckState.Warning,
      "unclean"
    )
    assert(replicated(3, 3).isEmpty, "settings that may not be seen")
  }
}
