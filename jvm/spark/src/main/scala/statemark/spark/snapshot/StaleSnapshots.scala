package statemark.spark.snapshot

import org.apache.spark.TaskContext
import statemark.spark.conf.StoreConf

/** Snapshots of versions to come, in format v1: an attempt that did not count has left them, or a history that
  * was rolled back by hand. A commit that lets one of its version stand is lost, as readers prefer snapshots to
  * changelogs; so it replaces it by one of its own. Nothing is deleted when a store is loaded: a late task or a
  * reader may ask for an old version, too. Format v2 has other names for every attempt.
  *
  * ''Thread:'' the owner of the store.
  */
private[spark] final class StaleSnapshots(
    conf: StoreConf,
    checkpoint: StoreCheckpoint,
    taker: SnapshotTaker
) {
  private var isFirstCommit = true
  private var highest = 0L

  /** Forgets the snapshots that are known: the store was loaded, or others have committed to it. */
  def loaded(): Unit = isFirstCommit = true

  /** Records that the store has committed a version. */
  def committed(): Unit = isFirstCommit = false

  /** Tells whether there is a snapshot of `version`, which is about to be committed. Every commit asks. The first
    * after a load lists the versions above, as a query may have been rolled back by any number of batches. Later
    * commits look up to the highest of those, and where an earlier attempt of the same run may have left a snapshot.
    * @param isShared whether that may have been on another executor
    */
  def has(version: Long, isShared: => Boolean): Boolean = !conf.usesCheckpointIds && {
    if (isFirstCommit) highest = newest()
    (version <= highest || taker.lastUploaded >= version || isRetry || isShared) &&
    checkpoint.files.existsSnapshotFile(version)
  }

  private def isRetry: Boolean =
    Option(TaskContext.get()).exists(t => t.attemptNumber() > 0 || t.stageAttemptNumber() > 0)

  /** Returns the newest version that has a snapshot, 0 for none. */
  private def newest(): Long =
    checkpoint.list().snapshots.filter(
      _.checkpointId.isEmpty
    ).map(_.version).maxOption.getOrElse(0L)
}
