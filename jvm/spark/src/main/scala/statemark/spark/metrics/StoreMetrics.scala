package statemark.spark.metrics

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider._
import org.rocksdb.{HistogramType, TickerType}
import statemark.common.RejectReason
import statemark.spark.local.{LoadSource, LoadStats}
import statemark.spark.snapshot.SnapshotStats
import statemark.TransactionalStore

/** Counters of a provider between two commits of its store: an aborted task reports no metrics, so
  * that its abort shows with the commit that follows.
  */
final class EventCounts {
  private var rollbacks_ = 0L
  private var rewinds_ = 0L
  private var reloads_ = 0L

  def rolledBack(): Unit = synchronized(rollbacks_ += 1)
  def rewound(): Unit = synchronized(rewinds_ += 1)
  def reloaded(): Unit = synchronized(reloads_ += 1)

  /** Rollbacks, rewinds and reloads since the last call. */
  def take(): (Long, Long, Long) = synchronized {
    val taken = (rollbacks_, rewinds_, reloads_)
    rollbacks_ = 0
    rewinds_ = 0
    reloads_ = 0
    taken
  }
}

/** One commit as its task measured it.
  *
  * @param totalMs serialize, changelog, and snapshot where the commit has one
  */
final case class CommitStats(
    totalMs: Long,
    changelogMs: Long,
    snapshot: Option[SnapshotStats],
    confirmMs: Long,
    uncommittedBytes: Long,
    spills: Long,
    spilledBytes: Long,
    preparedBytes: Long,
    gets: Long,
    puts: Long,
    isSnapshotForced: Boolean,
    unflushedVersions: Long
) {
  def snapshotMs: Long = snapshot.fold(0L)(_.totalMs)

  /** Never below 0: the parts lie within the whole, and each is cut to whole milliseconds. */
  def serializeMs: Long = totalMs - changelogMs - snapshotMs
}

/** Statemark's metrics, and Spark's of its RocksDB provider under their names. All are sums: Spark adds
  * them up over stores and partitions. Staged and prepared bytes are among them (I8).
  */
object StoreMetrics {
  val CommitCount: StateStoreCustomMetric =
    StateStoreCustomSumMetric("statemarkCommitCount", "Statemark: number of commits")
  val CommitLatency: StateStoreCustomMetric =
    StateStoreCustomTimingMetric("statemarkCommitLatencyMs", "Statemark: time of commits")
  val SerializeLatency: StateStoreCustomMetric = StateStoreCustomTimingMetric(
    "statemarkCommitSerializeLatencyMs",
    "Statemark: time of commits to sort, count and serialize staged writes"
  )
  val ChangelogLatency: StateStoreCustomMetric = StateStoreCustomTimingMetric(
    "statemarkCommitChangelogLatencyMs",
    "Statemark: time of commits until changelogs are durable"
  )
  val SnapshotLatency: StateStoreCustomMetric = StateStoreCustomTimingMetric(
    "statemarkCommitSnapshotLatencyMs",
    "Statemark: time of commits to upload snapshots"
  )
  val ConfirmLatency: StateStoreCustomMetric = StateStoreCustomTimingMetric(
    "statemarkConfirmLatencyMs",
    "Statemark: time to apply prepared versions to base stores"
  )
  val UncommittedBytes: StateStoreCustomMetric = StateStoreCustomSizeMetric(
    "statemarkUncommittedBytes",
    "Statemark: bytes of staged writes at commit"
  )
  val SpillCount: StateStoreCustomMetric = StateStoreCustomSumMetric(
    "statemarkSpillCount",
    "Statemark: number of times that staged writes went to disk"
  )
  val SpilledBytes: StateStoreCustomMetric = StateStoreCustomSizeMetric(
    "statemarkSpilledBytes",
    "Statemark: bytes of staged writes that went to disk"
  )
  val PreparedBytes: StateStoreCustomMetric = StateStoreCustomSizeMetric(
    "statemarkPreparedBytes",
    "Statemark: heap bytes of prepared versions"
  )
  val RollbackCount: StateStoreCustomMetric = StateStoreCustomSumMetric(
    "statemarkRollbackCount",
    "Statemark: number of transactions rolled back"
  )
  val RewindCount: StateStoreCustomMetric = StateStoreCustomSumMetric(
    "statemarkRewindCount",
    "Statemark: number of prepared versions dropped"
  )
  val ReloadCount: StateStoreCustomMetric = StateStoreCustomSumMetric(
    "statemarkReloadCount",
    "Statemark: number of loads that read the checkpoint location"
  )

