package statemark.kafka.driver

import statemark.common.Clock
import statemark.kafka.clients.KafkaClients
import statemark.kafka.conf.{SinkIdentity, SinkSettings}
import statemark.kafka.decision.LastDecision
import statemark.kafka.log.{CommitState, IdentityRecord, TopicCommitLog}
import statemark.kafka.rows.TransactionName

/** What the commit topic says of one sink: `statemark topic status`.
  * @param record who writes for it; None where nobody has begun a run, which no sink of this release leaves
  * @param decided the batch that was decided last
  * @param unfinished transactions of it that are not with the readers: a run, or `statemark topic finish`, completes them
  */
final case class SinkStatus(
    identity: SinkIdentity,
    record: Option[IdentityRecord],
    decided: Option[Long],
    unfinished: Vector[TransactionName]
)

object SinkStatus {

  /** Every sink that the commit topic knows.
    * @throws SinkException where it cannot be read
    */
  def list(settings: SinkSettings): Seq[SinkStatus] = {
    val clients = KafkaClients.of(settings)
    val admin = clients.admin()
    try
      new TopicCommitLog(clients, admin, settings, Clock.system).readAll().toSeq
        .filterNot(_._2.isEmpty).map { case (identity, state) =>
          of(identity, state.requireReadable())
        }
        .sortBy(s => (s.identity.appId, s.identity.sink))
    finally admin.close()
  }

  private def of(identity: SinkIdentity, state: CommitState): SinkStatus = {
    val unfinished = state.last match {
      case LastDecision.Decided(decision) => state.unfinished(decision).map(_._1.name)
      case _ => Vector.empty
    }
    SinkStatus(identity, state.identity, state.last.decided.headOption.map(_.batch), unfinished)
  }
}
