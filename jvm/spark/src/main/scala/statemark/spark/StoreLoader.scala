package statemark.spark

import java.io.File
import org.apache.spark.sql.execution.streaming.state._
import scala.collection.mutable
import scala.util.control.NonFatal
import statemark.{ReadRetention, TransactionalStore}
import statemark.common._
import statemark.engine._
import statemark.transaction.{CommitObserver, UncommittedLimit}

/** What all loads of one provider have in common.
  *
  * @param proofs prove versions in checkpoint format v1, where that is needed
  * @param snapshotsThere the snapshots in the checkpoint location now, of either checkpoint format
  */
final case class LoadContext(
    files: RocksDBFileManager,
    conf: RocksDBConf,
    storeConf: StateStoreConf,
    options: EngineOptions,
    identity: StoreIdentity,
    checksums: RowChecksums,
    usesFamilies: Boolean,
    retention: ReadRetention,
    limit: Option[UncommittedLimit],
    homes: Homes,
    changelogFiles: ChangelogFiles,
    proofs: Option[FileProofs],
    snapshotsThere: () => Seq[VersionId],
    observer: CommitObserver,
    clock: Clock,
    reportSnapshot: Long => Unit
)

/** One load of a store: from a home, or from the checkpoint location: newest usable snapshot, then
  * changelogs.
  *
  * ''Thread:'' the owner of the store.
  *
  * @param verifies whether all bytes of a snapshot are read before it is used, which finds damage that opening
  *   it does not
  */
final class StoreLoader(context: LoadContext, verifies: Boolean) extends AutoCloseable {
  import context._

  private val changelogs = new OpenChangelogs(changelogFiles)
  private val lineages = new CheckpointLineage(files, changelogs)
  private val search = new SnapshotSearch(
    context.snapshotsThere,
    lineages,
    storeConf,
    identity.toString
  )

  /** An empty store at `version`. */
  def empty(version: Long): Generation = {
    // Makes the store's directory in the checkpoint location.
    files.existsSnapshotFile(version): Unit
    create(homes.create(), StoreState.empty(version, noRows), Map.empty)
  }

  private val adoption = new Adoption(context, path, replay)

  /** The store at exactly `at` (I5), from a home that was left or from the checkpoint location.
    * @param held homes of the store that the caller holds; they are this method's from now on
    * @return homes that are held and not used as well
    */
  def load(at: VersionId, held: Seq[Home]): (Generation, LoadFigures, Seq[Home]) = {
    val (found, ms) = Clock.timedMs(clock)(adoption.adopt(at, held))
    try {
      val (generation, figures) = found.adopted.fold(restore(at))(adopted)
      (
        generation,
        figures.copy(distrusted = found.distrusted, totalMs = math.max(figures.totalMs, ms)),
        found.rest
      )
    } catch {
      case e: Throwable =>
        found.adopted.foreach(_._1.close())
        found.rest.foreach(_.release())
        throw e
    }
  }

  /** Silence about the snapshot that it builds on would make the coordinator force one. */
  private def adopted(found: (Generation, LoadFigures)): (Generation, LoadFigures) = {
    val state = found._1.store.base
    reportSnapshot(state.lastSnapshot.version)
    files.setMaxSeenVersion(state.version)
    found
  }

  /** The store at exactly `at` from the checkpoint location.
    * @throws SparkException where snapshot or changelogs are missing or damaged
    */
  def restore(at: VersionId): (Generation, LoadFigures) = {
    val (loaded, ms) = Clock.timedMs(clock) {
      if (at.version == 0) {
        reportSnapshot(0)
        (
          create(homes.create(), StoreState.empty(0, noRows), Map.empty),
          LoadFigures(LoadSource.New)
        )
      } else fromCheckpoint(at)
    }
    files.setMaxSeenVersion(at.version)
    (loaded._1, loaded._2.copy(totalMs = ms))
  }

  /** The store at `end`, from the snapshot at `start` and no other. */
  def restoreFrom(start: VersionId, end: VersionId): (Generation, LoadFigures) = {
    val (generation, snapshotMs) = Clock.timedMs(clock)(importSnapshot(start, isWanted = false))
    replayed(generation, snapshotMs, isRepaired = false) {
      if (start.version == end.version) Vector.empty
      else if (end.checkpointId.isDefined) lineages.full(start.version + 1, end)
      else versions(start.version + 1, end.version)
    }
  }

