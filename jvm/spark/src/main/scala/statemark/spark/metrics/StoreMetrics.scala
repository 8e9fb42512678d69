package statemark.spark.metrics

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider._
import org.rocksdb.{HistogramType, TickerType}
import statemark.common.RejectReason
import statemark.spark.local.{LoadSource, LoadStats}
import statemark.spark.metrics.MetricKind.{Count, Size, Time}

/** The table of metrics: Statemark's own, and Spark's of its RocksDB provider under their names. All are sums:
  * Spark adds them up over stores and partitions. Staged and prepared bytes are among them (I8).
  *
  * What a row says is all there is to a metric here: names, the objects that Spark asks for, and the gauges of
  * [[OperatorFigures]] come from it.
  */
object StoreMetrics {
  private type Facts = CommitFacts

  /** How a load was served, and why local directories were not used for it. */
  private[spark] val ofLoads: Seq[Metric[LoadStats]] = LoadSource.all.map { source =>
    val text = s"number of loads served from ${source.text}"
    Metric[LoadStats](s"statemarkLoad${source.name}Count", Count, text)(load =>
      one(load.source == source)
    )
  } ++ RejectReason.all.map { reason =>
    val text = s"number of local directories not used, reason ${reason.name}"
    Metric[LoadStats](s"statemarkDistrust${reason.name}Count", Count, text)(
      _.distrusted.count(_ == reason).toLong
    )
  } ++ Seq[Metric[LoadStats]](
    Metric("statemarkReplayedChangelogCount", Count, "number of changelogs replayed by loads")(
      _.replayed.toLong
    ),
    Metric(
      "statemarkLoadCheckpointBytes",
      Size,
      "bytes that loads read from the checkpoint location"
    )(load => load.replayedBytes + load.files.bytesCopied),
    Metric("statemarkLoadLocalLatencyMs", Time, "time to open and prove local directories")(
      _.localMs
    ),
    Metric("statemarkLoadLatencyMs", Time, "time of loads")(_.totalMs)
  )

  private val ofCommits: Seq[Metric[Facts]] = Seq(
    Metric("statemarkCommitCount", Count, "number of commits")(_ => 1),
    Metric("statemarkCommitLatencyMs", Time, "time of commits")(_.times.totalMs),
    Metric(
      "statemarkCommitSerializeLatencyMs",
      Time,
      "time of commits to sort, count and serialize staged writes"
    )(_.times.serializeMs),
    Metric(
      "statemarkCommitChangelogLatencyMs",
      Time,
      "time of commits until changelogs are durable"
    )(_.times.changelogMs),
    Metric("statemarkCommitSnapshotLatencyMs", Time, "time of commits to upload snapshots")(
      _.times.snapshotMs
    ),
    Metric("statemarkConfirmLatencyMs", Time, "time to apply prepared versions to base stores")(
      _.times.confirmMs
    ),
    Metric[Facts]("statemarkStagedBytes", Size, "bytes of staged writes at commit")(
      _.transaction.approximateNumUncommittedBytes
    ).showing(_.store.uncommitted.fold(0L)(_.stagedBytes)).asIn("approximateNumUncommittedBytes"),
    Metric[Facts](
      "statemarkRememberedBytes",
      Size,
      "bytes of keys that were read, not written, and remembered to count rows, at commit"
    )(_.transaction.rememberedBytes).showing(_.store.uncommitted.fold(0L)(_.rememberedBytes)),
    Metric("statemarkSpillCount", Count, "number of times that staged writes went to disk")(
      _.transaction.spills
    ),
    Metric("statemarkSpilledBytes", Size, "bytes of staged writes that went to disk")(
      _.transaction.spilledBytes
    ),
    Metric[Facts]("statemarkPreparedBytes", Size, "bytes of prepared versions")(_.prepared.bytes)
      .showing(_.store.prepared.fold(0L)(_.bytes)),
    Metric("statemarkRollbackCount", Count, "number of transactions rolled back")(
      _.events.rollbacks
    ),
    Metric("statemarkRewindCount", Count, "number of prepared versions dropped")(_.events.rewinds),
    Metric("statemarkReloadCount", Count, "number of loads that read the checkpoint location")(
      _.events.reloads
    ),
    Metric[Facts](
      "statemarkUnflushedVersionCount",
      Count,
      "number of confirmed versions that a crash would replay"
    )(_.unflushedVersions).showing(_.unflushedVersions)
  )

