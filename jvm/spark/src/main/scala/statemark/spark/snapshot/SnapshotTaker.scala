package statemark.spark.snapshot

import java.io.File
import org.slf4j.LoggerFactory
import statemark.engine.{StoreState, VersionId}
import statemark.spark.checkpoint.CommittedVersions
import statemark.spark.conf.StoreConf
import statemark.spark.local.{LoadedStore, LocalDirectory}
import statemark.transaction.{CommitObserver, CommitPhase, PreparedTransaction}

/** Takes the snapshots of one provider: inside a commit that needs one, and from maintenance when one
  * is due.
  *
  * ''Thread:'' `inCommit` on the owner's, `ifDue` on the maintenance thread, also at the same time.
  */
final class SnapshotTaker(
    conf: StoreConf,
    checkpoint: StoreCheckpoint,
    committedVersions: CommittedVersions,
    observer: CommitObserver
) {
  private lazy val log = LoggerFactory.getLogger(classOf[SnapshotTaker])
  @volatile private var lastUploaded_ = -1L

  /** Returns the newest version that this provider has uploaded a snapshot of, -1 for none. */
  def lastUploaded: Long = lastUploaded_

  /** Takes a snapshot of a version that is being committed: the base stays where it is. */
  def inCommit(generation: LoadedStore, next: PreparedTransaction): SnapshotStats =
    withImage(generation) { image =>
      prepare(generation)
      val (state, linked) = generation.store.snapshot(next, image)
      upload(generation, image, state, linked)(keeps = true)
    }

  /** Takes a snapshot of a version that the query has committed, where enough versions have passed since the last
    * one. The base comes first: all files of its image are hard links, whereas the prepared version brings a file of
    * its own that no later snapshot can share. An idle query's last version is prepared and not in the base yet.
    *
    * Spark has a store of a run that has ended maintained once more, and the query may have been rolled back by hand
    * and gone on by then. A version from which the query was rolled back must not get a snapshot: in format v1, where
    * a version has one name in all histories, it would be served. So the version must stand, before the upload and
    * when it is done.
    *
    * @param isCommittedAttempt whether the prepared version is the attempt that counts
    */
  def ifDue(generation: LoadedStore, isCommittedAttempt: VersionId => Boolean): Unit = {
    val store = generation.store
    def preparedAndCommitted = store.prepared.map(_.state).filter(isDue).filter { state =>
      committedVersions.contains(state.at) && isCommittedAttempt(state.at)
    }
    Some(store.base).filter(isDue).filter(stands)
      .orElse(preparedAndCommitted.filter(stands))
      .foreach { due =>
        withImage(generation) { image =>
          prepare(generation)
          store.snapshot(due.at, image).foreach { case (state, linked) =>
            observer.reached(CommitPhase.SnapshotStarted)
            val figures = upload(generation, image, state, linked)(keeps = stands(due))
            observer.reached(CommitPhase.SnapshotEnded)
            if (figures.isKept) store.markSnapshot(state.at)
          }
        }
      }
  }

  /** Compacts, as Spark's provider does before each snapshot, where the user asks for it. */
  private def prepare(generation: LoadedStore): Unit = {
    if (conf.rocksDb.compactOnCommit) generation.store.compact()
    // An image flushes the base in any case; this is where tests see it.
    if (generation.home.isDurable) generation.store.flush()
  }

  private def isDue(state: StoreState): Boolean =
    conf.isSnapshotDue(state.version, state.lastSnapshot.version)

  /** Tells whether the store's version is in the query's history now. */
  private def stands(state: StoreState): Boolean = {
    val isOfHistory = committedVersions.stands(state.at) &&
      checkpoint.proofs.forall(proofs => state.fingerprint.exists(proofs.stands(state.version, _)))
    if (!isOfHistory) {
      log.info(
        s"No snapshot is taken of version ${state.version} of ${checkpoint.location.storeId}, as nothing proves that it is of the " +
          "query's history: the query was rolled back and has gone on, or the version was just restored."
      )
    }
    isOfHistory
  }

  private def upload(
      generation: LoadedStore,
      image: File,
      state: StoreState,
      linked: Set[String]
  )(keeps: => Boolean): SnapshotStats = {
    val figures = checkpoint.snapshots.upload(image, state, linked, generation.uploaded)(keeps)
    if (figures.isKept) {
      lastUploaded_ = math.max(lastUploaded_, state.version)
      generation.noteUploads()
      checkpoint.reportSnapshot(state.version)
    }
    figures
  }

  private def withImage[A](generation: LoadedStore)(take: File => A): A = {
    val image = generation.home.fresh("snapshot")
    try take(image)
    finally LocalDirectory.deleteTree(image)
  }
}
