package statemark.kafka.compaction

import org.apache.kafka.clients.admin.Admin
import org.apache.kafka.common.Uuid
import scala.util.control.NonFatal
import statemark.kafka.clients.{KafkaFailures, TopicChecks, TopicLookup}
import statemark.kafka.conf.SinkException

/** What a topic's settings mean to a repair.
  * @param id of the topic; another one of the same name has another
  * @param partitions of the topic
  * @param takesTimesOfItsOwn whether the brokers replace timestamps (`message.timestamp.type=LogAppendTime`)
  * @param mostBytes of a batch of records
  * @param mostLagMs `max.compaction.lag.ms`; None for no limit
  * @param mostTransactionMs how long a record may lie in an open transaction
  * @param oldest the age at which the topic refuses a record, or deletes it again; None for none
  * @param config of the topic, as it is; empty where it may not be read
  * @param newest by how much a timestamp may be ahead of the brokers' clocks; None for no limit
  */
private[compaction] final case class TopicRules(
    id: Uuid,
    partitions: Int,
    takesTimesOfItsOwn: Boolean,
    mostBytes: Long,
    mostLagMs: Option[Long],
    mostTransactionMs: Long,
    config: Map[String, String],
    oldest: Option[TopicRules.Limit],
    newest: Option[TopicRules.Limit]
)

private[compaction] object TopicRules {

  /** @param setting which says so */
  final case class Limit(setting: String, ms: Long)

  /** Looks at a topic.
    * @throws SinkException where it cannot be read, or nothing that a repair writes could do it good
    */
  def of(admin: Admin, topic: String, rule: VersionRule, repairs: Boolean): TopicRules = {
    val description = TopicLookup.patiently(admin, topic).getOrElse(
      throw refused(topic, "it is not there", "Correct the name, or the addresses of the brokers")
    )
    if (description.isInternal && repairs)
      throw refused(topic, "Kafka keeps it for itself", "Name a topic of yours")
    val config = TopicChecks.configOf(admin, topic).getOrElse(Map.empty[String, String])
    val policies = config.get("cleanup.policy").fold(Seq("compact"))(_.split(',').map(_.trim).toSeq)
    if (!policies.contains("compact")) throw refused(
      topic,
      s"its cleanup.policy is '${policies.mkString(",")}': no record of a key takes the place of another",
      "Set cleanup.policy=compact on it, or read it with statemark.latest"
    )
    val isLate = config.get("message.timestamp.type").contains("LogAppendTime")
    if (isLate && rule == VersionRule.Timestamp) throw refused(
      topic,
      "its message.timestamp.type is LogAppendTime: the record that came last has the highest timestamp, a copy too",
      "Use a header as the version, or set message.timestamp.type=CreateTime before the records are written"
    )
    def number(name: String) = config.get(name).flatMap(_.toLongOption)
    def limit(names: String*) = names.flatMap { name =>
      number(name).filter(ms => ms >= 0 && ms < Long.MaxValue).map(Limit(name, _))
    }.minByOption(_.ms)
    val deletes = policies.contains("delete")
    if (repairs && deletes) limit(Size).foreach(most =>
      throw refused(
        topic,
        s"its $Size is ${most.ms}, and what is appended pushes out records that nobody has copied yet",
        s"Set $Size=-1 for the time of the repair"
      )
    )
    TopicRules(
      description.topicId,
      description.partitions.size,
      isLate,
      number("max.message.bytes").getOrElse(1L << 20),
      number("max.compaction.lag.ms").filter(_ < Long.MaxValue),
      mostTransactionMs(admin),
      config,
      // A topic that sets timestamps itself takes copies of any age.
      if (isLate) None
      else limit((if (deletes) Seq("retention.ms") else Nil) ++ Seq(TooOld, TooFar): _*),
      if (isLate) None else limit(TooNew, TooFar)
    )
  }

  private def mostTransactionMs(admin: Admin): Long =
    try
      TopicChecks.brokerConfig(admin).get(Transaction).flatMap(_.toLongOption)
        .getOrElse(TransactionMs)
    catch {
      case NonFatal(e) if KafkaFailures.isDenied(KafkaFailures.unwrapped(e)) => TransactionMs
    }

  private[compaction] def refused(topic: String, reason: String, remedy: String) =
    new SinkException.RefusedSetting(
      s"Topic $topic cannot be repaired",
      reason,
      remedy,
      Map("topic" -> topic)
    )

  /** A topic of which no record has a version. */
  private[compaction] def withoutVersions(
      topic: String,
      records: Long,
      rule: VersionRule
  ): SinkException = refused(
    topic,
    s"none of its $records records has a version (${rule.name})",
    "Is the header's key right? Without versions the last record wins, as in Kafka itself"
  )

  /** A commit topic of the exactly-once sink. */
  private[compaction] def ofDecisions(topic: String): SinkException = refused(
    topic,
    "the exactly-once sink keeps its decisions there, and copies of old ones would count",
    "Name a topic with records of yours"
  )

  private val Size = "retention.bytes"
  private[compaction] val TooOld = "message.timestamp.before.max.ms"
  private[compaction] val TooNew = "message.timestamp.after.max.ms"
  // The name before Kafka 3.6, for both directions.
  private val TooFar = "message.timestamp.difference.max.ms"
  private val Transaction = "transaction.max.timeout.ms"
  // The brokers' default, where the user may not read their settings.
  private val TransactionMs = 15L * 60 * 1000
}
