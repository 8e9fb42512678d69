package statemark.engine

import org.rocksdb._

/** The options by which the RocksDB of a base store is opened.
  *
  * @param blockCache shared or own cache; the engine never closes it
  * @param writeBufferManager bounds memtables over several stores; None for no common bound
  * @param isMemoryBounded index and filter blocks are charged to the cache
  * @param writeBufferBytes size of a memtable in bytes, 0 for RocksDB's default
  * @param maxWriteBuffers number of memtables, 0 for RocksDB's default
  * @param tableFormatVersion version of the block-based table
  * @param mergeDelimiter bytes between merged values; pinned by the checkpoint
  * @param maxOpenFiles -1 for no limit
  * @param maxManifestBytes the size of a manifest above which RocksDB begins another
  */
final case class EngineOptions(
    blockCache: Cache,
    writeBufferManager: Option[WriteBufferManager],
    isMemoryBounded: Boolean,
    blockSizeBytes: Long,
    writeBufferBytes: Long,
    maxWriteBuffers: Int,
    compression: CompressionType,
    tableFormatVersion: Int,
    mergeDelimiter: String,
    maxOpenFiles: Int,
    allowFallocate: Boolean,
    maxManifestBytes: Long = EngineOptions.MaxManifestBytes
) {

  /** Returns the size at which a memtable is full. */
  def memtableBytes: Long =
    if (writeBufferBytes > 0) writeBufferBytes else EngineOptions.RocksDBsWriteBuffer

  /** Returns the options that all databases have.
    *
    * No periodic statistics: no code reads them, and RocksDB's thread for them goes on while the end of a process
    * destroys what it works with, so that the process ends as if it had failed (docs/adr/0016).
    *
    * No room set aside for the manifest: RocksDB's 4 MiB for each database stay allocated while it is open, and after its
    * process was killed. A manifest has a few KB, and grows with the flushes, up to a bound: each snapshot has a copy
    * (docs/adr/0023).
    */
  private[engine] def database[A <: DBOptionsInterface[A] with MutableDBOptionsInterface[A]](
      db: A
  ): A = {
    db.setMaxOpenFiles(maxOpenFiles)
    db.setAllowFAllocate(allowFallocate)
    db.setInfoLogLevel(InfoLogLevel.ERROR_LEVEL)
    db.setStatsDumpPeriodSec(0)
    db.setStatsPersistPeriodSec(0)
    db.setManifestPreallocationSize(0)
    db.setMaxManifestFileSize(maxManifestBytes)
    writeBufferManager.foreach(db.setWriteBufferManager)
    db
  }

  /** Returns the layout of files, and how they are cached. `handles` gets the objects to close after the database. */
  private[engine] def table(handles: NativeHandles): BlockBasedTableConfig = {
    val table = new BlockBasedTableConfig()
      .setBlockSize(blockSizeBytes)
      .setBlockCache(blockCache)
      .setFilterPolicy(handles.add(new BloomFilter()))
      .setFormatVersion(tableFormatVersion)
    if (isMemoryBounded) {
      table
        .setCacheIndexAndFilterBlocks(true)
        .setCacheIndexAndFilterBlocksWithHighPriority(true)
        .setPinL0FilterAndIndexBlocksInCache(true)
    }
    table
  }
}

object EngineOptions {
  private val RocksDBsWriteBuffer = 64L * 1024 * 1024

  /** A manifest that begins anew names all files: about a thousand fit, so that this is once in hundreds of flushes. */
  private[engine] val MaxManifestBytes = 256L * 1024
}