  private val served: Map[LoadSource, StateStoreCustomMetric] = LoadSource.all.map { source =>
    source -> StateStoreCustomSumMetric(
      source.metric,
      s"Statemark: number of loads served from ${source.name}"
    )
  }.toMap
  private val distrusted: Map[RejectReason, StateStoreCustomMetric] = RejectReason.all.map { reason =>
    reason -> StateStoreCustomSumMetric(
      s"statemarkDistrust${reason.name}Count",
      s"Statemark: number of local directories not used, reason ${reason.name}"
    )
  }.toMap
  val ReplayedCount: StateStoreCustomMetric = StateStoreCustomSumMetric(
    "statemarkReplayedChangelogCount",
    "Statemark: number of changelogs replayed by loads"
  )
  val CheckpointBytes: StateStoreCustomMetric = StateStoreCustomSizeMetric(
    "statemarkLoadCheckpointBytes",
    "Statemark: bytes that loads read from the checkpoint location"
  )
  val LoadLocalLatency: StateStoreCustomMetric = StateStoreCustomTimingMetric(
    "statemarkLoadLocalLatencyMs",
    "Statemark: time to open and prove local directories"
  )
  val LoadLatency: StateStoreCustomMetric =
    StateStoreCustomTimingMetric("statemarkLoadLatencyMs", "Statemark: time of loads")
  val UnflushedVersions: StateStoreCustomMetric = StateStoreCustomSumMetric(
    "statemarkUnflushedVersionCount",
    "Statemark: number of confirmed versions that a crash would replay"
  )

  val custom: Seq[StateStoreCustomMetric] =
    ALL_CUSTOM_METRICS ++ served.values ++ distrusted.values ++ Seq(
      CommitCount,
      CommitLatency,
      SerializeLatency,
      ChangelogLatency,
      SnapshotLatency,
      ConfirmLatency,
      UncommittedBytes,
      SpillCount,
      SpilledBytes,
      PreparedBytes,
      RollbackCount,
      RewindCount,
      ReloadCount,
      ReplayedCount,
      CheckpointBytes,
      LoadLocalLatency,
      LoadLatency,
      UnflushedVersions
    )

