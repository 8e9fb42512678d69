package statemark.spark.snapshot

import statemark.spark.conf.StoreConf

/** Deletes what retention no longer needs. Spark's file manager counts back from the highest version that has a
  * snapshot in the checkpoint location. That may lie above what the query has committed: where it was rolled back by
  * hand it is of the history before, and an attempt at the next version may have left one. What the query goes on from
  * would be deleted; so as many more are kept as the highest lies above it.
  *
  * ''Thread:'' one at a time.
  */
private[spark] final class Retention(
    conf: StoreConf,
    checkpoint: StoreCheckpoint,
    taker: SnapshotTaker
) {

  /** The newest snapshot when it was asked for first. Those that came since are the store's own. */
  private lazy val found = checkpoint.list().snapshots.map(_.version).maxOption.getOrElse(0L)

  /** @param base the newest version that the query is known to have committed */
  def deleteOld(base: Long): Unit = {
    val above = Seq(found, taker.lastUploaded, base).max - base
    val retained = math.min(conf.rocksDb.minVersionsToRetain + above, Int.MaxValue.toLong).toInt
    SnapshotFiles.deleteOldVersions(checkpoint.files, conf.rocksDb, retained)
  }
}
