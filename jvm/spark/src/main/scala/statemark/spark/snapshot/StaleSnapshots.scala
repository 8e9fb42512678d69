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

  /** The store was loaded, or others have committed to it: what lies there is not known any more. */
  def loaded(): Unit = isFirstCommit = true

  /** The store has committed a version. */
  def committed(): Unit = isFirstCommit = false

  /** Whether there is one of `version`, which is about to be committed. Asked for every commit: the first
    * after a load lists what lies above, as a query may have been rolled back by any number of batches. The
    * later ones look up to there, and where an earlier attempt of the same run may have left one.
    */
  def has(version: Long): Boolean = !conf.usesCheckpointIds && {
    if (isFirstCommit) highest = newest()
    (version <= highest || taker.lastUploaded >= version || isRetry) &&
    checkpoint.files.existsSnapshotFile(version)
  }

  private def isRetry: Boolean =
    Option(TaskContext.get()).exists(t => t.attemptNumber() > 0 || t.stageAttemptNumber() > 0)

  /** The newest version that has a snapshot, 0 for none. */
  private def newest(): Long =
    checkpoint.listSnapshots().filter(_.checkpointId.isEmpty).map(_.version).maxOption.getOrElse(0L)
}
