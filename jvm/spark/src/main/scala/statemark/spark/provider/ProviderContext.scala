package statemark.spark.provider

import java.util.UUID
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType
import org.rocksdb.CompressionType
import statemark.common.Clock
import statemark.engine._
import statemark.ReadRetention
import statemark.spark.checkpoint.{CommittedVersions, StoreLocation}
import statemark.spark.cluster.{AttemptCheck, StoreReports}
import statemark.spark.conf.{LocalRoot, NativeMemoryBound, StoreConf}
import statemark.spark.load.{CheckpointMark, StoreLoader}
import statemark.spark.local.{BaseStores, LoadedStore, StoreDirectories}
import statemark.spark.memory.{NativeMemory, NativePool, UncommittedStores}
import statemark.spark.metrics.OperatorFigures
import statemark.spark.process.TaskInfo
import statemark.spark.reads.LiveRead
import statemark.spark.rows.{RowChecksums, RowEncoderRegistry, RowFormat}
import statemark.spark.snapshot.{Retention, SnapshotTaker, StaleSnapshots, StoreCheckpoint}
import statemark.transaction.{CommitObserver, UncommittedLimit}

/** What a provider is made of, by what `init` gives it. `init` runs under a lock of the whole JVM: all that loads
  * native code or touches a disk is made at its first use.
  *
  * @param schemas of the versions of rows, where rows are evolved
  * @param isOnCluster another executor may commit a version of this store
  * @param liveRead that the store is read beside its running query, and how
  */
final class ProviderContext(
    val location: StoreLocation,
    val conf: StoreConf,
    val keySchema: StructType,
    val valueSchema: StructType,
    schemas: Option[StateSchemaProvider],
    val observer: CommitObserver,
    val clock: Clock,
    isOnCluster: Boolean,
    task: TaskInfo,
    val liveRead: Option[LiveRead]
) {
  import location.storeId

  val mergeDelimiter: String = RowFormat.mergeDelimiter(conf.rocksDb)
  val stateMachine = new RocksDBStateMachine(storeId, conf.rocksDb)
  val encoders = new RowEncoderRegistry(
    conf.spark.stateStoreEncodingFormat,
    conf.usesFamilies,
    mergeDelimiter.length,
    schemas
  )

  /** Under this name the memory of the store is known to Spark's memory manager. */
  val memoryId: String = s"${location.providerId}_${UUID.randomUUID()}"

  // A reader in a foreachBatch runs in tasks of the query's batch, but writes nothing.
  private val isSole = conf.usesCheckpointIds || !isOnCluster || liveRead.isDefined

  /** Whether a batch of a query goes on from the store: a reader's does not. */
  val isOfBatch: Boolean = task.isOfBatch

  val startOffsets: StartOffsets = new StartOffsets(location, conf.own.checksOffsets)

  /** Returns the figures of the operator, for a store that was opened; None for a reader's. */
  def figuresFor(store: LoadedStore): Option[OperatorFigures] =
    Option.when(isOfBatch)(
      OperatorFigures.opened(task.query, storeId.operatorId, clock, store)
    )

  /** What was opened since; a provider may be closed before it opened anything. */
  private val opened = new NativeHandles

  /** Where homes outlive this process, if they do. */
  lazy val localRoot: Option[LocalRoot] = LocalRoot.of(conf.own)

  lazy val homes: StoreDirectories =
    new StoreDirectories(localRoot, task.queryId, storeId, task.hasTemporaryCheckpoint)

  // What is local goes with the process where there is no directory for it: nothing is proven then.
  val checkpoint: StoreCheckpoint = new StoreCheckpoint(
    location,
    conf,
    clock,
    homes.parent.isDefined || AttemptCheck.comparesFiles(isSole),
    needsProofsOfLoads = isOfBatch
  )

  /** Tells whether what this store has prepared is the attempt that counts. */
  lazy val attempts: AttemptCheck =
    AttemptCheck.of(location.address, location.storeId, isSole, checkpoint.proofs)

  /** Tells the driver where the store is; None where no later run finds it. */
  lazy val reports: Option[StoreReports] =
    homes.parent.flatMap(_ => StoreReports.of(location.address, task.queryId))

  /** Closes what was opened, newest first. Idempotent. */
  def close(): Unit = {
    NativeMemory.remove(memoryId)
    opened.close()
    checkpoint.close()
  }

  /** @param verifiesAll whether every row is verified, and not the share that Spark's setting names */
  def checksums(verifiesAll: Boolean): RowChecksums =
    RowChecksums(storeId.toString, conf.spark, mergeDelimiter.length, verifiesAll)

  lazy val options: EngineOptions = {
    RocksDBLoader.loadLibrary()
    // Has Spark's memory manager ask for what stores use, in any case.
    val (sparks, ofSpark) =
      RocksDBMemoryManager.getOrCreateRocksDBMemoryManagerAndCache(conf.memory.sparks)
    val rocksDb = conf.rocksDb
    val (writeBufferManager, cache) = if (conf.memory.isOwn) {
      ofSpark.close()
      val pool = NativePool.of(rocksDb)
      (pool.memtables, pool.cache)
    } else {
      NativePool.beside(NativeMemoryBound.default)
      (sparks, ofSpark)
    }
    // With bounded memory all stores of the executor share one cache, which outlives them.
    if (!rocksDb.boundedMemoryUsage) opened.add(cache): Unit
    EngineOptions(
      cache,
      Option(writeBufferManager),
      rocksDb.boundedMemoryUsage,
      rocksDb.blockSizeKB * 1024,
      math.max(rocksDb.writeBufferSizeMB, 0) * 1024 * 1024,
      math.max(rocksDb.maxWriteBufferNumber, 0),
      CompressionType.getCompressionType(rocksDb.compression),
      rocksDb.formatVersion,
      mergeDelimiter,
      rocksDb.maxOpenFiles,
      rocksDb.allowFAllocate
    )
  }

  private lazy val bases = new BaseStores(
    StoreIdentity(
      task.queryId,
      storeId.operatorId,
      storeId.partitionId,
      storeId.storeName,
      task.partitions
    ),
    options,
    conf.usesFamilies,
    conf.rocksDb.trackTotalNumberOfRows,
    ReadRetention(conf.own.readRetentionVersions, conf.own.readRetentionMs, clock),
    // Without a limit the bytes are counted, too.
    Some(UncommittedLimit(
      UncommittedStores.memory,
      conf.own.maxUncommittedBytes.getOrElse(Long.MaxValue)
    )),
    observer,
    CheckpointMark.of(location)
  )

  val snapshotTaker = new SnapshotTaker(
    conf,
    checkpoint,
    new CommittedVersions(storeId, location.runId, location.hadoopConf),
    observer,
    clock
  )

  private[spark] val staleSnapshots = new StaleSnapshots(conf, checkpoint, snapshotTaker)
  private[spark] val retention = new Retention(conf, checkpoint, snapshotTaker)

  /** A load; the caller closes it.
    * @param verifies as in [[StoreLoader]]
    */
  def newLoad(verifies: Boolean = false): StoreLoader = new StoreLoader(
    conf,
    checkpoint,
    homes,
    bases,
    checksums(verifiesAll = true),
    observer,
    clock,
    verifies
  )
}
