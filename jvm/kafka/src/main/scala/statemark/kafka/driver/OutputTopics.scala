package statemark.kafka.driver

import org.apache.kafka.clients.admin.Admin
import scala.collection.mutable
import statemark.kafka.clients.{KafkaClients, TopicChecks, TopicFacts}
import statemark.kafka.conf.{SinkException, SinkSettings}
import statemark.kafka.log.CommitTopicSigns

/** The topics of one run, each looked at once, before rows of it are decided. Rows may name others in each batch: of those
  * that were looked at first, nothing is known any more. ''Thread:'' the driver's.
  * @param most how many topics are kept in mind
  */
private[kafka] final class OutputTopics(
    clients: KafkaClients,
    admin: Admin,
    settings: SinkSettings,
    most: Int = OutputTopics.Most
) {
  private val facts = mutable.LinkedHashMap.empty[String, TopicFacts]
  private var hasCompacted = false

  /** Looks at the commit topic, and at those that options name.
    * @return lines for the log
    * @throws SinkException where one is not fit
    */
  def checkNamed(): Vector[String] = TopicChecks.commitTopic(admin, settings) ++
    (settings.topic.toVector ++ settings.refusedRowsTopic).distinct.flatMap { topic =>
      check(topic)
      facts(topic).notes
    }

  /** @throws SinkException where the topic is not fit for output */
  def check(topic: String): Unit =
    if (!facts.contains(topic)) {
      val found = TopicChecks.output(admin, settings, topic)
      val mayBe = found.mayBeCompacted
      if (mayBe && CommitTopicSigns.isCommitTopic(clients, topic, found.partitions))
        throw OutputTopics.ofDecisions(topic)
      facts(topic) = found
      hasCompacted ||= mayBe
      if (facts.size > most) facts -= facts.head._1: Unit
    }

  /** How many topics are kept in mind. */
  private[kafka] def known: Int = facts.size

  /** Whether the cleaner may take rows of aborted transactions; also of a topic that nobody has looked at. */
  def mayBeCompacted(topic: String): Boolean = facts.get(topic).forall(_.mayBeCompacted)

  /** Whether the cleaner may take rows of aborted transactions of any topic that was looked at. */
  def anyMayBeCompacted: Boolean = hasCompacted
}

private object OutputTopics {
  val Most = 1000

  private def ofDecisions(topic: String) = new SinkException.RefusedSetting(
    "A row cannot be sent",
    s"its topic $topic holds decisions of sinks, and a row there could pass for one",
    "Leave such rows out, or name another topic",
    Map("topic" -> topic)
  )
}