  /** Brings a store that stands at an earlier version to `at` by the changelogs in between.
    * @throws DistrustException as [[path]]
    */
  def catchUp(store: TransactionalStore, at: VersionId): LoadFigures =
    replay(store, path(store.base.at, at), LoadFigures(LoadSource.Memory))

  /** The versions whose changelogs lead from `base` to `at`, ascending. Within a run, or for a base whose own
    * file is proven, that is all it takes in format v1; the lineage of ids tells in format v2.
    *
    * @throws DistrustException where the checkpoint does not prove that history (I6), or has so many
    *   changelogs in between that a snapshot is nearer
    * @throws InterruptedException where it was interrupted, which proves nothing
    */
  def path(base: VersionId, at: VersionId): Vector[VersionId] = Interrupts.apart {
    def distrust(reason: Distrust, why: String) =
      throw new DistrustException(
        reason,
        s"it is at ${StoreLoader.show(base)} and ${StoreLoader.show(at)} is asked for: $why"
      )
    val gap = at.version - base.version
    if (gap < 0) distrust(Distrust.Ahead, "it cannot go back")
    if (gap > math.max(conf.minDeltasForSnapshot, 1))
      distrust(Distrust.TooOld, s"a snapshot is nearer than $gap changelogs")
    val found = (base.checkpointId, at.checkpointId) match {
      case (None, None) => versions(base.version + 1, at.version)
      case (Some(_), Some(_)) =>
        lineageFrom(base, at).getOrElse(
          distrust(Distrust.OtherHistory, "the lineage in the checkpoint does not name its version")
        )
      case _ => distrust(Distrust.OtherHistory, "the checkpoint has changed its format")
    }
    if (hasNewFamilies(found)) distrust(Distrust.TooOld, "column families have changed since")
    found
  }

  /** A change of column families is in a snapshot only, which every such version has. */
  private def hasNewFamilies(deltas: Vector[VersionId]): Boolean =
    usesFamilies && deltas.exists(d => files.existsSnapshotFile(d.version, d.checkpointId))

  private def lineageFrom(base: VersionId, at: VersionId): Option[Vector[VersionId]] =
    if (base == at) Some(Vector.empty)
    else if (base.version == at.version) None
    else
      try Some(lineages.full(base.version, at)).filter(_.head == base).map(_.tail)
      catch { case NonFatal(_) => None }

  private def fromCheckpoint(at: VersionId): (Generation, LoadFigures) = {
    val passedOver = mutable.ArrayBuffer.empty[Throwable]
    try
      fromNewest(at) { snapshot =>
        try importSnapshot(snapshot, isWanted = snapshot == at)
        catch {
          case NonFatal(e) =>
            passedOver += unreadable(snapshot, e)
            throw e
        }
      }
    catch {
      // What is missing then is older than what is damaged.
      case e: Throwable =>
        passedOver.foreach(e.addSuppressed)
        throw e
    }
  }

  private def unreadable(snapshot: VersionId, cause: Throwable) = new InvalidInputException(
    s"The snapshot ${StoreFile.snapshotName(snapshot)} cannot be loaded: $cause. Bring it, and the SST files " +
      "that it names, back from a copy; `statemark verify` shows what is damaged."
  )

  private def fromNewest(at: VersionId)(load: VersionId => Generation)
      : (Generation, LoadFigures) = {
    var imported: Option[Generation] = None
    val ((lineage, repaired), snapshotMs) = Clock.timedMs(clock) {
      search.load(at) { (snapshot, lineage) =>
        lineage.foreach(checkCovers(_, snapshot.version, at))
        changelogs.open(RestoreRules.after(snapshot.version, lineage, at))
        imported = Some(load(snapshot))
      }
    }
    val generation = imported.getOrElse(
      throw new IllegalStateException(s"No snapshot was loaded for $at, and none failed.")
    )
    replayed(generation, snapshotMs, repaired) {
      RestoreRules.after(generation.store.base.version, lineage, at)
    }
  }

