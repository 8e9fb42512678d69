package statemark.spark

import java.io.File
import org.apache.spark.sql.execution.streaming.state._
import statemark.TransactionalStore
import statemark.common.Clock
import statemark.engine._
import statemark.transaction.CommitObserver

/** One incarnation of a store on local disk. */
final case class Generation(store: TransactionalStore, directory: File, uploaded: UploadedFiles) {
  def close(): Unit = {
    store.close()
    LocalDirectory.deleteTree(directory)
  }
}

/** How a load was served.
  *
  * @param replayed number of changelogs replayed
  * @param isFromCheckpoint a snapshot or a changelog was read
  * @param isRepaired a damaged snapshot was passed over
  */
final case class LoadFigures(
    replayed: Int = 0,
    isFromCheckpoint: Boolean = false,
    isRepaired: Boolean = false,
    snapshotMs: Long = 0,
    replayMs: Long = 0,
    totalMs: Long = 0,
    files: RocksDBFileManagerMetrics = RocksDBFileManagerMetrics.EMPTY_METRICS
)

/** What all loads of one provider have in common. */
final case class LoadContext(
    files: RocksDBFileManager,
    conf: RocksDBConf,
    storeConf: StateStoreConf,
    options: EngineOptions,
    identity: StoreIdentity,
    checksums: RowChecksums,
    usesFamilies: Boolean,
    directory: LocalDirectory,
    observer: CommitObserver,
    clock: Clock,
    reportSnapshot: Long => Unit
)

/** Brings a store to a version from the checkpoint location: newest usable snapshot, then changelogs.
  *
  * ''Thread:'' the owner of the store.
  */
final class StoreLoader(context: LoadContext) {
  import context._

  private val lineages = new CheckpointLineage(files)
  private val search = new SnapshotSearch(files, lineages, storeConf, identity.toString)

  /** An empty store at `version`. */
  def empty(version: Long): Generation = {
    files.existsSnapshotFile(
      version
    ): Unit // makes the store's directory in the checkpoint location
    create(directory.fresh("store"), StoreState.empty(version, noRows), Map.empty)
  }

  /** The store at exactly `at` (I5).
    * @throws SparkException where snapshot or changelogs are missing or damaged
    */
  def restore(at: VersionId): (Generation, LoadFigures) = {
    val (loaded, ms) = Clock.timedMs(clock) {
      if (at.version == 0) {
        reportSnapshot(0)
        (create(directory.fresh("store"), StoreState.empty(0, noRows), Map.empty), LoadFigures())
      } else fromCheckpoint(at)
    }
    files.setMaxSeenVersion(at.version)
    (loaded._1, loaded._2.copy(totalMs = ms))
  }

  /** The store at `end`, from the snapshot at `start` and no other. */
  def restoreFrom(start: VersionId, end: VersionId): (Generation, LoadFigures) = {
    val (generation, snapshotMs) = Clock.timedMs(clock)(importSnapshot(start))
    replayed(generation, snapshotMs, isRepaired = false) {
      if (start.version == end.version) Vector.empty
      else if (end.checkpointId.isDefined) lineages.full(start.version + 1, end)
      else versions(start.version + 1, end.version)
    }
  }

  /** Brings a store that stands at an earlier version of the same run's history to `at` by replaying
    * the changelogs in between; None where the checkpoint does not prove that history (I6) or has
    * too many of them: restore then.
    */
  def catchUp(store: TransactionalStore, at: VersionId): Option[LoadFigures] = {
    val base = store.base.at
    val gap = at.version - base.version
    val deltas =
      if (gap <= 0 || gap > math.max(conf.minDeltasForSnapshot, 1)) None
      else if (base.checkpointId.isEmpty && at.checkpointId.isEmpty)
        Some(versions(base.version + 1, at.version))
      else if (base.checkpointId.isDefined && at.checkpointId.isDefined) continuation(base, at)
      else None
    deltas.filterNot(hasNewFamilies).map { found =>
      val figures = LoadFigures(isFromCheckpoint = true)
      replay(store, found, figures)
    }
  }

  /** A change of column families is in a snapshot only, which every such version has. */
  private def hasNewFamilies(deltas: Vector[VersionId]): Boolean =
    usesFamilies && deltas.exists(d => files.existsSnapshotFile(d.version, d.checkpointId))

  private def continuation(base: VersionId, at: VersionId): Option[Vector[VersionId]] = {
    val lineage = lineages.header(at)
    Option.when(lineage.contains(base))(lineage.filter(_.version > base.version) :+ at)
      .filter(_.map(_.version) == (base.version + 1 to at.version).toVector)
  }

