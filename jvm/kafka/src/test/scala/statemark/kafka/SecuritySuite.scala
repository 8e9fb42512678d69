package statemark.kafka

import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.acl.{AccessControlEntry, AclBinding, AclOperation, AclPermissionType}
import org.apache.kafka.common.acl.AclOperation._
import org.apache.kafka.common.resource.{PatternType, ResourcePattern, ResourceType}
import org.scalatest.BeforeAndAfterAll
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Using
import statemark.kafka.clients.{Clusters, KafkaClients}
import statemark.kafka.compaction.{
  CompactionProgress,
  CompactionSettings,
  TopicCompaction,
  VersionRule
}
import statemark.kafka.conf.{SinkException, SinkPhase, SinkSettings, SinkTransactionalId}
import statemark.kafka.doctor.{Check, CheckState, KafkaDoctor}
import statemark.kafka.driver.BatchPlan
import statemark.kafka.sim._
import statemark.kafka.tools.{NextStart, SinkTools}

/** A user who logs in by SASL over TLS, and may do what access control lists say. */
class SecuritySuite extends AnyFunSuite with Simulated with BeforeAndAfterAll {
  override def prefix = "security"
  // Below what clients send as a transaction timeout where nobody says otherwise.
  private val mostMs = "20000"
  override lazy val brokers: TestBrokers =
    new TestBrokers(settings = Map("transaction.max.timeout.ms" -> mostMs), secured = true)

  override def afterAll(): Unit = brokers.close()

  private type Grant = (ResourceType, String, PatternType, AclOperation)

  private def grants(name: String, id: String): Seq[Grant] = {
    def of(kind: ResourceType, on: String, pattern: PatternType)(operations: AclOperation*) =
      operations.map((kind, on, pattern, _))
    of(ResourceType.TOPIC, name, PatternType.LITERAL)(READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS) ++
      of(ResourceType.TOPIC, s"$name-commits", PatternType.LITERAL)(
        READ,
        WRITE,
        DESCRIBE,
        DESCRIBE_CONFIGS,
        CREATE
      ) ++ of(ResourceType.TRANSACTIONAL_ID, s"$id.", PatternType.PREFIXED)(WRITE, DESCRIBE)
  }

  /** Grants, and waits until the broker knows. */
  private def allow(granted: Seq[Grant]): Unit = {
    val bindings = granted.map { case (kind, name, pattern, operation) =>
      new AclBinding(
        new ResourcePattern(kind, name, pattern),
        new AccessControlEntry("User:writer", "*", operation, AclPermissionType.ALLOW)
      )
    }
    brokers.admin.createAcls(bindings.asJava).all().get()
    val any = org.apache.kafka.common.acl.AclBindingFilter.ANY
    while (!brokers.admin.describeAcls(any).values().get().containsAll(bindings.asJava))
      Thread.onSpinWait()
  }

  private def login(prefix: String): Map[String, String] =
    brokers.login().map { case (key, value) => s"kafka.$key" -> value } ++
      Map(
        "transactionalIdPrefix" -> prefix,
        "kafka.max.block.ms" -> "10000",
        "kafka.transaction.timeout.ms" -> mostMs
      )

  private def secret = TestBrokers.passwordOf("writer")

  test(
    "with what the documents say a user writes, dies and recovers, and nothing is left unchecked"
  ) {
    val name = topic("all")
    allow(grants(name, "all"))
    val deaths = new Deaths
    running(new Simulation(brokers, name, deaths, options = login("all"))) { s =>
      s.runBatch()
      assert(s.reports.head.notes == Vector(s"Commit topic $name-commits was made"))
      deaths.at(SinkPhase.DecisionDurable)
      s.runBatches(2)
      judged(s)
      assert(copied(s) > 0)
      assert(!s.settings.toString.contains(secret) && !s.reports.toString.contains(secret))
    }
  }

