package statemark.spark.load

import java.io.File
import org.slf4j.LoggerFactory
import scala.collection.mutable
import scala.util.control.NonFatal
import statemark.common._
import statemark.engine.VersionId
import statemark.ReopenedStore
import statemark.spark.local.{
  BaseStores,
  LoadSource,
  LoadStats,
  LoadedStore,
  ReusableStore,
  ReusableStores,
  StoreDirectories,
  StoreDirectory,
  UploadedFile,
  UploadedFiles
}
import statemark.spark.snapshot.StoreCheckpoint
import statemark.transaction.{CommitObserver, CommitPhase}

/** The result of [[LocalReuse.adopt]].
  *
  * @param adopted a store at the version that was asked for
  * @param rest homes that are still held, and are of no use once another has confirmed a version
  */
final case class Reused(
    adopted: Option[(LoadedStore, LoadStats)],
    rest: Seq[StoreDirectory],
    distrusted: Seq[RejectReason]
)

/** Finds homes of a store that earlier processes or runs left, and uses the newest that identity and
  * history prove to be a prefix of the checkpoint's own history (I6). Nothing is listed, counted or
  * copied in proportion to the state.
  *
  * ''Thread:'' the owner of the store.
  *
  * @param checkpoint proves versions in checkpoint format v1
  */
final class LocalReuse(
    homes: StoreDirectories,
    bases: BaseStores,
    checkpoint: StoreCheckpoint,
    path: ChangelogPath,
    observer: CommitObserver,
    clock: Clock
) {
  private lazy val log = LoggerFactory.getLogger(classOf[LocalReuse])

  /** The files of versions, as they were when a home was compared with them first. */
  private lazy val writers = checkpoint.writersOf(checkpoint.list())

  /** @param held homes of this store that the caller holds already; where this throws, they are released */
  def adopt(at: VersionId, held: Seq[StoreDirectory]): Reused = {
    val candidates = mutable.ArrayBuffer.from(held)
    try {
      val (found, ms) = Clock.timedMs(clock) {
        if (at.version > 0) openStores.foreach(live => candidates ++= copyOf(live))
        candidates ++= homes.abandoned()
        if (at.version == 0) Reused(None, candidates.toSeq, Nil)
        else firstProven(at, candidates.sortBy(-_.noted.getOrElse(-1L)).toList)
      }
      found.copy(adopted = found.adopted.map { case (generation, figures) =>
        (generation, figures.copy(localMs = math.max(ms - figures.replayMs, 0)))
      })
    } catch {
      case e: Throwable =>
        candidates.foreach(_.release())
        throw e
    }
  }

  /** Returns the open stores of an earlier run in the same process. */
  private def openStores: Seq[ReusableStore] = homes.parent.toSeq.flatMap(ReusableStores.of)

  /** Copies an open store's home by hard links; the copy is held at once. */
  private def copyOf(live: ReusableStore): Option[StoreDirectory] = {
    val home = homes.create()
    var isCopied = false
    try {
      isCopied = Interrupts.apart(live.copyTo(home))
      Option.when(isCopied)(home)
    } catch {
      case NonFatal(e) =>
        log.info(s"The open store of an earlier run of ${bases.identity} cannot be copied.", e)
        None
    } finally if (!isCopied) home.delete(): Unit
  }

  /** @param candidates the newest first, by what their owners noted; the others need not be opened then */
  private def firstProven(at: VersionId, candidates: List[StoreDirectory]): Reused =
    candidates match {
      case Nil => Reused(None, Nil, Nil)
      case home :: others =>
        try Reused(Some(proven(home, at)), others, Nil)
        catch {
          case e: LocalRejectedException =>
            firstProven(at, others).reporting(Seq(home), Seq(refused(home, e)))
        }
    }

  /** @throws LocalRejectedException where the home is of no use for `at` */
  private def proven(home: StoreDirectory, at: VersionId): (LoadedStore, LoadStats) = {
    val reopened = bases.reopen(home)
    try {
      val figures = brought(reopened, at)
      (LoadedStore(reopened.store, home, uploads(reopened, home)), figures)
    } catch {
      case e: Throwable =>
        reopened.store.close()
        throw e match {
          case unusable: StoreUnusableException =>
            new LocalRejectedException(RejectReason.Damaged, unusable.getMessage, Some(unusable))
          case other => other
        }
    }
  }

  /** Proves that the base is a version of the history that leads to `at`, and replays the rest.
    * @throws LocalRejectedException where that is not so, or changelogs are missing
    */
  private def brought(reopened: ReopenedStore, at: VersionId): LoadStats = {
    val base = reopened.store.base.at
    if (base.version == 0)
      throw new LocalRejectedException(
        RejectReason.Unproven,
        "its first version never went to disk"
      )
    val deltas = path.find(base, at)
    if (base.checkpointId.isEmpty) {
      val proofs = checkpoint.proofsOfAll.getOrElse(throw inOtherFormat)
      val named =
        proofs.check(base, reopened.store.base.fingerprint, deltas.map(_.version), writers)
      checkpoint.changelogs.note(base.version, named)
    }
    observer.reached(CommitPhase.HomeProven)
    try path.replay(reopened.store, deltas, LoadStats(LoadSource.Local))
    catch {
      case e @ (_: StoreUnusableException | _: DiskUnwritableException) => throw e
      case NonFatal(e) =>
        val why = s"the changelogs after ${base.version} cannot be replayed: $e"
        throw new LocalRejectedException(RejectReason.TooOld, why, Some(e))
    }
  }

  private def inOtherFormat = new LocalRejectedException(
    RejectReason.OtherHistory,
    "its version is of checkpoint format v1, and the query runs in v2"
  )

  /** Only files that are still those which were uploaded count as uploaded. */
  private def uploads(reopened: ReopenedStore, home: StoreDirectory): UploadedFiles = {
    val there = reopened.uploads.filter(u => new File(home.base, u.localName).length == u.bytes)
    new UploadedFiles(there.map(u =>
      u.localName -> UploadedFile.of(u.localName, u.remoteName, u.bytes, u.version)
    ).toMap)
  }

  private def refused(home: StoreDirectory, why: LocalRejectedException): RejectReason = {
    log.warn(s"${home.path} is not used for ${bases.identity} (${why.reason.name}): " +
      s"${why.getMessage}. The store is loaded from the next source.")
    why.reason
  }

  private implicit class Reporting(found: Reused) {
    def reporting(homes: Seq[StoreDirectory], reasons: Seq[RejectReason]): Reused =
      found.copy(rest = found.rest ++ homes, distrusted = found.distrusted ++ reasons)
  }
}