  private def fromCheckpoint(at: VersionId): (Generation, LoadFigures) = {
    var imported: Option[Generation] = None
    val ((lineage, repaired), snapshotMs) = Clock.timedMs(clock) {
      search.load(at) { (snapshot, lineage) =>
        lineage.foreach(checkCovers(_, snapshot.version, at))
        imported = Some(importSnapshot(snapshot))
      }
    }
    val generation = imported.getOrElse(
      throw new IllegalStateException(s"No snapshot was loaded for $at, and none failed.")
    )
    replayed(generation, snapshotMs, repaired) {
      val from = generation.store.base.version
      lineage.fold(versions(from + 1, at.version))(_.filter(v =>
        v.version > from && v.version <= at.version
      ))
    }
  }

  /** A generation fresh from its snapshot, with `deltas` replayed; closed where that fails. */
  private def replayed(generation: Generation, snapshotMs: Long, isRepaired: Boolean)(
      deltas: => Vector[VersionId]
  ): (Generation, LoadFigures) =
    try {
      val figures = LoadFigures(
        isFromCheckpoint = true,
        isRepaired = isRepaired,
        snapshotMs = snapshotMs,
        files = files.latestLoadCheckpointMetrics
      )
      (generation, replay(generation.store, deltas, figures))
    } catch {
      case e: Throwable =>
        generation.close()
        throw e
    }

  /** A snapshot is of no use where the lineage does not name every version after it. */
  private def checkCovers(lineage: Vector[VersionId], snapshot: Long, at: VersionId): Unit = {
    val missing = (snapshot + 1 to at.version).toSet -- lineage.map(_.version)
    if (missing.nonEmpty) {
      throw new IllegalStateException(
        s"The snapshot of version $snapshot cannot lead to version ${at.version}: the lineage does " +
          s"not name versions ${missing.toSeq.sorted.mkString(", ")}."
      )
    }
  }

  private def importSnapshot(at: VersionId): Generation = {
    val target = directory.fresh("store")
    try {
      val (state, uploaded) =
        if (at.version == 0) (StoreState.empty(0, noRows), Map.empty[String, UploadedFile])
        else {
          java.nio.file.Files.createDirectories(target.toPath)
          val metadata =
            files.loadCheckpointFromDfs(at.version, target, new RocksDBFileMapping, at.checkpointId)
          val present =
            metadata.immutableFiles.map(f => f.localFileName -> UploadedFile(at.version, f))
          (stateOf(at, metadata, target), present.toMap)
        }
      reportSnapshot(at.version)
      create(target, state, uploaded)
    } catch {
      case e: Throwable =>
        LocalDirectory.deleteTree(target)
        throw e
    }
  }

  private def stateOf(
      at: VersionId,
      metadata: RocksDBCheckpointMetadata,
      image: File
  ): StoreState = {
    val types = metadata.columnFamilyTypeMap.getOrElse(Map.empty)
    val byName = metadata.columnFamilyMapping.getOrElse(Map.empty).map { case (name, id) =>
      name -> ColumnFamily(id, types.getOrElse(name, false))
    }
    val families = ColumnFamilies(byName.toMap, metadata.maxColumnFamilyId.getOrElse(0))
    val counts =
      if (!conf.trackTotalNumberOfRows) RowCounts.untracked
      else if (metadata.numKeys >= 0) RowCounts(metadata.numKeys, metadata.numInternalKeys)
      else TransactionalStore.count(image, options, families, usesFamilies)
    StoreState(at, counts, families, lastSnapshot = at, at.checkpointId.map(_ => at).toVector)
  }

  private def create(
      target: File,
      state: StoreState,
      uploaded: Map[String, UploadedFile]
  ): Generation = {
    RocksDBLoader.loadLibrary()
    val store =
      TransactionalStore.create(target, options, identity, state, usesFamilies, observer)
    Generation(store, target, new UploadedFiles(uploaded))
  }

  private def replay(
      store: TransactionalStore,
      deltas: Vector[VersionId],
      figures: LoadFigures
  ): LoadFigures = {
    val (_, ms) = Clock.timedMs(clock)(deltas.foreach { delta =>
      val reader = files.getChangelogReader(delta.version, delta.checkpointId)
      store.replay(delta.checkpointId)(ChangelogReplay.stage(reader, _, checksums, usesFamilies))
    })
    figures.copy(replayed = deltas.length, replayMs = if (deltas.isEmpty) 0 else math.max(ms, 1))
  }

  private def versions(from: Long, to: Long): Vector[VersionId] =
    (from to to).map(VersionId(_, None)).toVector

  private def noRows: RowCounts =
    if (conf.trackTotalNumberOfRows) RowCounts.zero else RowCounts.untracked
}