  /** Without one of the grants, and those that imply it. */
  private def without(what: String)(isMissing: Grant => Boolean)(check: Simulation => Unit)
      : Unit = {
    val name = topic(what)
    allow(grants(name, what).filterNot(isMissing))
    running(new Simulation(brokers, name, new Deaths, options = login(what)))(check)
  }

  private def denied(s: Simulation): SinkException.UnfitCluster = {
    val e = intercept[SinkException.UnfitCluster](s.attemptBatch(0))
    assert(!e.isRetryable && !e.getMessage.contains(secret))
    e
  }

  private def isOnTopic(g: Grant, isCommits: Boolean): Boolean =
    g._1 == ResourceType.TOPIC && g._2.endsWith("-commits") == isCommits

  for ((operation, isCommits) <- Seq(READ, WRITE).flatMap(o => Seq(o -> false, o -> true)))
    test(s"without $operation on the ${if (isCommits) "commit" else "output"} topic") {
      val what = s"no-$operation-$isCommits".toLowerCase
      without(what)(g => isOnTopic(g, isCommits) && g._4 == operation) { s =>
        val e = denied(s)
        assert(e.values.get("missing").contains(operation.name))
        assert(e.values.get("topic").contains(if (isCommits) s.settings.commitTopic else s.topic))
      }
    }

  for (isCommits <- Seq(false, true))
    test(s"without any right on the ${if (isCommits) "commit" else "output"} topic") {
      without(s"nothing-$isCommits")(isOnTopic(_, isCommits)) { s =>
        val e = denied(s)
        assert(e.values.get("missing").contains("DESCRIBE"))
      }
    }

  test("without CREATE on a commit topic that is absent") {
    without("no-create")(_._4 == CREATE) { s =>
      val e = denied(s)
      assert(e.values.get("commitTopic").contains(s.settings.commitTopic))
      assert(e.getMessage.contains("16 partitions"))
    }
  }

  test("without rights on transactional ids") {
    without("no-ids")(_._1 == ResourceType.TRANSACTIONAL_ID) { s =>
      val e = denied(s)
      assert(e.remedy.contains("'no-ids.'"))
    }
  }

  test("without WRITE on the executors' ids") {
    val name = topic("no-executors")
    allow(grants(name, "no-executors").filterNot(_._1 == ResourceType.TRANSACTIONAL_ID))
    running(new Simulation(brokers, name, new Deaths, options = login("no-executors"))) { s =>
      val driver = SinkTransactionalId.driver("no-executors", s.identity).text
      allow(Seq((ResourceType.TRANSACTIONAL_ID, driver, PatternType.LITERAL, WRITE)))
      assert(denied(s).getMessage.contains("transactional"))
    }
  }

  test("a consumer group takes READ on it, and on the topics of the sources") {
    val (name, group) = (topic("group"), "group-of-inputs")
    allow(grants(name, "group"))
    val options = login("group") + ("kafkaConsumerGroup" -> group)
    running(new Simulation(brokers, name, new Deaths, options = options)) { s =>
      val input = new InputOffsets(brokers, s)
      assert(denied(s).remedy.contains("Grant READ on the group"))
      allow(Seq((ResourceType.GROUP, group, PatternType.LITERAL, READ)))
      s.restart()
      assert(denied(s).reason.endsWith(s"may not DESCRIBE topic ${Simulation.Input}"))
      assert(input.committed.isEmpty)
      allow(Seq((ResourceType.TOPIC, Simulation.Input, PatternType.LITERAL, DESCRIBE)))
      s.restart()
      assert(denied(s).reason.endsWith(s"may not READ topic ${Simulation.Input}"))
      allow(Seq((ResourceType.TOPIC, Simulation.Input, PatternType.LITERAL, READ)))
      s.restart()
      s.runBatch()
      Conditions.awaitMarkers(brokers, s.identity)
      assert(input.offset.contains(0L))
    }
  }

