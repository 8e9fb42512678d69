package statemark.spark.load

import java.io.File
import java.nio.file.Files
import org.apache.spark.sql.execution.streaming.state._
import scala.annotation.tailrec
import scala.collection.mutable
import scala.util.control.NonFatal
import statemark.common._
import statemark.engine._
import statemark.spark.changelog.{ChangelogPrefetch, CheckpointLineage}
import statemark.spark.checkpoint.{
  FileDamage,
  FileWriters,
  ListedVersions,
  RestoreRules,
  SnapshotSignature,
  StoreFile
}
import statemark.spark.conf.StoreConf
import statemark.spark.errors.CheckpointDamagedException
import statemark.spark.local.{
  BaseStores,
  LoadSource,
  LoadStats,
  LoadedStore,
  StoreDirectories,
  StoreDirectory,
  UploadedFile,
  UploadedFiles
}
import statemark.spark.rows.RowChecksums
import statemark.spark.snapshot.{SnapshotSearch, StoreCheckpoint}
import statemark.transaction.CommitObserver
import statemark.TransactionalStore

/** One load of a store: from a home, or from the checkpoint location: newest usable snapshot, then
  * changelogs.
  *
  * ''Thread:'' the owner of the store.
  *
  * @param verifies whether all bytes of a snapshot are read before it is used, which finds damage that opening
  *   it does not
  */
