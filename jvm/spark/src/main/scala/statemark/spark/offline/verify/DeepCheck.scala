package statemark.spark.offline.verify

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType
import scala.collection.mutable
import scala.util.Using
import statemark.changelog.ChangelogWriter
import statemark.common.Clock
import statemark.engine.VersionId
import statemark.spark.checkpoint.{StoreFile, StoreLocation}
import statemark.spark.conf.{ProviderClass, StoreConf}
import statemark.spark.process.TaskInfo
import statemark.spark.provider.ProviderContext
import statemark.transaction.{CommitObserver, RowScan}

/** Loads a store as its provider does, from every snapshot up to the next: the rows must be those of that
  * next snapshot. So each changelog is replayed once.
  */
final class DeepCheck(
    task: StoreTask,
    settings: VerifySettings,
    hadoopConf: Configuration,
    report: Problem => Unit
) {
  import DeepCheck._

  private val reading = RowReading(settings.mergeDelimiter, settings.hasRowChecksums)

  /** @param chain of whole changelogs
    * @param rows of every whole snapshot
    */
  def run(
      chain: StoreChain,
      rows: Map[VersionId, RowFacts],
      metadata: Map[VersionId, RocksDBCheckpointMetadata]
  ): Unit = {
    val usesFamilies = metadata.values.exists(_.columnFamilyMapping.exists(_.nonEmpty))
    val context = open(usesFamilies)
    // What a snapshot is contradicted by: the start of the way to it that gives other rows.
    val disputed = mutable.Map.empty[VersionId, VersionId]
    def loaded(start: VersionId, end: VersionId) =
      if (!usesFamilies || areFamiliesKnown(metadata.get(start), metadata.get(end)))
        Some(load(context, start, end))
      else None
    /* A way from a disputed snapshot says nothing against the next one, if the way that goes on from before the
     * disputed one gives its rows: two that agree prove them. */
    def isProven(start: VersionId, end: VersionId): Boolean = disputed.get(start).exists { earlier =>
      loaded(earlier, end).exists(_.toOption == rows.get(end)) || isProven(earlier, end)
    }
    try
      for ((start, end) <- spans(chain, rows.keySet); found <- loaded(start, end)) found match {
        case Left(detail) =>
          val first =
            waysTo(chain, start, end).find(loaded(start, _).exists(_.isLeft)).getOrElse(end)
          report(Problem(StoreFile.changelogName(first), FindingKind.Damaged, detail))
        case Right(others) =>
          rows.get(end).filter(there => there != others && !isProven(start, end)).foreach { there =>
            disputed(end) = start
            report(twoWays(chain, start, end, there, others))
          }
      }
    finally context.close()
  }

  private def twoWays(
      chain: StoreChain,
      start: VersionId,
      end: VersionId,
      there: RowFacts,
      others: RowFacts
  ): Problem = {
    val changelogs = waysTo(chain, start, end)
    Problem(
      StoreFile.snapshotName(end),
      FindingKind.WrongRows,
      s"it holds ${there.keys + there.internalKeys} rows, and ${nameOf(start)} with " +
        s"${changelogs.map(StoreFile.changelogName).mkString(", ")} gives " +
        s"${others.keys + others.internalKeys} or other ones: one of the two is wrong",
      Effect.DoubtsRows(changelogs.toSet)
    )
  }

  /** From each version that a snapshot gives, or the empty store, to the next one, and to the last committed version. A
    * file above that may be of a history that was left: it says nothing of committed versions.
    */
  private def spans(chain: StoreChain, whole: Set[VersionId]): Seq[(VersionId, VersionId)] = {
    val last = task.committed.lastOption
    val newest = last.toSeq.flatMap { c =>
      c.ids.fold(Seq(VersionId(c.version, None)))(_.toSeq.map(id => VersionId(c.version, Some(id))))
    }.filter(chain.changelogs)
    def isAbove(snapshot: VersionId) = last.exists(_.version < snapshot.version)
    val ends = (whole.toSeq.filter(chain.changelogs).filterNot(isAbove) ++ newest).distinct
    ends.sortBy(_.version).flatMap { end =>
      val earlier = chain.before(end).flatMap(chain.copy(snapshots = whole).path(_).toOption)
      earlier.map(path => (path.snapshot.getOrElse(VersionId(0, None)), end))
    }.filterNot { case (start, end) =>
      // What headers say is reported by itself, and no load goes over changelogs of another history.
      waysTo(chain, start, end).exists(chain.lineageProblem(_).isDefined) ||
      chain.overtaken(start.version, end).isDefined
    }
  }

  /** The versions after `start` up to `end`. */
  private def waysTo(chain: StoreChain, start: VersionId, end: VersionId): Vector[VersionId] =
    Vector.unfold(end) { here =>
      Option.when(here.version > start.version) {
        here -> chain.before(here).getOrElse(VersionId(here.version - 1, None))
      }
    }.reverse

  private def nameOf(start: VersionId): String =
    if (start.version == 0) "the empty store" else StoreFile.snapshotName(start)

  /** Where a snapshot brings other column families, the changelogs before it do not know them. */
  private def areFamiliesKnown(
      start: Option[RocksDBCheckpointMetadata],
      end: Option[RocksDBCheckpointMetadata]
  ): Boolean =
    start.exists(s => end.forall(_.columnFamilyMapping == s.columnFamilyMapping))

  private def load(
      context: ProviderContext,
      start: VersionId,
      end: VersionId
  ): Either[String, RowFacts] =
    try {
      val (generation, _) = Using.resource(context.newLoad())(_.restoreFrom(start, end))
      try {
        val internal = generation.store.base.families.byName.values.filter(_.isInternal).map(_.id)
        val transaction = generation.store.newTransaction(() => ChangelogWriter.None)
        try Right(reading.read(rowsOf(transaction.range(None, None)), internal.toSet))
        finally transaction.rollback()
      } finally generation.close()
    } catch { case StoreFiles.OfFile(e) => Left(s"it cannot be loaded: ${StoreFiles.reason(e)}") }

  private def rowsOf(scan: RowScan): Iterator[(Array[Byte], Array[Byte])] =
    Iterator.continually(scan).takeWhile(_.next()).map(s => (s.key, s.value))

  private def open(usesFamilies: Boolean): ProviderContext = {
    val conf = new SQLConf()
    settings.confs.foreach { case (key, value) => conf.setConfString(key, value) }
    // No query runs here that could be told.
    conf.setConfString(ReportKey, "false")
    val none = new StructType()
    new ProviderContext(
      new StoreLocation(
        StateStoreId(stateRoot, task.operator, task.partition, task.name),
        ProviderClass.newRun(hadoopConf)
      ),
      new StoreConf(new StateStoreConf(conf), usesFamilies),
      none,
      none,
      None,
      CommitObserver.none,
      Clock.system,
      isOnCluster = false,
      TaskInfo.none,
      liveRead = None
    )
  }

  private def stateRoot: String =
    task.directory.stripSuffix(task.relative.stripPrefix("state"))
}

private object DeepCheck {
  private val ReportKey =
    "spark.sql.streaming.stateStore.coordinatorReportSnapshotUploadLag"
}
