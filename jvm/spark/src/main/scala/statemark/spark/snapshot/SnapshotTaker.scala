package statemark.spark.snapshot

import java.io.File
import org.slf4j.LoggerFactory
import statemark.common.Clock
import statemark.engine.{StoreState, VersionId}
import statemark.spark.checkpoint.{CommittedVersions, NamedChangelog, StoreFile}
import statemark.spark.conf.StoreConf
import statemark.spark.local.{LoadedStore, LocalDirectory}
import statemark.transaction.{CommitObserver, CommitPhase, PreparedTransaction}

/** Takes the snapshots of one provider: inside a commit that needs one, from maintenance when one is due, and beside the
  * first batch, or at the end of the process, where maintenance does not come.
  *
  * ''Thread:'' `inCommit` on the owner's; the others on one at a time, also at the same time as `inCommit`.
  */
final class SnapshotTaker(
    conf: StoreConf,
    checkpoint: StoreCheckpoint,
    committedVersions: CommittedVersions,
    observer: CommitObserver,
    clock: Clock
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
      upload(generation, image, state, linked, checkpoint.namedBySnapshot(state.at))(keeps = true)
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
    val due = base(generation)(isDue).orElse(prepared(generation, isCommittedAttempt)(isDue))
    due.exists(take(generation, _)): Unit
  }

  /** Takes a snapshot of the base where one is [[SnapshotTaker.isOverdue overdue]]: processes of this query end before
    * maintenance comes to them.
    *
    * @return whether one was taken
    */
  def ifOverdue(generation: LoadedStore): Boolean = {
    val overdue = overdueNow()
    takeDurably(generation, base(generation)(overdue))
  }

  /** Takes an overdue snapshot like [[ifOverdue]] when the process ends. The prepared version comes first: no later
    * snapshot of this process shares files with one of the base, and the next start then replays nothing.
    */
  def ifOverdueAtEnd(generation: LoadedStore, isCommittedAttempt: VersionId => Boolean): Boolean = {
    val overdue = overdueNow()
    val last = prepared(generation, isCommittedAttempt)(overdue)
    takeDurably(generation, last.orElse(base(generation)(overdue)))
  }

  /** Returns whether versions are overdue. Where the newest snapshot of a store is known to be of its version, the
    * checkpoint location is not asked.
    */
  private def overdueNow(): StoreState => Boolean = {
    lazy val files = checkpoint.listTimes()
    state =>
      state.version > state.lastSnapshot.version &&
        SnapshotTaker.isOverdue(state.at, files, conf, clock.epochMs())
  }

  private def base(generation: LoadedStore)(isWanted: StoreState => Boolean): Option[StoreState] =
    Some(generation.store.base).filter(isWanted).filter(stands)

  private def prepared(generation: LoadedStore, isCommittedAttempt: VersionId => Boolean)(
      isWanted: StoreState => Boolean
  ): Option[StoreState] =
    generation.store.prepared.map(_.state).filter(isWanted).filter { state =>
      committedVersions.contains(state.at) && isCommittedAttempt(state.at)
    }.filter(stands)

  private def take(generation: LoadedStore, due: StoreState): Boolean =
    withImage(generation) { image =>
      prepare(generation)
      // Before the image is made: behind it the owner may commit more versions, and the name is known for the last two
      // only. Where the owner has done so already, there is no image.
      val changelog = checkpoint.namedBySnapshot(due.at)
      generation.store.snapshot(due.at, image).exists { case (state, linked) =>
        observer.reached(CommitPhase.SnapshotStarted)
        val figures = upload(generation, image, state, linked, changelog)(keeps = stands(due))
        observer.reached(CommitPhase.SnapshotEnded)
        if (figures.isKept) generation.store.markSnapshot(state.at)
        figures.isKept
      }
    }

  /** Takes a snapshot of which a later process knows even where this one is killed: else each process that ends early
    * would name more versions in the headers of its changelogs than the one before, in format v2.
    */
  private def takeDurably(generation: LoadedStore, due: Option[StoreState]): Boolean = {
    val isTaken = due.exists(take(generation, _))
    if (isTaken && generation.home.isDurable) generation.store.flush()
    isTaken
  }

  /** Compacts, as Spark's provider does before each snapshot, where the user asks for it. */
  private def prepare(generation: LoadedStore): Unit = {
    if (conf.rocksDb.compactOnCommit) generation.store.compact()
    // An image flushes the base in any case; this is where tests see it.
    if (generation.home.isDurable) generation.store.flush()
  }

  private def isDue(state: StoreState): Boolean =
    conf.isSnapshotDue(state.version, state.lastSnapshot.version)

  /** Tells whether the store's version is in the query's history now. A version without an id needs a fingerprint, which a
    * session of checkpoint format v2 has of none.
    */
  private def stands(state: StoreState): Boolean = {
    def isProven = checkpoint.proofs match {
      case Some(proofs) => state.fingerprint.exists(proofs.stands(state.version, _))
      case None => state.at.checkpointId.isDefined
    }
    val isOfHistory = committedVersions.stands(state.at) && isProven
    if (!isOfHistory) {
      log.info(
        s"No snapshot is taken of version ${state.version} of ${checkpoint.location.storeId}, as nothing proves that it is of the " +
          "query's history: the query was rolled back and has gone on, or the version was just restored, or is of " +
          "checkpoint format v1 and the session's is v2."
      )
    }
    isOfHistory
  }

  private def upload(
      generation: LoadedStore,
      image: File,
      state: StoreState,
      linked: Set[String],
      changelog: Option[Option[NamedChangelog]]
  )(keeps: => Boolean): SnapshotStats = {
    val figures =
      checkpoint.snapshots.upload(image, state, linked, changelog, generation.uploaded)(keeps)
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

object SnapshotTaker {

  /** Tells whether a snapshot of a version should be there already, by the files of its store: the processes that wrote
    * the versions since the newest snapshot have ended before maintenance came to them, or nothing tells that they have
    * not. There are three ways to tell:
    *   - Enough versions have passed for maintenance to take one.
    *   - The newest two snapshots are closer to each other than maintenance takes them, so that the process between them
    *     has ended early as well; where there is one at most, the store counts as empty before.
    *   - The version is older than the interval of maintenance, and nothing has come after it: its process has ended.
    *
    * A query that goes on for long and is started again has none of them: its snapshots lie as far apart as
    * maintenance takes them, and its last version is young.
    *
    * @param files the files of the store's directory with their modification times
    * @param nowMs the time of this machine; where it is wrong, a snapshot comes early, or with maintenance
    */
  private[spark] def isOverdue(
      at: VersionId,
      files: Seq[(StoreFile, Long)],
      conf: StoreConf,
      nowMs: Long
  ): Boolean = {
    val snapshots = files.collect { case (StoreFile.Snapshot(of), _) => of }
    val before = snapshots.map(_.version).filter(_ < at.version).distinct.sorted.reverse
    val (newest, second) = (before.headOption.getOrElse(0L), before.lift(1).getOrElse(0L))
    def isLeft = files.exists { case (file, modifiedMs) =>
      file == StoreFile.Changelog(at) && nowMs - modifiedMs > conf.spark.maintenanceInterval
    }
    !snapshots.contains(at) &&
    (conf.isSnapshotDue(at.version, newest) || !conf.isSnapshotDue(newest, second) || isLeft)
  }
}
