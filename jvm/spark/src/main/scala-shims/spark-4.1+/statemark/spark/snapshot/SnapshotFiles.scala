package statemark.spark.snapshot

import java.io.File
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.FileSystem
import org.apache.spark.sql.execution.streaming.checkpointing.{
  CheckpointFileManager,
  ChecksumCheckpointFileManager
}
import org.apache.spark.sql.execution.streaming.state._
import statemark.engine.StoreState
import statemark.spark.checkpoint.ParallelFetchFileSystem

/** Calls Spark's file manager. */
object SnapshotFiles {

  /** The file manager of one store.
    * @param name of the store in logs
    */
  def manager(
      storeId: StateStoreId,
      temporary: File,
      hadoopConf: Configuration,
      conf: RocksDBConf,
      storeConf: StateStoreConf,
      name: String
  ): RocksDBFileManager = new RocksDBFileManager(
    storeId.storeCheckpointLocation().toString,
    temporary,
    hadoopConf,
    conf.compressionCodec,
    name,
    storeConf,
    fileChecksumEnabled = conf.fileChecksumEnabled,
    fileChecksumThreadPoolSize = Some(UploadRules.checksumThreads(conf))
  ) {
    override protected def getFileSystem(root: String, hadoopConf: Configuration): FileSystem =
      new ParallelFetchFileSystem(super.getFileSystem(root, hadoopConf))
  }

  def close(files: RocksDBFileManager): Unit = files.close()

  /** Files of `under` with a checksum beside each, where that is wanted, as the manager of a store makes them. */
  def checked(
      under: CheckpointFileManager,
      conf: RocksDBConf,
      storeConf: StateStoreConf
  ): CheckpointFileManager =
    if (!conf.fileChecksumEnabled) under
    else
      new ChecksumCheckpointFileManager(
        under,
        allowConcurrentDelete = true,
        numThreads = UploadRules.checksumThreads(conf),
        storeConf.checkpointFileChecksumSkipCreationIfFileMissingChecksum
      )

  def close(files: CheckpointFileManager): Unit = files.close()

  def save(
      files: RocksDBFileManager,
      image: File,
      state: StoreState,
      mapping: Map[String, RocksDBSnapshotFile],
      conf: RocksDBConf
  ): Unit =
    files.saveCheckpointToDfs(
      image,
      state.version,
      state.counts.keys,
      state.counts.internalKeys,
      mapping,
      Some(state.families.byName.map { case (name, f) =>
        name -> ColumnFamilyInfo(f.id, f.isInternal)
      }),
      Some(state.families.maxId),
      state.at.checkpointId,
      conf.verifyNonEmptyFilesInZip
    )

  /** @param retained so many versions, counted from the highest that has a snapshot, can be restored afterwards */
  def deleteOldVersions(files: RocksDBFileManager, conf: RocksDBConf, retained: Int): Unit =
    files.deleteOldVersions(
      retained,
      conf.maxVersionsToDeletePerMaintenance,
      conf.minVersionsToDelete
    )
}
