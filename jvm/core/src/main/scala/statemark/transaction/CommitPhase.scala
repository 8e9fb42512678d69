package statemark.transaction

/** The points that a version passes on its way into the base store, in this order. Tests make tasks
  * die at each of them; the list is closed, so that none is forgotten.
  */
sealed abstract class CommitPhase(val name: String)

object CommitPhase {

  /** Rows are counted and the write batch stands in memory; nothing has left the process. */
  case object BatchSerialized extends CommitPhase("batch-serialized")

  /** The changelog of the new version can be replayed by anybody. */
  case object ChangelogDurable extends CommitPhase("changelog-durable")

  /** A snapshot that had to be part of the commit is in the checkpoint location. */
  case object SnapshotUploaded extends CommitPhase("snapshot-uploaded")

  /** The new version is prepared: it is in memory, on top of an unchanged base. */
  case object VersionPrepared extends CommitPhase("version-prepared")

  /** The coordinator knows of the commit. */
  case object CommitReported extends CommitPhase("commit-reported")

  /** Spark has asked for the prepared version as the base of the next batch. */
  case object ConfirmStarted extends CommitPhase("confirm-started")

  /** The prepared version is in the base store, rows and offsets. */
  case object ConfirmApplied extends CommitPhase("confirm-applied")

  val all: Seq[CommitPhase] = Seq(
    BatchSerialized,
    ChangelogDurable,
    SnapshotUploaded,
    VersionPrepared,
    CommitReported,
    ConfirmStarted,
    ConfirmApplied
  )
}

/** Is told of every phase, on the thread that passes it; what it throws fails that thread's work. */
trait CommitObserver {
  def reached(phase: CommitPhase): Unit
}

object CommitObserver {
  val none: CommitObserver = (_: CommitPhase) => ()
}