  /** Everything that a commit reports, as values: another task may have the store by the time that
    * Spark asks.
    */
  def of(
      storeId: StateStoreId,
      store: TransactionalStore,
      commit: CommitStats,
      load: LoadStats,
      events: EventCounts,
      memoryBytes: Long,
      pinnedBytes: Long,
      lastUploaded: Long
  ): StateStoreMetrics = {
    val state = store.prepared.fold(store.base)(_.state)
    val (rollbacks, rewinds, reloads) = events.take()
    val families = state.families.byName.values
    val files = commit.snapshot.fold(load.files)(_.files)
    val values = native(store) ++ VersionedMetrics.of(commit, load) ++ Map(
      CUSTOM_METRIC_SST_FILE_SIZE -> store.property("rocksdb.total-sst-files-size"),
      CUSTOM_METRIC_GET_COUNT -> commit.gets,
      CUSTOM_METRIC_PUT_COUNT -> commit.puts,
      CUSTOM_METRIC_FLUSH_TIME -> 0L,
      CUSTOM_METRIC_COMMIT_COMPACT_TIME -> 0L,
      CUSTOM_METRIC_CHECKPOINT_TIME -> commit.snapshotMs,
      CUSTOM_METRIC_FILESYNC_TIME -> (commit.changelogMs + commit.snapshotMs),
      CUSTOM_METRIC_BYTES_COPIED -> files.bytesCopied,
      CUSTOM_METRIC_FILES_COPIED -> files.filesCopied,
      CUSTOM_METRIC_FILES_REUSED -> files.filesReused,
      CUSTOM_METRIC_ZIP_FILE_BYTES_UNCOMPRESSED -> files.zipFileBytesUncompressed.getOrElse(0L),
      CUSTOM_METRIC_PINNED_BLOCKS_MEM_USAGE -> pinnedBytes,
      CUSTOM_METRIC_NUM_INTERNAL_COL_FAMILIES_KEYS -> state.counts.internalKeys,
      CUSTOM_METRIC_NUM_EXTERNAL_COL_FAMILIES -> families.count(!_.isInternal).toLong,
      CUSTOM_METRIC_NUM_INTERNAL_COL_FAMILIES -> families.count(_.isInternal).toLong,
      CommitCount -> 1L,
      CommitLatency -> commit.totalMs,
      SerializeLatency -> commit.serializeMs,
      ChangelogLatency -> commit.changelogMs,
      SnapshotLatency -> commit.snapshotMs,
      ConfirmLatency -> commit.confirmMs,
      UncommittedBytes -> commit.uncommittedBytes,
      SpillCount -> commit.spills,
      SpilledBytes -> commit.spilledBytes,
      PreparedBytes -> commit.preparedBytes,
      RollbackCount -> rollbacks,
      RewindCount -> rewinds,
      ReloadCount -> reloads,
      UnflushedVersions -> commit.unflushedVersions
    ) ++ loadFigures(load)
    InstanceMetrics.metrics(
      storeId,
      state.counts.keys,
      memoryBytes,
      values,
      commit.totalMs,
      lastUploaded
    )
  }

  /** How a load was served, and why local directories were not used for it. */
  private[spark] def loadFigures(load: LoadStats): Map[StateStoreCustomMetric, Long] = Map(
    ReplayedCount -> load.replayed.toLong,
    CheckpointBytes -> (load.replayedBytes + load.files.bytesCopied),
    LoadLocalLatency -> load.localMs,
    LoadLatency -> load.totalMs
  ) ++ served.map { case (source, metric) =>
    metric -> (if (load.source == source) 1L else 0L)
  } ++ distrusted.map { case (reason, metric) =>
    metric -> load.distrusted.count(_ == reason).toLong
  }

  private def native(store: TransactionalStore): Map[StateStoreCustomMetric, Long] = {
    import store.count
    def sumMs(histogram: HistogramType): Long = store.sum(histogram) / 1000
    Map(
      CUSTOM_METRIC_GET_TIME -> sumMs(HistogramType.DB_GET),
      CUSTOM_METRIC_PUT_TIME -> sumMs(HistogramType.DB_WRITE),
      CUSTOM_METRIC_TOTAL_COMPACT_TIME -> sumMs(HistogramType.COMPACTION_TIME),
      CUSTOM_METRIC_BLOCK_CACHE_MISS -> count(TickerType.BLOCK_CACHE_MISS),
      CUSTOM_METRIC_BLOCK_CACHE_HITS -> count(TickerType.BLOCK_CACHE_HIT),
      CUSTOM_METRIC_BYTES_READ -> count(TickerType.BYTES_READ),
      CUSTOM_METRIC_BYTES_WRITTEN -> count(TickerType.BYTES_WRITTEN),
      CUSTOM_METRIC_ITERATOR_BYTES_READ -> count(TickerType.ITER_BYTES_READ),
      CUSTOM_METRIC_STALL_TIME -> count(TickerType.STALL_MICROS) / 1000,
      CUSTOM_METRIC_COMPACT_READ_BYTES -> count(TickerType.COMPACT_READ_BYTES),
      CUSTOM_METRIC_COMPACT_WRITTEN_BYTES -> count(TickerType.COMPACT_WRITE_BYTES),
      CUSTOM_METRIC_FLUSH_WRITTEN_BYTES -> count(TickerType.FLUSH_WRITE_BYTES)
    )
  }
}
