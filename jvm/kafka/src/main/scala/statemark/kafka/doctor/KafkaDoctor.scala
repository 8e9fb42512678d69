package statemark.kafka.doctor

import java.time.Duration
import org.apache.kafka.clients.admin.Admin
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal
import statemark.common.Clock
import statemark.kafka.clients.{KafkaClients, KafkaFailures, TopicChecks, TopicLookup}
import statemark.kafka.compaction.{NotedRules, RuleNote, TombstoneRisk, VersionRule}
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkSettings, SinkTransactionalId}
import statemark.kafka.driver.{DriverFailures, SinkContext}
import statemark.kafka.log.CommitTopic

/** `statemark doctor --kafka`: whether brokers, topics and rights are fit for the sink. Nothing is made, and no row written.
  *
  * ''Thread:'' one at a time.
  */
final class KafkaDoctor private (
    settings: SinkSettings,
    clients: KafkaClients,
    rule: Option[VersionRule]
) {
  import KafkaDoctor._

  /** What was found, in the order in which a query would meet it. */
  def checks(): Seq[Check] = {
    val made = Check.of(BrokerChecks.Brokers, settings) {
      val admin = clients.admin()
      try all(admin)
      finally admin.close(Duration.ZERO)
    }
    made
  }

  private def all(admin: Admin): Seq[Check] = {
    val cluster = new BrokerChecks(admin, settings)
    val brokers = Check.of(BrokerChecks.Brokers, settings)(Seq(cluster.brokers))
    lazy val log = Check.of(BrokerChecks.Log, settings)(cluster.transactionLog)
    cluster.clients +: brokers :++ {
      // Each of them would wait for an answer as long.
      if (!Check.areOk(brokers)) Nil
      else
        Check.of(BrokerChecks.Timeout, settings)(cluster.timeout) ++
          Check.of(BrokerChecks.IdleIds, settings)(cluster.idleIds) ++ log ++
          Check.of(Commits, settings)(commitTopic(admin)) ++
          (settings.topic.toSeq ++ settings.refusedRowsTopic).flatMap(topic =>
            Check.of(Output, settings)(output(admin, topic))
          ) ++ settings.topic.toSeq.flatMap(topic =>
            Check.of(Rule, settings)(repairs(admin, topic))
          ) ++
          // The first id has the brokers make their log, as it is set up now.
          (if (Check.areOk(log) || cluster.hasTransactionLog)
             Check.of(Access, settings)(transactions(admin))
           else Nil)
    }
  }

  private def commitTopic(admin: Admin): Seq[Check] = {
    val name = settings.commitTopic
    TopicLookup.patiently(admin, name) match {
      case None =>
        val copies = CommitTopic.couldBeMade(admin, settings)
        val made =
          s"$name is not there: the first batch makes it, with ${CommitTopic.Partitions} " +
            s"partitions${copies.fold("")(n => s" and replication $n")}"
        Seq(
          if (copies.contains(1)) Check.warning(
            Commits,
            s"$made: a broker that is lost takes what was decided with it",
            "Set option 'commitTopicReplicationFactor' to 3, or make the topic: " +
              s"${CommitTopic.Partitions} partitions, cleanup.policy=compact, 3 replicas"
          )
          else Check.ok(Commits, made)
        )
      case Some(topic) =>
        CommitTopic.requirePartitions(topic)
        val notes = TopicChecks.commitTopic(admin, settings)
        val config = TopicChecks.configOf(admin, name).getOrElse(Map.empty)
        val wrong = notes.map(Check.warning(Commits, _, Unchecked)) ++
          Replication.checks(Commits, topic, config)
        if (wrong.nonEmpty) wrong
        else Seq(Check.ok(Commits, Replication.text(topic, config, Seq("cleanup.policy"))))
    }
  }

  private def output(admin: Admin, name: String): Seq[Check] =
    TopicLookup.patiently(admin, name) match {
      case None if !TopicChecks.brokersMakeTopics(admin).contains(false) =>
        Seq(Check.warning(
          Output,
          s"$name is not there: the brokers make it with their defaults when the first row comes",
          "Make it with the partitions and replicas that it is to have"
        ))
      case None =>
        Seq(Check.problem(
          Output,
          s"$name is not there, and the brokers make no topics by themselves",
          "Make it"
        ))
      case Some(topic) =>
        val notes = TopicChecks.output(admin, settings, name).notes
        val config = TopicChecks.configOf(admin, name).getOrElse(Map.empty)
        val wrong = notes.map(Check.warning(Output, _, Unchecked)) ++
          Replication.checks(Output, topic, config)
        if (wrong.nonEmpty) wrong
        else Seq(Check.ok(Output, Replication.text(topic, config, Shown)))
    }

  /** By which rule `topic compact` repairs the topic. */
  private def repairs(admin: Admin, topic: String): Seq[Check] =
    NotedRules.of(settings, clients, Clock.system, topic).read().map(_.get(topic)) match {
      case Left(why) => rule.toSeq.map(_ =>
          Check.warning(
            Rule,
            s"By which rule $topic is repaired is not known: $why",
            "Name the commit topic that its repairs name, and let the user read it"
          )
        )
      case Right(None) => rule.toSeq.map(_ => Check.ok(Rule, s"$topic: none is noted"))
      case Right(Some(noted)) if rule.exists(_ != VersionRule.of(noted)) =>
        Seq(Check.problem(
          Rule,
          s"$topic is not repaired by ${rule.fold("")(_.name)}: ${RuleNote.text(noted)}",
          "Read it by the rule that is noted, or change that: topic compact --change-rule"
        ))
      case Right(Some(noted)) =>
        val config = TopicChecks.configOf(admin, topic).getOrElse(Map.empty)
        val risk = TombstoneRisk.of(config, None, noted.repairedMs.map(Clock.system.epochMs() - _))
        Seq(risk.fold(Check.ok(Rule, s"$topic: ${RuleNote.text(noted)}"))(of =>
          Check.warning(Rule, s"$topic: ${of.text}", of.remedy)
        ))
    }

  /** Initializes an id that no sink has, and asks for its state. */
  private def transactions(admin: Admin): Seq[Check] = {
    val id = SinkTransactionalId.driver(settings.prefix, Nobody).text
    val producer = clients.producer(id)
    try {
      try
        producer.initTransactions()
      catch {
        case NonFatal(e) =>
          throw DriverFailures.ofInitialization(e, SinkContext(Nobody, settings, "", ""))
      }
      val described = admin.describeTransactions(List(id).asJava).description(id)
      try {
        described.get(): Unit
        Seq(Check.ok(
          Access,
          s"a transactional id '${settings.prefix}.…' is initialized"
        ))
      } catch {
        case NonFatal(e) if KafkaFailures.isDenied(e) =>
          throw new SinkException.UnfitCluster(
            "Open transactions of an earlier run cannot be found",
            KafkaFailures.unwrapped(e).getMessage,
            s"Grant DESCRIBE on transactional ids that begin with '${settings.prefix}.'",
            Map.empty,
            Some(e)
          )
      }
    } finally producer.close(Duration.ZERO)
  }
}

object KafkaDoctor {

  /** @param settings of the sink that is to write: `topic` is looked at where it is named
    * @param rule by which the topic is to be repaired; None where any will do
    */
  def open(settings: SinkSettings, rule: Option[VersionRule] = None): KafkaDoctor =
    new KafkaDoctor(settings, KafkaClients.of(settings), rule)

  private val Commits = "commit topic"
  private val Output = "output topic"
  private val Rule = "repair rule"
  private val Access = "access"
  private val Unchecked = "See \"Access\" and \"What it does not do\" in the documents of the sink"
  private val Shown =
    Seq("cleanup.policy", "retention.ms", "min.compaction.lag.ms", "max.message.bytes")

  /** Brokers remember an id for days, so it is always the same one. */
  private val Nobody = SinkIdentity("doctor", "check")
}
