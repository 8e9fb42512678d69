package statemark.kafka.driver

import org.apache.kafka.clients.admin.{Admin, TopicDescription}
import scala.collection.mutable
import statemark.kafka.clients.{KafkaClients, TopicChecks, TopicFacts}
import statemark.kafka.conf.{SinkException, SinkSettings}
import statemark.kafka.log.CommitTopicSigns

/** The topics of one run, each looked at once, before rows of it are decided. ''Thread:'' the driver's. */
private[kafka] final class OutputTopics(
    clients: KafkaClients,
    admin: Admin,
    settings: SinkSettings
) {
  private val facts = mutable.Map.empty[String, TopicFacts]

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
      if (TopicChecks.describe(admin, topic).exists(isCommitTopic(_, found)))
        throw OutputTopics.ofDecisions(topic)
      facts(topic) = found
    }

  private def isCommitTopic(topic: TopicDescription, found: TopicFacts) =
    CommitTopicSigns.isCommitTopic(clients, topic, found.mayBeCompacted)

  /** Whether the cleaner may take rows of aborted transactions; also of a topic that nobody has looked at. */
  def mayBeCompacted(topic: String): Boolean = facts.get(topic).forall(_.mayBeCompacted)

  /** Whether the cleaner may take rows of aborted transactions of any topic that was looked at. */
  def anyMayBeCompacted: Boolean = facts.valuesIterator.exists(_.mayBeCompacted)
}

private object OutputTopics {
  private def ofDecisions(topic: String) = new SinkException.RefusedSetting(
    "A row cannot be sent",
    s"its topic $topic holds decisions of sinks, and a row there could pass for one",
    "Leave such rows out, or name another topic",
    Map("topic" -> topic)
  )
}