  /** A generation fresh from its snapshot, with `deltas` replayed; closed where that fails. */
  private def replayed(generation: Generation, snapshotMs: Long, isRepaired: Boolean)(
      deltas: => Vector[VersionId]
  ): (Generation, LoadFigures) =
    try {
      val figures = LoadFigures(
        LoadSource.Checkpoint,
        isRepaired = isRepaired,
        snapshotMs = snapshotMs,
        files = files.latestLoadCheckpointMetrics
      )
      (generation, replay(generation.store, deltas, figures))
    } catch {
      case e: Throwable =>
        generation.discard()
        throw e
    }

  /** A snapshot is of no use where the lineage does not name every version after it. */
  private def checkCovers(lineage: Vector[VersionId], snapshot: Long, at: VersionId): Unit = {
    val missing = RestoreRules.uncovered(lineage, snapshot, at)
    if (missing.nonEmpty) {
      throw new IllegalStateException(
        s"The snapshot of version $snapshot cannot lead to version ${at.version}: the lineage does " +
          s"not name versions ${missing.mkString(", ")}."
      )
    }
  }

  /** @param isWanted whether the version of the snapshot is that which is asked for
    * @throws InterruptedException where it was interrupted, which says nothing about the snapshot
    */
  private def importSnapshot(at: VersionId, isWanted: Boolean): Generation = Interrupts.apart {
    val home = homes.create()
    val target = home.base
    try {
      // Before the snapshot is read: what is written in its place later is another file.
      val seen = proofs.filter(_ => isWanted && at.version > 0).flatMap(_.found(at.version))
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
      val generation = create(home, state.copy(fingerprint = seen), uploaded)
      if (verifies) verify(generation, at)
      generation
    } catch {
      case e: Throwable =>
        home.delete(): Unit
        throw e
    }
  }

  private def verify(generation: Generation, at: VersionId): Unit =
    try generation.store.verify()
    catch {
      case e: StoreUnusableException =>
        generation.store.close()
        throw new InvalidInputException(
          s"The snapshot of ${StoreLoader.show(at)} is damaged in the checkpoint: ${e.getMessage} Bring its SST " +
            "files back from a copy, or restart the query from a batch that needs another snapshot; " +
            "`statemark verify` shows which files are damaged, and which batches can be restored.",
          Some(e)
        )
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
    val lineage = at.checkpointId.map(_ => at).toVector
    StoreState(at, counts, families, lastSnapshot = at, lineage, position = None)
  }

  private def create(
      home: Home,
      state: StoreState,
      uploaded: Map[String, UploadedFile]
  ): Generation = {
    RocksDBLoader.loadLibrary()
    val store =
      TransactionalStore.create(
        home.base,
        options,
        identity,
        state,
        usesFamilies,
        observer,
        retention,
        limit
      )
    val generation = Generation(store, home, new UploadedFiles(uploaded))
    generation.noteUploads()
    generation
  }

  private def replay(
      store: TransactionalStore,
      deltas: Vector[VersionId],
      figures: LoadFigures
  ): LoadFigures = {
    var bytes = 0L
    val (_, ms) = Clock.timedMs(clock)(deltas.tails.filter(_.nonEmpty).foreach { rest =>
      changelogs.open(rest)
      store.replay(rest.head.checkpointId) { transaction =>
        val (read, fingerprint) = changelogs.read(rest.head) {
          ChangelogReplay.stage(_, transaction, checksums, usesFamilies)
        }
        bytes += read
        fingerprint
      }
    })
    figures.copy(
      replayed = deltas.length,
      replayedBytes = bytes,
      replayMs = if (deltas.isEmpty) 0 else math.max(ms, 1)
    )
  }

  private def versions(from: Long, to: Long): Vector[VersionId] =
    (from to to).map(VersionId(_, None)).toVector

  override def close(): Unit = changelogs.close()

  private def noRows: RowCounts =
    if (conf.trackTotalNumberOfRows) RowCounts.zero else RowCounts.untracked
}

private object StoreLoader {
  private def show(at: VersionId): String =
    s"version ${at.version}${at.checkpointId.fold("")(id => s" ($id)")}"
}
