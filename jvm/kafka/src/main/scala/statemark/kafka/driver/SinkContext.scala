package statemark.kafka.driver

import org.apache.kafka.common.IsolationLevel
import statemark.common.Clock
import statemark.kafka.clients.{Fencing, GroupOffsets, KafkaClients, SentRecords, Timer}
import statemark.kafka.conf.{
  SinkIdentity,
  SinkObserver,
  SinkPhase,
  SinkSettings,
  SinkTransactionalId
}
import statemark.kafka.decision.{BatchStart, LastDecision, Verdict}
import statemark.kafka.executor.TransactionLine
import statemark.kafka.log.{CommitLog, CommitRecord, CommitTopic}

/** Whose output it is, and how it is written: what the driver knows once per run.
  * @param identity the query id, or `txnAppId`, and `settings.sink`
  * @param queryId of the query that writes
  * @param queryName empty where it has none
  * @param isRandom whether nobody has had the identity before, or will again
  */
final case class SinkContext(
    identity: SinkIdentity,
    settings: SinkSettings,
    queryId: String,
    queryName: String,
    isRandom: Boolean = false
) {
  private[kafka] def driverId: SinkTransactionalId =
    SinkTransactionalId.driver(settings.prefix, identity)
}

/** Writes decisions; the one right way is a transaction of the driver's own id. */
private[kafka] trait DecisionLog {
  def write(
      line: TransactionLine,
      records: Seq[CommitRecord],
      offsets: GroupOffsets,
      observer: SinkObserver
  ): Unit
}

private[kafka] object DecisionLog {

  /** In one transaction: a driver whose id was fenced cannot decide, and a decision is there whole or not at all. */
  def fenced(settings: SinkSettings): DecisionLog =
    (
        line: TransactionLine,
        records: Seq[CommitRecord],
        offsets: GroupOffsets,
        observer: SinkObserver
    ) => {
      val sent = new SentRecords
      sent.in(line.transaction { producer =>
        records.foreach { record =>
          val place = CommitTopic.partitionOf(settings, record.identity)
          sent.send(producer, CommitTopic.record(place, record))
        }
        offsets.addTo(producer)
        observer.reached(SinkPhase.DecisionSent)
      })
    }
}

/** What the driver's side takes from outside. Tests put faults in its place, one by one.
  * @param copyBytes and `copyMs`: what one transaction of a copy may take; None as the settings say
  */
private[kafka] final case class DriverSeams(
    clock: Clock = Clock.system,
    timer: Timer = Timer.system,
    observer: SinkObserver = SinkObserver.none,
    clientsOf: SinkSettings => KafkaClients = KafkaClients.of,
    log: CommitLog => CommitLog = log => log,
    logEnd: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    fencing: Fencing => Fencing = fencing => fencing,
    rows: LogRows => LogRows = rows => rows,
    decisions: SinkSettings => DecisionLog = DecisionLog.fenced,
    verdict: (SinkIdentity, BatchStart, LastDecision) => Verdict = Verdict.of,
    copyBytes: Long = RowCopy.MostBytes
)
