package statemark.kafka.driver

import statemark.common.Clock
import statemark.kafka.clients.{KafkaClients, TopicChecks}
import statemark.kafka.conf.SinkSettings
import statemark.kafka.decision.LastDecision
import statemark.kafka.log.{CommitState, TopicCommitLog}

/** The topics to which sinks write, as far as their commit topic says. */
object WrittenTopics {

  /** Reads the commit topic as it is, without waiting for open transactions.
    * @return the topics that options of sinks name, and those of the rows that each has decided last
    */
  def of(settings: SinkSettings): Set[String] = {
    val clients = KafkaClients.of(settings)
    val admin = clients.admin()
    try
      if (TopicChecks.describe(admin, settings.commitTopic).isEmpty) Set.empty
      else
        new TopicCommitLog(
          clients,
          admin,
          settings,
          Clock.system
        ).readAll().valuesIterator.filter(_.isReadable).flatMap(topicsOf).toSet
    finally admin.close()
  }

  private def topicsOf(state: CommitState): Set[String] = {
    val decided = state.last match {
      case LastDecision.Decided(decision) => decision.topics
      case _ => Set.empty[String]
    }
    decided ++ state.identity.toSeq.flatMap(_.topics)
  }
}
