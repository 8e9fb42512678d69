package statemark.kafka.driver

import org.apache.kafka.clients.admin.Admin
import scala.collection.mutable
import statemark.kafka.clients.{TopicChecks, TopicFacts}
import statemark.kafka.conf.SinkSettings

/** The topics of one run, each looked at once, before rows of it are decided. ''Thread:'' the driver's. */
private[kafka] final class OutputTopics(admin: Admin, settings: SinkSettings) {
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
    if (!facts.contains(topic)) facts(topic) = TopicChecks.output(admin, settings, topic)

  /** Whether the cleaner may take rows of aborted transactions; also of a topic that nobody has looked at. */
  def mayBeCompacted(topic: String): Boolean = facts.get(topic).forall(_.mayBeCompacted)
}
