package statemark.spark

import java.io.File
import statemark.engine.{StoreState, VersionId}
import statemark.transaction.{CommitPhase, PreparedTransaction}

/** Takes the snapshots of one provider: inside a commit that needs one, and from maintenance when one
  * is due.
  *
  * ''Thread:'' `inCommit` on the owner's, `ifDue` on the maintenance thread, also at the same time.
  */
final class SnapshotTaker(context: ProviderContext) {
  @volatile private var lastUploaded_ = -1L

  /** The newest version that this provider has uploaded a snapshot of, -1 for none. */
  def lastUploaded: Long = lastUploaded_

  /** A snapshot of a version that is being committed: the base stays where it is. */
  def inCommit(generation: Generation, next: PreparedTransaction): SnapshotFigures =
    withImage(generation) { image =>
      prepare(generation)
      val (state, linked) = generation.store.snapshot(next, image)
      upload(generation, image, state, linked)
    }

  /** A snapshot of a version that the query has committed, where enough versions have passed since the
    * last one. The base comes first: all files of its image are hard links, whereas the prepared version
    * brings a file of its own that no later snapshot can share. An idle query's last version is prepared
    * and not in the base yet.
    *
    * Spark has a store of a run that has ended maintained once more. In format v1, where a version has one name in all
    * histories, what the query was rolled back from must not get a snapshot then: nobody would expect it.
    *
    * @param isCommittedAttempt whether the prepared version is the attempt that counts
    */
  def ifDue(generation: Generation, isCommittedAttempt: VersionId => Boolean): Unit = {
    val store = generation.store
    def preparedAndCommitted = store.prepared.map(_.state).filter(isDue).filter { state =>
      context.committedVersions.contains(state.at) && isCommittedAttempt(state.at)
    }
    Some(store.base).filter(isDue).orElse(preparedAndCommitted)
      .filter(due => context.usesCheckpointIds || context.committedVersions.stands(due.version))
      .foreach { due =>
        withImage(generation) { image =>
          prepare(generation)
          store.snapshot(due.at, image).foreach { case (state, linked) =>
            context.observer.reached(CommitPhase.SnapshotStarted)
            upload(generation, image, state, linked): Unit
            context.observer.reached(CommitPhase.SnapshotEnded)
            store.markSnapshot(state.at)
          }
        }
      }
  }

  /** Compacts, as Spark's provider does before each snapshot, where the user asks for it. */
  private def prepare(generation: Generation): Unit = {
    if (context.conf.compactOnCommit) generation.store.compact()
    // An image flushes the base in any case; this is where tests see it.
    if (generation.home.isDurable) generation.store.flush()
  }

  private def isDue(state: StoreState): Boolean = {
    val versions = state.version - state.lastSnapshot.version
    versions > 0 && versions >= context.conf.minDeltasForSnapshot
  }

  private def upload(
      generation: Generation,
      image: File,
      state: StoreState,
      linked: Set[String]
  ): SnapshotFigures = {
    val figures = context.snapshots.upload(image, state, linked, generation.uploaded)
    lastUploaded_ = math.max(lastUploaded_, state.version)
    generation.noteUploads()
    context.reportSnapshot(state.version)
    figures
  }

  private def withImage[A](generation: Generation)(take: File => A): A = {
    val image = generation.home.fresh("snapshot")
    try take(image)
    finally LocalDirectory.deleteTree(image)
  }
}
