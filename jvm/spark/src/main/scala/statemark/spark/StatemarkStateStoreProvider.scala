package statemark.spark

import java.util.UUID
import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType
import org.slf4j.LoggerFactory
import scala.util.control.NonFatal
import statemark.changelog.ChangelogWriter
import statemark.common.Clock
import statemark.engine.VersionId
import statemark.spark.checkpoint.{StoreAddress, StoreLocation}
import statemark.spark.cluster.BatchOffsets
import statemark.spark.conf.StoreConf
import statemark.spark.errors.StoreFailures
import statemark.spark.local.LoadedStore
import statemark.spark.memory.NativeMemory
import statemark.spark.metrics.{CommitFacts, CommitTimes, EventCounts, HandleCalls, StoreMetrics}
import statemark.spark.process.{JvmState, TaskInfo}
// All of it: an exception that Spark 4.0 lacks stands there.
import statemark.spark.provider._
import statemark.spark.reads.LiveRead
import statemark.spark.snapshot.SnapshotStats
import statemark.transaction.PreparedTransaction
import statemark.{ChangelogOffsets, TransactionalStore}

/** Statemark's state store provider: the value of `spark.sql.streaming.stateStore.providerClass`.
  * Spark pins the name in every checkpoint; it stays for ever.
  *
  * A committed version stays prepared on top of the base until Spark asks for it. So a task that is
  * aborted, or a version that is asked for again after the next was committed, reads nothing from the
  * checkpoint location (I4).
  *
  * ''Thread:'' one task at a time has the store checked out (the stamp of Spark's state machine);
  * `doMaintenance` may run beside it.
  * ''Source:'' Spark 4.2 `StateStoreProvider`, `SupportsFineGrainedReplay`.
  */
final class StatemarkStateStoreProvider extends ProviderBase with HandleOwner with OverdueStore {
  // The driver makes providers without init, many times per batch: nothing is done here.
  // Lazy here and in what a provider makes: to find a logger takes a walk over the stack.
  private lazy val log = LoggerFactory.getLogger(classOf[StatemarkStateStoreProvider])
  @volatile private var initialized: Option[ProviderContext] = None
  @volatile private var holding: Option[StoreLifecycle] = None
  private val events = new EventCounts
  private val maintenance = new Object
  // Until one attempt has ended without a failure; maintenance tries it again.
  @volatile private var owesSnapshot = false

  override def init(
      stateStoreId: StateStoreId,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useColumnFamilies: Boolean,
      storeConfs: StateStoreConf,
      hadoopConf: Configuration,
      useMultipleValuesPerKey: Boolean,
      stateSchemaProvider: Option[StateSchemaProvider]
  ): Unit = {
    require(
      useColumnFamilies || !useMultipleValuesPerKey,
      "Multiple values per key need column families, and this store was asked to do without them."
    )
    val live = LiveRead.current
    val context = new ProviderContext(
      new StoreLocation(stateStoreId, hadoopConf),
      new StoreConf(storeConfs, useColumnFamilies),
      keySchema,
      valueSchema,
      stateSchemaProvider,
      JvmState.observer(),
      Clock.system,
      JvmState.runsOnCluster()(),
      // A reader in a foreachBatch runs in a task of the query, and has no part in what that has on disk.
      if (live.isDefined) TaskInfo.none else JvmState.runningTask()(),
      live
    )
    context.encoders.register(
      StateStore.DEFAULT_COL_FAMILY_NAME,
      keySchema,
      valueSchema,
      keyStateEncoderSpec,
      useMultipleValuesPerKey
    )
    initialized = Some(context)
    holding = Some(new StoreLifecycle(context, events))
  }

  override def stateStoreId: StateStoreId = context.location.storeId

  override def supportedCustomMetrics: Seq[StateStoreCustomMetric] = StoreMetrics.custom