  /** What `statemark doctor` finds with these rights, and the options that the sink would have. */
  private def doctor(what: String)(isMissing: Grant => Boolean): Seq[Check] = {
    val name = topic(s"doctor-$what")
    allow(grants(name, what).filterNot(isMissing))
    val options = login(what) ++ Map("topic" -> name, "commitTopic" -> s"$name-commits")
    val found = KafkaDoctor.open(SinkSettings.of(options)).checks()
    assert(!found.toString.contains(secret))
    found
  }

  private def problems(found: Seq[Check]): Seq[(String, String)] =
    found.filter(_.state == CheckState.Problem).map(c => c.name -> c.remedy.getOrElse(""))

  test("a status without rights on an output topic says so, and shows the rest") {
    val name = topic("blind")
    allow(grants(name, "blind").filter(isOnTopic(_, isCommits = true)))
    val timeout = Map("kafka.transaction.timeout.ms" -> mostMs)
    running(new Simulation(brokers, name, new Deaths, options = timeout)) { s =>
      s.runBatch()
      val settings = SinkSettings.of(login("blind") + ("commitTopic" -> s"$name-commits"))
      val report = Using.resource(SinkTools.open(settings))(_.status(None))
      assert(report.sinks.map(_.next) == Vector(NextStart.GoesOn(0)))
      assert(report.notes == Vector(s"topic $name: The user may not DESCRIBE topic $name"))
    }
  }

  test("a repair goes on without rights on the commit topic, and says so") {
    val name = brokers.topic(
      "security-repair",
      config = Map("cleanup.policy" -> "compact", "min.compaction.lag.ms" -> s"${Long.MaxValue}")
    )
    brokers.topic(s"$name-commits", partitions = 16, Map("cleanup.policy" -> "compact"))
    val sink = SinkSettings.of(login("repair") + ("commitTopic" -> s"$name-commits"))
    val settings = CompactionSettings(name, VersionRule.Timestamp, by = "alice")
    val lines = mutable.Buffer.empty[String]
    val listener = new CompactionProgress {
      override def scanned(records: Long, ahead: Long): Unit = ()
      override def repaired(appended: Long, left: Long): Unit = ()
      override def said(line: String): Unit = lines += line
      override def isStopped: Boolean = false
    }
    def toldAt(granted: Grant => Boolean, by: VersionRule = VersionRule.Timestamp): Seq[String] = {
      allow(grants(name, "repair").filter(g => isOnTopic(g, isCommits = false) || granted(g)))
      lines.clear()
      TopicCompaction.open(sink, settings.copy(rule = by), listener).repair(): Unit
      lines.toSeq
    }
    // Of a topic without records nothing is noted.
    allow(grants(name, "repair").filter(isOnTopic(_, isCommits = false)))
    Using.resource(KafkaClients.copier(sink, 1 << 20, 0)) { producer =>
      producer.send(new ProducerRecord(name, "k".getBytes, "v".getBytes)).get(): Unit
    }
    val Seq(blind) = toldAt(_ => false): @unchecked
    assert(blind.contains(s"the user may not read topic $name-commits"))
    val isRead = (g: Grant) => Set[AclOperation](READ, DESCRIBE).contains(g._4)
    val Seq(readOnly) = toldAt(g => isOnTopic(g, isCommits = true) && isRead(g)): @unchecked
    assert(readOnly.contains(s"is not noted in $name-commits: Not authorized"), readOnly)
    assert(toldAt(isOnTopic(_, isCommits = true)).isEmpty)
    val e = intercept[SinkException.RefusedSetting](toldAt(_ => false, VersionRule.Header("v")))
    assert(e.reason.contains("repaired by timestamp, as alice has set it"))
  }

  test("a timeout that brokers do not allow fails by name, also where their settings are hidden") {
    val name = topic("long")
    allow(grants(name, "long"))
    val options = login("long") + ("kafka.transaction.timeout.ms" -> s"${mostMs}0")
    running(new Simulation(brokers, name, new Deaths, options = options)) { s =>
      assert(denied(s).getMessage.contains("above the brokers' transaction.max.timeout.ms"))
    }
  }

