package statemark.spark.snapshot

import org.apache.spark.sql.execution.streaming.state.{
  RocksDBConf,
  RocksDBFileManager,
  RocksDBImmutableFile,
  RocksDBSnapshotFile
}

/** What a snapshot takes from earlier ones, and what its upload may use. */
object UploadRules {

  def checksumThreads(conf: RocksDBConf): Int = conf.fileChecksumThreadPoolSize

  /** A file of a snapshot; `since` is the version of the snapshot that brought it, None for a new one. */
  def file(file: RocksDBImmutableFile, since: Option[Long]): RocksDBSnapshotFile =
    RocksDBSnapshotFile(file, since)

  /** A file that came with a snapshot at or before this version may have been deleted by another
    * executor's retention, while this one did not hold the store.
    * ''Source:'' Spark 4.2 `RocksDB.replaceStaleReusedFilesInSnapshot` (SPARK-55892).
    */
  def oldestSafeVersion(files: RocksDBFileManager, conf: RocksDBConf): Long =
    if (conf.checkStaleReusedFilesInSnapshot)
      math.max(files.getLatestSnapshotVersion() - conf.minVersionsToRetain, 0)
    else 0
}
