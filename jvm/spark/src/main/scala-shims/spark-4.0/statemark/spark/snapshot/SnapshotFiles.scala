package statemark.spark.snapshot

import java.io.File
import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.execution.streaming.state._
import statemark.engine.StoreState
import statemark.spark.process.Relocated

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
      @annotation.unused storeConf: StateStoreConf,
      name: String
  ): RocksDBFileManager = new RocksDBFileManager(
    storeId.storeCheckpointLocation().toString,
    temporary,
    hadoopConf,
    conf.compressionCodec,
    name
  )

  def close(@annotation.unused files: RocksDBFileManager): Unit = ()

  /** Spark 4.0 writes no checksums beside files. */
  def checked(
      under: Relocated.CheckpointFileManager,
      @annotation.unused conf: RocksDBConf,
      @annotation.unused storeConf: StateStoreConf
  ): Relocated.CheckpointFileManager = under

  def close(@annotation.unused files: Relocated.CheckpointFileManager): Unit = ()

  def save(
      files: RocksDBFileManager,
      image: File,
      state: StoreState,
      mapping: Map[String, RocksDBSnapshotFile],
      @annotation.unused conf: RocksDBConf
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
      state.at.checkpointId
    )

  /** @param retained so many versions, counted from the highest that has a snapshot, can be restored afterwards */
  def deleteOldVersions(files: RocksDBFileManager, conf: RocksDBConf, retained: Int): Unit =
    files.deleteOldVersions(retained, conf.minVersionsToDelete)
}