  /** Those of Spark's that every line of Spark has. */
  private val ofSpark: Seq[Metric[Facts]] = Seq(
    Metric.ofSpark(CUSTOM_METRIC_SST_FILE_SIZE)(_.store.property("rocksdb.total-sst-files-size")),
    Metric.ofSpark(CUSTOM_METRIC_GET_COUNT)(_.calls.gets),
    Metric.ofSpark(CUSTOM_METRIC_PUT_COUNT)(_.calls.puts),
    Metric.ofSpark(CUSTOM_METRIC_FLUSH_TIME)(_ => 0),
    Metric.ofSpark(CUSTOM_METRIC_COMMIT_COMPACT_TIME)(_ => 0),
    Metric.ofSpark(CUSTOM_METRIC_CHECKPOINT_TIME)(_.times.snapshotMs),
    Metric.ofSpark(CUSTOM_METRIC_FILESYNC_TIME)(f => f.times.changelogMs + f.times.snapshotMs),
    Metric.ofSpark(CUSTOM_METRIC_BYTES_COPIED)(files(_).bytesCopied),
    Metric.ofSpark(CUSTOM_METRIC_FILES_COPIED)(files(_).filesCopied),
    Metric.ofSpark(CUSTOM_METRIC_FILES_REUSED)(files(_).filesReused),
    Metric.ofSpark(CUSTOM_METRIC_ZIP_FILE_BYTES_UNCOMPRESSED)(
      files(_).zipFileBytesUncompressed.getOrElse(0L)
    ),
    Metric.ofSpark(CUSTOM_METRIC_PINNED_BLOCKS_MEM_USAGE)(_.pinnedBytes),
    Metric.ofSpark(CUSTOM_METRIC_NUM_INTERNAL_COL_FAMILIES_KEYS)(_.state.counts.internalKeys),
    Metric.ofSpark(CUSTOM_METRIC_NUM_EXTERNAL_COL_FAMILIES)(families(_, isInternal = false)),
    Metric.ofSpark(CUSTOM_METRIC_NUM_INTERNAL_COL_FAMILIES)(families(_, isInternal = true)),
    histogram(CUSTOM_METRIC_GET_TIME, HistogramType.DB_GET),
    histogram(CUSTOM_METRIC_PUT_TIME, HistogramType.DB_WRITE),
    histogram(CUSTOM_METRIC_TOTAL_COMPACT_TIME, HistogramType.COMPACTION_TIME),
    ticker(CUSTOM_METRIC_BLOCK_CACHE_MISS, TickerType.BLOCK_CACHE_MISS),
    ticker(CUSTOM_METRIC_BLOCK_CACHE_HITS, TickerType.BLOCK_CACHE_HIT),
    ticker(CUSTOM_METRIC_BYTES_READ, TickerType.BYTES_READ),
    ticker(CUSTOM_METRIC_BYTES_WRITTEN, TickerType.BYTES_WRITTEN),
    ticker(CUSTOM_METRIC_ITERATOR_BYTES_READ, TickerType.ITER_BYTES_READ),
    Metric.ofSpark(CUSTOM_METRIC_STALL_TIME)(_.store.count(TickerType.STALL_MICROS) / 1000),
    ticker(CUSTOM_METRIC_COMPACT_READ_BYTES, TickerType.COMPACT_READ_BYTES),
    ticker(CUSTOM_METRIC_COMPACT_WRITTEN_BYTES, TickerType.COMPACT_WRITE_BYTES),
    ticker(CUSTOM_METRIC_FLUSH_WRITTEN_BYTES, TickerType.FLUSH_WRITE_BYTES)
  )

  private val all: Seq[Metric[Facts]] =
    ofLoads.map(_.in[Facts](_.load)) ++ ofCommits ++ ofSpark ++ VersionedMetrics.all

  /** Statemark's own. */
  private[spark] val own: Seq[Metric[Facts]] = all.filter(_.label.isDefined)

  /** Of gauges alone: Spark adds its metrics up. */
  private[spark] val commitRate: GaugeLabel =
    GaugeLabel("commitRate", "commits/s", Some("commit-rate"))
  private[spark] val commitLatencyAvg: GaugeLabel =
    GaugeLabel("commitLatencyMsAvg", Time.unit, Some("commit-latency-avg"))

  /** Labels of the gauges of an operator. */
  val gauges: Seq[GaugeLabel] = own.flatMap(_.label.map(_.asGauge)) ++
    Seq(commitRate, commitLatencyAvg, MetricLabel.CommitLatencyMax.asGauge)

  /** Labels of Statemark's own, that of the one that Spark shows store by store included. */
  val labels: Seq[MetricLabel] = own.flatMap(_.label) :+ MetricLabel.CommitLatencyMax

  /** Metrics that Spark shows for an operator; Spark's are there whether or not they have a row. */
  val custom: Seq[StateStoreCustomMetric] = ALL_CUSTOM_METRICS ++ own.map(_.spark)

  /** Everything that a commit reports, as values: another task may have the store by the time that Spark asks.
    *
    * @param memoryBytes that the store uses, on the heap and off it
    * @param lastUploaded version of the newest snapshot that was uploaded
    * @param figures of the operator, which get the same values
    */
  def of(
      storeId: StateStoreId,
      facts: CommitFacts,
      memoryBytes: Long,
      lastUploaded: Long,
      figures: Option[OperatorFigures]
  ): StateStoreMetrics = {
    val values = all.map(metric => metric -> metric.value(facts))
    figures.foreach(_.committed(values, facts.times.totalMs))
    InstanceMetrics.metrics(
      storeId,
      facts.state.counts.keys,
      memoryBytes,
      values.map { case (metric, value) => metric.spark -> value }.toMap,
      facts.times.totalMs,
      lastUploaded
    )
  }

  private def one(isSo: Boolean): Long = if (isSo) 1 else 0

  private def files(facts: Facts): RocksDBFileManagerMetrics =
    facts.times.snapshot.fold(facts.load.files)(_.files)

  private def families(facts: Facts, isInternal: Boolean): Long =
    facts.state.families.byName.values.count(_.isInternal == isInternal).toLong

  private def ticker(metric: StateStoreCustomMetric, ticker: TickerType): Metric[Facts] =
    Metric.ofSpark(metric)(_.store.count(ticker))

  private def histogram(metric: StateStoreCustomMetric, histogram: HistogramType): Metric[Facts] =
    Metric.ofSpark(metric)(_.store.sum(histogram) / 1000)
}