  override def getStore(
      version: Long,
      uniqueId: Option[String],
      forceSnapshotOnCommit: Boolean,
      loadEmpty: Boolean
  ): StateStore =
    if (loadEmpty)
      checkedOut(version, isReadOnly = false, forceSnapshotOnCommit) {
        require(uniqueId.isEmpty, "an empty store has no checkpoint id")
        keeper.empty(version)
        begin(hasChangelog = false)
      }
    else
      writable(checkedOut(version, isReadOnly = false, forceSnapshotOnCommit) {
        positioned(VersionId(version, idOf(uniqueId)))
      })

  override def getReadStore(version: Long, uniqueId: Option[String]): ReadStateStore =
    handOut(checkedOut(version, isReadOnly = true, forceSnapshot = false) {
      positioned(VersionId(version, idOf(uniqueId)))
    })

  /** The same object becomes writable. Where another provider object made it (this one replaced that
    * between the read and the write phase of a task, SPARK-56476), that provider goes on with it.
    */
  override def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore,
      version: Long,
      uniqueId: Option[String],
      forceSnapshotOnCommit: Boolean
  ): StateStore = readStore match {
    case store: StatemarkRocksDBStateStore if store.id == stateStoreId =>
      assert(
        version == store.version,
        s"Can only upgrade a read store to a write store of the same version, but it is at " +
          s"${store.version} and $version is asked for"
      )
      require(store.isReadOnly, "Existing store must be readOnly, but got a read-write store")
      store.verifyStamp()
      store.becomeWritable(forceSnapshotOnCommit)
      writable(store)
    case _ => getStore(version, uniqueId, forceSnapshotOnCommit, loadEmpty = false)
  }

  override def replayStateFromSnapshot(
      snapshotVersion: Long,
      endVersion: Long,
      readOnly: Boolean,
      snapshotVersionStateStoreCkptId: Option[String],
      endVersionStateStoreCkptId: Option[String]
  ): StateStore = {
    def checkVersions(): Unit = {
      if (snapshotVersion < 1) throw StatemarkBridge.unexpectedVersion(snapshotVersion)
      if (endVersion < snapshotVersion) throw StatemarkBridge.unexpectedVersion(endVersion)
    }
    checkedOut(endVersion, readOnly, forceSnapshot = false) {
      checkVersions()
      keeper.restoreFrom(
        VersionId(snapshotVersion, snapshotVersionStateStoreCkptId),
        VersionId(endVersion, endVersionStateStoreCkptId)
      )
      begin(hasChangelog = true)
    }
  }

  override def replayReadStateFromSnapshot(
      snapshotVersion: Long,
      endVersion: Long,
      snapshotVersionStateStoreCkptId: Option[String],
      endVersionStateStoreCkptId: Option[String]
  ): ReadStateStore =
    replayStateFromSnapshot(
      snapshotVersion,
      endVersion,
      readOnly = true,
      snapshotVersionStateStoreCkptId,
      endVersionStateStoreCkptId
    )

  override def getStateStoreChangeDataReader(
      startVersion: Long,
      endVersion: Long,
      colFamilyNameOpt: Option[String],
      endVersionStateStoreCkptId: Option[String]
  ): StateStoreChangeDataReader =
    new ChangeFeed(
      context,
      startVersion,
      VersionId(endVersion, endVersionStateStoreCkptId),
      colFamilyNameOpt,
      keeper.generation.map(_.store.base.families)
    )

  override def doMaintenance(): Unit = {
    doSnapshotMaintenance()
    doCleanupMaintenance()
  }

  /** Uploads a snapshot where one is due. */
  override def doSnapshotMaintenance(): Unit = maintaining {
    keeper.generation.foreach { generation =>
      if (owesSnapshot) takeOverdue(generation)
      context.snapshotTaker.ifDue(generation, keeper.isCommittedAttempt)
    }
  }

  /** Has a batch go on from a store. Where it was loaded for that, its overdue snapshot is taken concurrently: processes
    * that end within a minute never come to maintenance.
    */
  private def writable(
      store: StatemarkRocksDBStateStore
  ): StatemarkRocksDBStateStore = {
    if (keeper.takeLoaded() && context.isOfBatch) {
      owesSnapshot = true
      OverdueSnapshots.loaded(this)
    }
    store
  }

  private[spark] override def takeOverdueSnapshot(isEnd: Boolean): Unit =
    try
      maintaining {
        keeper.generation.foreach { generation =>
          if (isEnd) context.snapshotTaker.ifOverdueAtEnd(generation, isKnownAttempt): Unit
          else if (owesSnapshot) takeOverdue(generation)
        }
      }
    catch { case _: StateStoreInvalidStateMachineTransition => () } // the store is closed

  private def takeOverdue(generation: LoadedStore): Unit = {
    if (context.snapshotTaker.ifOverdue(generation))
      context.retention.deleteOld(generation.store.base.version)
    owesSnapshot = false
  }

  /** Tells whether a prepared version counts; not where the driver, which knows, is gone already. */
  private def isKnownAttempt(at: VersionId): Boolean =
    try keeper.isCommittedAttempt(at)
    catch { case NonFatal(_) => false }

  /** Deletes what retention no longer needs. */
  override def doCleanupMaintenance(): Unit = maintaining {
    keeper.generation.foreach(generation =>
      context.retention.deleteOld(generation.store.base.version)
    )
  }

  /** What goes wrong is logged and tried again at the next tick: an exception would unload the
    * provider.
    */
  private def maintaining(work: => Unit): Unit = {
    context.stateMachine.verifyForMaintenance()
    try maintenance.synchronized(work)
    catch {
      case NonFatal(e) if StatemarkBridge.isEnding(e) =>
        log.info(s"Maintenance of $stateStoreId ends with the application.")
      case NonFatal(e) =>
        log.warn(s"Maintenance of $stateStoreId failed; the next tick tries again.", e)
    }
  }

  override def close(): Unit = initialized.filter(_.stateMachine.close()).foreach { context =>
    OverdueSnapshots.closed(this)
    maintenance.synchronized {
      try keeper.close()
      finally context.close()
    }
  }

  // ---- what store handles call, holding the stamp

  private[spark] override def commit(store: StatemarkRocksDBStateStore): CommitResult = {
    val owned = store.owned
    import owned.transaction
    val generation = loaded
    val next = transaction.base.version + 1
    val isStale = keeper.hasStaleSnapshot(next)
    val needsSnapshot = isStale || store.isSnapshotForced || !owned.hasChangelog ||
      transaction.families != transaction.base.families
    var uploaded: Option[SnapshotStats] = None
    def upload(version: PreparedTransaction): Unit =
      uploaded = Some(context.snapshotTaker.inCommit(generation, version))
    try {
      val (prepared, totalMs) = Clock.timedMs(context.clock) {
        generation.store.commit(
          transaction,
          ChangelogOffsets(
            owned.nextId,
            BatchOffsets.ofTask(context.location.runId, next - 1).flatMap(_.end)
          ),
          Option.when(needsSnapshot)(upload _)
        )
      }
      keeper.committed(prepared.state)
      context.checkpoint.files.setMaxSeenVersion(next)
      val times = CommitTimes(totalMs, prepared.changelogMs, uploaded, keeper.confirmMs)
      val unflushed = generation.unflushedVersions
      StatemarkBridge.reportCommit(
        stateStoreId,
        next,
        context.conf.spark,
        context.location.hadoopConf
      )
      context.observer.reached(statemark.transaction.CommitPhase.CommitReported)
      CommitResult(
        metricsOf(generation.store) { pinnedBytes =>
          CommitFacts(
            store = generation.store,
            state = prepared.state,
            transaction = transaction,
            prepared = prepared,
            times = times,
            calls = HandleCalls(store.gets, store.puts, store.isSnapshotForced),
            load = keeper.load,
            events = events.take(),
            unflushedVersions = unflushed,
            pinnedBytes = pinnedBytes
          )
        },
        StateStoreCheckpointInfo(
          stateStoreId.partitionId,
          next,
          owned.nextId,
          transaction.base.at.checkpointId
        )
      )
    } catch {
      case e: Throwable =>
        generation.store.dropPrepared(): Unit
        throw e
    }
  }

  private[spark] override def abort(store: StatemarkRocksDBStateStore): Unit = {
    store.letGo()
    if (!store.isReadOnly) events.rolledBack()
  }

  // ---- loading

  /** Brings the store to `at`; where the reader of a running query asks and the query's own store is open
    * somewhere, reads are beside that one.
    */
  private def positioned(at: VersionId): Checkout =
    context.liveRead.flatMap(_.open(context.location.address, at)) match {
      case Some(reads) =>
        if (context.conf.usesFamilies) reads.createColumnFamily(StateStore.DEFAULT_COL_FAMILY_NAME)
        Checkout.Beside(reads)
      case None =>
        keeper.moveTo(at)
        context.startOffsets.settle(loaded.store)
        begin(hasChangelog = true)
    }

  /** Takes the stamp, has `position` bring the store to where it is asked for, and hands out a handle on what that
    * makes.
    */
  private def checkedOut(version: Long, isReadOnly: Boolean, forceSnapshot: Boolean)(
      position: => Checkout
  ): StatemarkRocksDBStateStore = {
    var stamp: Option[Long] = None
    try {
      if (version < 0) throw StatemarkBridge.unexpectedVersion(version)
      stamp = Some(context.stateMachine.acquireStamp())
      keeper.generation.foreach(_.store.rollbackOpen())
      val checkout = position
      reportMemory()
      val handle = new StatemarkRocksDBStateStore(
        this,
        context,
        version,
        stamp.get,
        isReadOnly,
        forceSnapshot,
        checkout
      )
      stamp = None
      handle
    } catch {
      case e: StateStoreInvalidStateMachineTransition => throw e
      case e: Throwable => throw StoreFailures.loading(context.location.toString, version, e)
    } finally stamp.foreach(context.stateMachine.releaseStamp(_, throwEx = false))
  }

  private def begin(hasChangelog: Boolean): Checkout = {
    val generation = loaded
    val nextId = Option.when(context.conf.usesCheckpointIds)(UUID.randomUUID().toString)
    val base = generation.store.base
    def openChangelog(): ChangelogWriter =
      if (!hasChangelog) ChangelogWriter.None
      else {
        context.checkpoint.changelogs.create(
          base,
          nextId,
          context.checksums(verifiesAll = false)
        )
      }
    val transaction = generation.store.newTransaction(() => openChangelog())
    if (context.conf.usesFamilies)
      transaction.createColumnFamily(StateStore.DEFAULT_COL_FAMILY_NAME, isInternal = false): Unit
    Checkout.Owned(transaction, nextId, hasChangelog)
  }

  private def loaded: LoadedStore =
    keeper.generation.getOrElse(throw new IllegalStateException(s"$stateStoreId is not loaded"))

  /** A reader's session need not have the setting of the query. */
  private def idOf(uniqueId: Option[String]): Option[String] =
    if (context.conf.usesCheckpointIds || context.liveRead.isDefined) uniqueId else None

  // ---- figures

  /** @param facts of a commit, given the native bytes that its store holds on to */
  private def metricsOf(store: TransactionalStore)(facts: Long => CommitFacts)
      : StateStoreMetrics = {
    val used = reportMemory()
    val memory = NativeMemory.share(context.memoryId, used)
    val known = facts(NativeMemory.pinnedShare(context.memoryId, store.pinnedBytes))
    StoreMetrics.of(
      stateStoreId,
      known,
      memory + known.prepared.bytes,
      context.snapshotTaker.lastUploaded,
      keeper.figures
    )
  }

  /** Native bytes of the store, as Spark's memory manager is told. */
  private def reportMemory(): Long = keeper.generation.fold(0L) { generation =>
    val used = NativeMemory.sources.map(generation.store.property).sum
    NativeMemory.update(context.memoryId, used, context.conf.rocksDb.boundedMemoryUsage)
    used
  }

  private[spark] def keeper: StoreLifecycle = holding.getOrElse(
    throw new IllegalStateException(s"$stateStoreId was not initialized; call init first.")
  )

  private[spark] def address: StoreAddress = context.location.address

  private def context: ProviderContext = initialized.getOrElse(
    throw new IllegalStateException(
      "The state store provider was not initialized; call init first."
    )
  )
}
