package statemark.kafka.compaction

import org.apache.kafka.clients.admin.Admin
import statemark.kafka.clients.{TopicChecks, TopicLookup}
import statemark.kafka.conf.SinkException

/** What a topic's settings mean to a repair.
  * @param partitions of the topic
  * @param takesTimesOfItsOwn whether the brokers replace timestamps (`message.timestamp.type=LogAppendTime`)
  * @param mostBytes of a batch of records
  * @param mostLagMs `max.compaction.lag.ms`; None for no limit
  * @param oldest the age at which the topic refuses a record, or deletes it again; None for none
  */
private[compaction] final case class TopicRules(
    partitions: Int,
    takesTimesOfItsOwn: Boolean,
    mostBytes: Long,
    mostLagMs: Option[Long],
    oldest: Option[TopicRules.Oldest]
)

private[compaction] object TopicRules {

  /** @param setting which says so */
  final case class Oldest(setting: String, ms: Long)

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
    if (repairs && !policies.contains("compact")) throw refused(
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
    val deletes = Option.when(policies.contains("delete"))("retention.ms")
    val limits = (deletes.toSeq ++ TooOld).flatMap { name =>
      number(name).filter(ms => ms >= 0 && ms < Long.MaxValue).map(Oldest(name, _))
    }
    TopicRules(
      description.partitions.size,
      isLate,
      number("max.message.bytes").getOrElse(1L << 20),
      number("max.compaction.lag.ms").filter(_ < Long.MaxValue),
      limits.minByOption(_.ms)
    )
  }

  private[compaction] def refused(topic: String, reason: String, remedy: String) =
    new SinkException.RefusedSetting(
      s"Topic $topic cannot be repaired",
      reason,
      remedy,
      Map("topic" -> topic)
    )

  // The second is the first's name before Kafka 3.6, for both directions.
  private val TooOld = Seq("message.timestamp.before.max.ms", "message.timestamp.difference.max.ms")
}
