package statemark.spark.metrics

import statemark.TransactionalStore
import statemark.engine.StoreState
import statemark.spark.local.LoadStats
import statemark.spark.snapshot.SnapshotStats
import statemark.transaction.{PreparedTransaction, Transaction}

/** Events of a provider since its store's last commit.
  *
  * @param rollbacks transactions rolled back
  * @param rewinds prepared versions dropped
  * @param reloads loads that read the checkpoint location
  */
final case class Events(rollbacks: Long = 0, rewinds: Long = 0, reloads: Long = 0)

/** Counts events between two commits of a provider's store: an aborted task reports no metrics, so that its
  * abort shows with the commit that follows.
  *
  * ''Thread:'' any.
  */
final class EventCounts {
  private var events = Events()

  def rolledBack(): Unit = synchronized { events = events.copy(rollbacks = events.rollbacks + 1) }
  def rewound(): Unit = synchronized { events = events.copy(rewinds = events.rewinds + 1) }
  def reloaded(): Unit = synchronized { events = events.copy(reloads = events.reloads + 1) }

  /** Events since the last call. */
  def take(): Events = synchronized {
    val taken = events
    events = Events()
    taken
  }
}

/** How long the parts of a commit took.
  *
  * @param totalMs serialize, changelog, and snapshot where the commit has one
  * @param confirmMs of the version before, when this one was loaded
  */
final case class CommitTimes(
    totalMs: Long,
    changelogMs: Long,
    snapshot: Option[SnapshotStats],
    confirmMs: Long
) {
  def snapshotMs: Long = snapshot.fold(0L)(_.totalMs)

  /** Never below 0: the parts lie within the whole, and each is cut to whole milliseconds. */
  def serializeMs: Long = totalMs - changelogMs - snapshotMs
}

/** What the operator did with its handle on the store. */
final case class HandleCalls(gets: Long, puts: Long, isSnapshotForced: Boolean)

/** All that metrics of one commit are computed from, while its task still has the store.
  *
  * @param state of the version that was committed
  * @param unflushedVersions confirmed versions that a crash would replay
  * @param pinnedBytes native memory that the store holds on to
  */
final case class CommitFacts(
    store: TransactionalStore,
    state: StoreState,
    transaction: Transaction,
    prepared: PreparedTransaction,
    times: CommitTimes,
    calls: HandleCalls,
    load: LoadStats,
    events: Events,
    unflushedVersions: Long,
    pinnedBytes: Long
)
