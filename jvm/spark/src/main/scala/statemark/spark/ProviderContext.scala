package statemark.spark

import java.io.{File, FileNotFoundException}
import java.util.UUID
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.SparkException
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType
import org.rocksdb.CompressionType
import statemark.ReadRetention
import statemark.common.Clock
import statemark.engine._
import statemark.spark.Relocated.CheckpointFileManager
import statemark.spark.live.{LiveRead, StoreAddress}
import statemark.transaction.{CommitObserver, UncommittedLimit}

/** What `init` gives a provider, and what follows from it. `init` runs under a lock of the whole JVM:
  * all that loads native code or touches a disk is made at the first use.
  *
  * @param isOnCluster another executor may commit a version of this store
  * @param liveRead that the store is read beside its running query, and how
  */
final class ProviderContext(
    val storeId: StateStoreId,
    val keySchema: StructType,
    val valueSchema: StructType,
    val usesFamilies: Boolean,
    val storeConf: StateStoreConf,
    givenConf: Configuration,
    schemas: Option[StateSchemaProvider],
    val observer: CommitObserver,
    val clock: Clock,
    val isOnCluster: Boolean,
    task: RunningTask,
    val liveRead: Option[LiveRead]
) {
  val hadoopConf: Configuration =
    DirectLocalFs.settingsFor(storeId.storeCheckpointLocation(), givenConf)
  val queryRunId: UUID = StatemarkBridge.runId(hadoopConf)
  val providerId: StateStoreProviderId = StateStoreProviderId(storeId, queryRunId)
  val address: StoreAddress = StoreAddress(queryRunId, storeId)
  private val sizes = NativeMemoryBound.of(RocksDBConf(storeConf), storeConf.sqlConfs)
  val conf: RocksDBConf = sizes.conf
  val settings: StoreSettings =
    StoreSettings.from(storeConf.sqlConfs, Runtime.getRuntime.maxMemory)

  val mergeDelimiter: String = RowFormat.mergeDelimiter(conf)

  val stateMachine = new RocksDBStateMachine(storeId, conf)
  val encoders = new RowEncoderRegistry(
    storeConf.stateStoreEncodingFormat,
    usesFamilies,
    mergeDelimiter.length,
    schemas
  )
  val committedVersions = new CommittedVersions(storeId, queryRunId, hadoopConf)

  /** Under this name the memory of the store is known to Spark's memory manager. */
  val memoryId: String = s"${providerId}_${UUID.randomUUID()}"

  /** @param verifiesAll whether every row is verified, and not the share that Spark's setting names */
  def checksums(verifiesAll: Boolean): RowChecksums =
    RowChecksums(storeId.toString, storeConf, mergeDelimiter.length, verifiesAll)

  /** In checkpoint format v2 every version has an id of its own. */
  def usesCheckpointIds: Boolean = storeConf.enableStateStoreCheckpointIds

  /** What was opened since; a provider may be closed before it opened anything. */
  private val opened = new NativeHandles

  /** Where homes outlive this process, if they do. */
  lazy val localRoot: Option[File] = LocalRoot.of(settings)

  lazy val homes: Homes = new Homes(localRoot, task.queryId, storeId)

  lazy val files: RocksDBFileManager = {
    val manager = newFileManager()
    opened.add[AutoCloseable](() => SnapshotFiles.close(manager)): Unit
    manager
  }

  /** Closes what was opened, newest first. Idempotent. */
  def close(): Unit = {
    NativeMemory.remove(memoryId)
    opened.close()
  }

  private def newFileManager(): RocksDBFileManager = SnapshotFiles.manager(
    storeId,
    newScratch(),
    hadoopConf,
    conf,
    storeConf,
    providerId.toString
  )

  private def newScratch(): File = {
    val scratch = StatemarkBridge.newLocalDirectory("statemark-files-")
    opened.add[AutoCloseable](() => LocalDirectory.deleteTree(scratch)): Unit
    scratch
  }

  /** What proves versions, in checkpoint format v1. */
  lazy val proofs: Option[FileProofs] = Option.when(!usesCheckpointIds)(
    new FileProofs(storeId.storeCheckpointLocation(), hadoopConf)
  )

  /** The same where every version needs a proof. Where local state goes with the process, and attempts are told apart
    * without it, those alone do that maintenance may take a snapshot of.
    */
  private lazy val proofsOfAll: Option[FileProofs] =
    proofs.filter(_ => homes.parent.isDefined || CommittedAttempt.comparesFiles(this))

  private lazy val counted = new CountedFiles(listing)

  /** With a checksum beside each file, where that is wanted. */
  private lazy val checkedFiles = {
    val made = SnapshotFiles.checked(counted, conf, storeConf)
    opened.add[AutoCloseable](() => SnapshotFiles.close(made)): Unit
    made
  }

  lazy val changelogs: ChangelogFiles =
    new ChangelogFiles(
      files,
      storeId.storeCheckpointLocation(),
      checkedFiles,
      counted,
      proofsOfAll,
      base => proofs.filter(_ => SnapshotTaker.isDue(base.version + 1, base.lastSnapshot, conf)),
      conf.compressionCodec,
      usesFamilies,
      clock
    )

  lazy val options: EngineOptions = {
    RocksDBLoader.loadLibrary()
    // Has Spark's memory manager ask for what stores use, in any case.
    val (sparks, ofSpark) =
      RocksDBMemoryManager.getOrCreateRocksDBMemoryManagerAndCache(sizes.sparks)
    val (writeBufferManager, cache) = if (sizes.isOwn) {
      ofSpark.close()
      val pool = NativePool.of(conf)
      (pool.memtables, pool.cache)
    } else (sparks, ofSpark)
    // With bounded memory all stores of the executor share one cache, which outlives them.
    if (!conf.boundedMemoryUsage) opened.add(cache): Unit
    EngineOptions(
      cache,
      Option(writeBufferManager),
      conf.boundedMemoryUsage,
      conf.blockSizeKB * 1024,
      math.max(conf.writeBufferSizeMB, 0) * 1024 * 1024,
      math.max(conf.maxWriteBufferNumber, 0),
      CompressionType.getCompressionType(conf.compression),
      conf.formatVersion,
      mergeDelimiter,
      conf.maxOpenFiles,
      conf.allowFAllocate
    )
  }

  lazy val snapshots = new Snapshots(files, deleteSnapshot, conf, clock)

  val snapshotTaker = new SnapshotTaker(this)

  private[spark] val retention = new Retention(this)

  /** A load; the caller closes it.
    * @param verifies as in [[StoreLoader]]
    */
  def newLoad(verifies: Boolean = false): StoreLoader = new StoreLoader(loadContext, verifies)

  private lazy val loadContext = LoadContext(
    files,
    conf,
    storeConf,
    options,
    identity,
    checksums(verifiesAll = true),
    usesFamilies,
    ReadRetention(
      settings.readRetentionVersions,
      settings.readRetentionMs,
      clock
    ),
    settings.maxUncommittedBytes.map(UncommittedLimit(UncommittedStores.memory, _)),
    homes,
    changelogs,
    proofsOfAll,
    () => snapshotsThere(),
    observer,
    clock,
    reportSnapshot
  )

  private lazy val listing =
    CheckpointFileManager.create(storeId.storeCheckpointLocation(), hadoopConf)

  /** Snapshots that lie in the checkpoint location now, of either checkpoint format. Spark's own listings
    * fail on a name of the other one.
    */
  private[spark] def snapshotsThere(): Seq[VersionId] = {
    val found =
      try
        listing.list(
          storeId.storeCheckpointLocation(),
          (path: Path) => path.getName.endsWith(".zip")
        ).toSeq
      catch { case _: FileNotFoundException => Nil }
    found.map(status => StoreFile.of(status.getPath.getName))
      .collect { case StoreFile.Snapshot(at) => at }
  }

  private def deleteSnapshot(at: VersionId): Unit = checkedFiles.delete(
    new Path(storeId.storeCheckpointLocation(), StoreFile.snapshotName(at))
  )

  /** Nobody waits for the report where no query runs: a session that only reads state may have no
    * coordinator.
    */
  def reportSnapshot(version: Long): Unit =
    try StatemarkBridge.reportSnapshot(providerId, version, clock.epochMs(), conf)
    catch { case e: SparkException if StatemarkBridge.lacksCoordinator(e) => () }

  private def identity: StoreIdentity = StoreIdentity(
    task.queryId,
    storeId.operatorId,
    storeId.partitionId,
    storeId.storeName,
    task.partitions
  )
}
