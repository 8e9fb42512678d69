package statemark.spark.snapshot

import org.apache.spark.sql.execution.streaming.state.{
  RocksDBConf,
  RocksDBFileManager,
  RocksDBImmutableFile,
  RocksDBSnapshotFile
}

/** What a snapshot takes from earlier ones, and what its upload may use. */
object UploadRules {

  /** One for the file and one for its checksum; these lines have no setting for it. */
  def checksumThreads(@annotation.unused conf: RocksDBConf): Int = 2

  /** A file of a snapshot; `since` is the version of the snapshot that brought it, None for a new one. */
  def file(file: RocksDBImmutableFile, since: Option[Long]): RocksDBSnapshotFile =
    RocksDBSnapshotFile(file, isUploaded = since.isDefined)

  /** A file that came with a snapshot at or before this version may have been deleted by another
    * executor's retention, while this one did not hold the store. Spark's own provider of these lines
    * does not look; Statemark does.
    */
  def oldestSafeVersion(files: RocksDBFileManager, conf: RocksDBConf): Long =
    math.max(files.getLatestVersion() - conf.minVersionsToRetain, 0)
}