  test("the doctor finds nothing missing with what the documents say") {
    val found = doctor("healthy")(_ => false)
    assert(problems(found).isEmpty)
    // Of the cluster and of the brokers' own topic a user may see nothing.
    assert(found.filter(_.text.contains("not checked")).map(_.name) ==
      Seq("transaction timeout", "transaction log"))
  }

  test("the doctor finds what is missing") {
    val ids = problems(doctor("ids")(_._1 == ResourceType.TRANSACTIONAL_ID))
    assert(ids == Seq("access" -> ("Grant WRITE and DESCRIBE on transactional ids that begin " +
      "with 'ids.'")))
    val read = problems(doctor("read")(g => isOnTopic(g, isCommits = false) && g._4 == READ))
    assert(read.map(_._1) == Seq("output topic") && read.head._2.contains("READ"))
    val create = problems(doctor("create")(_._4 == CREATE))
    assert(create.map(_._1) == Seq("commit topic") && create.head._2.contains("16 partitions"))
  }

  test("without DESCRIBE_CONFIGS the checks are left out, with a line each") {
    without("no-configs")(_._4 == DESCRIBE_CONFIGS) { s =>
      s.runBatch()
      judged(s)
      assert(s.reports.head.notes.count(_.contains("DESCRIBE_CONFIGS")) == 2)
    }
  }

  test("without DESCRIBE_CONFIGS a driver that died behind its decision is recovered from") {
    val name = topic("no-configs-death")
    allow(grants(name, "no-configs-death").filterNot(_._4 == DESCRIBE_CONFIGS))
    val deaths = new Deaths
    val options = login("no-configs-death")
    running(new Simulation(brokers, name, deaths, options = options)) { s =>
      s.runBatch()
      // Once with executors that wait for an order, and once with one that was carried out in part.
      for (phase <- Seq(SinkPhase.DecisionDurable, SinkPhase.OrdersAnswered)) {
        deaths.at(phase)
        intercept[Died](s.attemptBatch(s.checkpoint.next))
        s.killDriver(withExecutors = true)
        s.runBatch()
      }
      judged(s)
      assert(copied(s) > 0 && s.reports.map(_.completion.flatMap(_.reopened)).forall(_.isEmpty))
    }
  }

  test(
    "refusedRowsTopic: rows for topics to which the user may not write, or which may be there or not"
  ) {
    val name = topic("some")
    val (other, closed) = (topic("some-refused"), topic("some-closed"))
    def on(topic: String, operations: AclOperation*) =
      operations.map((ResourceType.TOPIC, topic, PatternType.LITERAL, _))
    allow(grants(name, "some") ++ on(other, READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS) ++
      on(closed, DESCRIBE))
    val options = login("some") + ("refusedRowsTopic" -> other)
    running(new Simulation(brokers, name, new Deaths, options = options)) { s =>
      val BatchPlan.Write(spec) = s.coordinator.begin(s.start(0)): @unchecked
      val executor = new SimExecutor("9", s.settings, new Deaths)
      s.executors = Vector(executor)
      val writer = executor.sinks.writer(spec, executor.id, 0, 0)
      val bytes = "v".getBytes("UTF-8")
      for (topic <- Seq(name, closed, "some-other-name"))
        writer.write(new ProducerRecord[Array[Byte], Array[Byte]](topic, bytes))
      val figures = s.coordinator.commit(0, Seq(writer.commit()))
      assert(figures.rows == 3 && figures.refusedRows == 2)
      executor.kill()
    }
  }

  test("with a wrong password") {
    val name = topic("stranger")
    val wrong = brokers.login()("sasl.jaas.config").replace(secret, "guessed-password")
    val options = login("stranger") + ("kafka.sasl.jaas.config" -> wrong)
    running(new Simulation(brokers, name, new Deaths, options = options)) { s =>
      val e = intercept[SinkException](s.attemptBatch(0))
      val asked = intercept[SinkException](Clusters.idOf(s.settings.kafka))
      for (failure <- Seq(e, asked))
        assert(!failure.getMessage.contains("guessed-password") && !failure.isRetryable)
    }
  }
}