final class StoreLoader(
    conf: StoreConf,
    checkpoint: StoreCheckpoint,
    homes: StoreDirectories,
    bases: BaseStores,
    checksums: RowChecksums,
    observer: CommitObserver,
    clock: Clock,
    verifies: Boolean
) extends AutoCloseable {
  import checkpoint.files

  private val changelogs = new ChangelogPrefetch(checkpoint.changelogs)
  private val lineages = new CheckpointLineage(files, changelogs)
  private val path = new ChangelogPath(conf, checkpoint, changelogs, lineages, checksums, clock)
  private val search = new SnapshotSearch(
    () => {
      listing = checkpoint.list()
      writers = Some(checkpoint.writersOf(listing))
      listing.snapshots
    },
    lineages,
    conf.spark,
    bases.identity.toString
  )

  private var listing = ListedVersions.none

  // Of files in checkpoint format v1, where those of one version may be of two histories.
  private var writers = Option.empty[FileWriters]

  /** Returns an empty store at `version`. */
  def empty(version: Long): LoadedStore = {
    // Makes the store's directory in the checkpoint location.
    files.existsSnapshotFile(version): Unit
    createEmpty(version)
  }

  private val adoption = new LocalReuse(homes, bases, checkpoint, path, observer, clock)

  /** Returns the store at exactly `at` (I5), from a home that was left or from the checkpoint location.
    * @param held homes of the store that the caller holds; they are this method's from now on
    * @return homes that are held and not used as well
    */
  def load(
      at: VersionId,
      held: Seq[StoreDirectory]
  ): (LoadedStore, LoadStats, Seq[StoreDirectory]) = {
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
  private def adopted(found: (LoadedStore, LoadStats)): (LoadedStore, LoadStats) = {
    val state = found._1.store.base
    checkpoint.reportSnapshot(state.lastSnapshot.version)
    files.setMaxSeenVersion(state.version)
    found
  }

  /** Returns the store at exactly `at` from the checkpoint location.
    * @throws SparkException where snapshot or changelogs are missing or damaged
    */
  def restore(at: VersionId): (LoadedStore, LoadStats) = {
    val (loaded, ms) = Clock.timedMs(clock) {
      if (at.version == 0) {
        checkpoint.reportSnapshot(0)
        (
          createEmpty(0),
          LoadStats(LoadSource.New)
        )
      } else fromCheckpoint(at)
    }
    files.setMaxSeenVersion(at.version)
    (loaded._1, loaded._2.copy(totalMs = ms))
  }

  /** Returns the store at `end`, from the snapshot at `start` and no other. */
  def restoreFrom(start: VersionId, end: VersionId): (LoadedStore, LoadStats) = {
    writers = Some(checkpoint.writersOf(checkpoint.list()))
    val (generation, snapshotMs) = Clock.timedMs(clock) {
      try importSnapshot(start, end)
      catch { case e: StaleSnapshotException => throw unreadable(start, e, Some(e)) }
    }
    replayed(generation, snapshotMs, isRepaired = false) {
      if (start.version == end.version) Vector.empty
      else if (end.checkpointId.isDefined) lineages.full(start.version + 1, end)
      else ChangelogPath.versions(start.version + 1, end.version)
    }
  }

  /** Brings a store that stands at an earlier version to `at` by the changelogs in between.
    * @throws LocalRejectedException as `ChangelogPath.find`
    */
  def catchUp(store: TransactionalStore, at: VersionId): LoadStats =
    path.replay(store, path.find(store.base.at, at), LoadStats(LoadSource.Memory))

  private def fromCheckpoint(at: VersionId): (LoadedStore, LoadStats) = {
    val passedOver = mutable.ArrayBuffer.empty[Throwable]
    var unwritable = Option.empty[DiskUnwritableException]
    try
      fromNewest(at) { snapshot =>
        // No older snapshot is tried: a disk without room is no reason to pass one over.
        unwritable.foreach(throw _)
        try importSnapshot(snapshot, at)
        catch {
          case e: DiskUnwritableException =>
            unwritable = Some(e)
            throw e
          case NonFatal(e) if FileDamage.isCause(e) =>
            val damaged = unreadable(snapshot, e, Some(e))
            passedOver += damaged
            throw damaged
          case NonFatal(e) =>
            passedOver += unreadable(snapshot, e, None)
            throw e
        }
      }
    catch {
      // The file that is missing then is older than the damaged ones, which are named as well.
      case e: Throwable =>
        val failure = unwritable.getOrElse(e)
        passedOver.filter(_ ne failure).foreach(failure.addSuppressed)
        throw failure
    }
  }

  private def unreadable(snapshot: VersionId, why: Throwable, cause: Option[Throwable]) =
    new CheckpointDamagedException(
      s"The snapshot ${StoreFile.snapshotName(snapshot)} cannot be loaded: ${reasonOf(why)}.",
      "Bring it, and the SST files that it names, back from a copy; `statemark verify` shows what is damaged.",
      cause
    )

  private def reasonOf(why: Throwable): String = why match {
    case stale: StaleSnapshotException => stale.getMessage
    case other => other.toString
  }

  private def fromNewest(at: VersionId)(load: VersionId => LoadedStore)
      : (LoadedStore, LoadStats) = {
    var imported: Option[LoadedStore] = None
    val stale = mutable.Set.empty[VersionId]
    val ((lineage, repaired), snapshotMs) = Clock.timedMs(clock) {
      search.load(at) { (snapshot, lineage) =>
        @tailrec def from(start: VersionId): LoadedStore = {
          lineage.foreach(checkCovers(_, start.version, at))
          changelogs.open(RestoreRules.after(start.version, lineage, at))
          val loaded =
            try Right(load(start))
            catch { case e: StaleSnapshotException => Left(e) }
          loaded match {
            case Right(store) => store
            // A snapshot of another history is none; only the first is not one of a repair.
            case Left(e) =>
              val eligible = RestoreRules.eligible(listing.snapshots, at, lineage)
              val isFirst = eligible.takeWhile(_ != start).forall(stale)
              if (!isFirst) throw unreadable(start, e, Some(e))
              stale += start
              from(eligible.filter(_.version < start.version).head)
          }
        }
        imported = Some(from(snapshot))
      }
    }
    val generation = imported.getOrElse(
      throw new IllegalStateException(s"No snapshot was loaded for $at, and none failed.")
    )
    replayed(generation, snapshotMs, repaired) {
      RestoreRules.after(generation.store.base.version, lineage, at)
    }
  }

  /** Returns a generation fresh from its snapshot, with `deltas` replayed; closed where that fails. */
  private def replayed(generation: LoadedStore, snapshotMs: Long, isRepaired: Boolean)(
      deltas: => Vector[VersionId]
  ): (LoadedStore, LoadStats) =
    try {
      val figures = LoadStats(
        LoadSource.Checkpoint,
        isRepaired = isRepaired,
        snapshotMs = snapshotMs,
        files = files.latestLoadCheckpointMetrics
      )
      (generation, path.replay(generation.store, deltas, figures))
    } catch {
      case e: Throwable =>
        generation.discard()
        throw e
    }

  /** Checks that the lineage names every version after the snapshot, which is of no use otherwise. */
  private def checkCovers(lineage: Vector[VersionId], snapshot: Long, at: VersionId): Unit = {
    val missing = RestoreRules.uncovered(lineage, snapshot, at)
    if (missing.nonEmpty) {
      throw new CheckpointDamagedException(
        s"The snapshot of version $snapshot cannot lead to version ${at.version}: the lineage does " +
          s"not name versions ${missing.mkString(", ")}, whose files are missing.",
        "Bring their changelogs, or a later snapshot, back from a copy; `statemark verify` shows what is missing, and " +
          "which batches can be restored.",
        None
      )
    }
  }

  /** @param wanted the version that the task asks for
    * @throws InterruptedException where it was interrupted, which says nothing about the snapshot
    * @throws StaleSnapshotException where it is of a history that is gone
    */
  private def importSnapshot(at: VersionId, wanted: VersionId): LoadedStore = Interrupts.apart {
    val home = homes.create()
    val target = home.base
    // The version says which format its files have: a session of the other one may read it.
    val writersOfV1 = writers.filter(_ => wanted.checkpointId.isEmpty)
    try {
      // Before the snapshot is read: what is written in its place later is another file.
      val seen =
        checkpoint.proofsOfAll.filter(_ => at == wanted && at.version > 0)
          .flatMap(_.found(at.version))
      val (state, uploaded) =
        if (at.version == 0) (bases.empty(0), Map.empty[String, UploadedFile])
        else {
          DiskWrites.to(Disk.Local, target.getPath)(Files.createDirectories(target.toPath)): Unit
          val metadata = DiskWrites.to(Disk.Local, target.getPath) {
            files.loadCheckpointFromDfs(at.version, target, new RocksDBFileMapping, at.checkpointId)
          }
          writersOfV1.foreach(_.note(at.version, SnapshotSignature.take(target)))
          val present =
            metadata.immutableFiles.map(f => f.localFileName -> UploadedFile(at.version, f))
          (stateOf(at, metadata, target), present.toMap)
        }
      writersOfV1.foreach(checkHistory(at.version, wanted.version, _))
      checkpoint.reportSnapshot(at.version)
      // The rows are those of the snapshot: a changelog of another history beside it does not prove them.
      val proof = seen.filterNot(_ => writersOfV1.exists(RestoreRules.isOvertaken(at.version, _)))
      val generation = create(home, state.copy(fingerprint = proof), uploaded)
      if (verifies) verify(generation, at)
      generation
    } catch {
      case e: Throwable =>
        home.delete(): Unit
        throw e
    }
  }

  /** Checks that a snapshot, and the changelogs after it up to `wanted`, are of one history. */
  private def checkHistory(snapshot: Long, wanted: Long, writers: FileWriters): Unit = {
    if (RestoreRules.isStale(snapshot, writers)) throw new StaleSnapshotException(snapshot)
    RestoreRules.overtaken(snapshot, wanted, writers).foreach { version =>
      throw new CheckpointDamagedException(
        s"The changelog $version.changelog does not lead from version ${version - 1} to $version: it is of a history " +
          "that was rolled back, after which Spark's provider wrote these versions as snapshots.",
        s"Bring $version.zip, and the SST files that it names, back from a copy, or restart the query from a batch " +
          "before it; `statemark verify` shows which batches can be restored.",
        None
      )
    }
    if (snapshot > 0)
      checkpoint.changelogs.noteSnapshot(snapshot, writers.snapshot(snapshot).isOwn)
  }

  private def verify(generation: LoadedStore, at: VersionId): Unit =
    try generation.store.verify()
    catch {
      case e: StoreUnusableException =>
        generation.store.close()
        throw new CheckpointDamagedException(
          s"The snapshot of ${ChangelogPath.show(at)} is damaged in the checkpoint: ${e.getMessage}",
          "Bring its SST files back from a copy, or restart the query from a batch that needs another snapshot; " +
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
    val known =
      Option.when(metadata.numKeys >= 0)(RowCounts(metadata.numKeys, metadata.numInternalKeys))
    val counts = bases.counts(image, families, known)
    val lineage = at.checkpointId.map(_ => at).toVector
    StoreState(at, counts, families, lastSnapshot = at, lineage, position = None)
  }

  private def createEmpty(version: Long): LoadedStore = {
    val home = homes.create()
    try create(home, bases.empty(version), Map.empty)
    catch {
      case e: Throwable =>
        home.delete(): Unit
        throw e
    }
  }

  private def create(
      home: StoreDirectory,
      state: StoreState,
      uploaded: Map[String, UploadedFile]
  ): LoadedStore = {
    val generation = LoadedStore(bases.create(home, state), home, new UploadedFiles(uploaded))
    generation.noteUploads()
    generation
  }

  override def close(): Unit = changelogs.close()
}

/** A snapshot of Statemark's is of a history that is gone. */
private final class StaleSnapshotException(version: Long)
    extends RuntimeException(
      s"it is of a history that was rolled back, as it names another $version.changelog than the one beside it, " +
        "which was written since"
    )
