package statemark.kafka.driver

import scala.collection.mutable
import scala.util.Try
import statemark.common.Clock
import statemark.kafka.clients.{KafkaClients, TopicChecks}
import statemark.kafka.conf.{SinkIdentity, SinkSettings}
import statemark.kafka.decision.Decision
import statemark.kafka.log.{DecisionCodec, DecisionPart, IdentityRecord, TopicCommitLog}

/** The topics to which sinks write, as far as their commit topic says. */
object WrittenTopics {

  /** Reads the commit topic as it is, without waiting for open transactions.
    * @param isMeant the topics that the caller asks for; no others are held
    * @return those of them that options of sinks name, or that have rows of decisions which the commit topic still has
    */
  def of(settings: SinkSettings)(isMeant: String => Boolean): Set[String] = {
    val clients = KafkaClients.of(settings)
    val admin = clients.admin()
    try {
      val found = mutable.Set.empty[String]
      val decisions = new JoinedDecisions
      if (TopicChecks.describe(admin, settings.commitTopic).isDefined)
        new TopicCommitLog(clients, admin, settings, Clock.system).readAll(
          isWanted = _ => false,
          Some((record, _) =>
            record match {
              case record: IdentityRecord => found ++= record.topics.filter(isMeant)
              case part: DecisionPart =>
                decisions.join(part).foreach(found ++= _.topics.filter(isMeant))
              case _ => ()
            }
          )
        )((_, _) => ()): Unit
      found.toSet
    } finally admin.close()
  }

  /** Decisions whose parts come in the order of their log: those of one were written together. */
  private final class JoinedDecisions {
    private val begun = mutable.Map.empty[SinkIdentity, Vector[DecisionPart]]

    /** Returns the decision whose last part this is. Parts that are left over from an older decision are passed over. */
    def join(part: DecisionPart): Option[Decision] = {
      val before = begun.remove(part.identity).getOrElse(Vector.empty)
      val isNext = part.part == before.size &&
        before.forall(b => b.batch == part.batch && b.round == part.round)
      val parts = if (part.part == 0) Vector(part) else if (isNext) before :+ part else Vector.empty
      if (parts.nonEmpty && parts.size < part.parts) begun(part.identity) = parts
      Option.when(parts.size == part.parts)(parts.flatMap(_.bytes).toArray)
        .flatMap(bytes => Try(DecisionCodec.decode(bytes, part.format)).toOption)
    }
  }
}
