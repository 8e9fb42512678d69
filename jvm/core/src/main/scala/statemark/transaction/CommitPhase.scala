package statemark.transaction

/** The points that a version passes on its way into the base store, in this order, and those of the work
  * beside it. Tests make tasks and processes die at each of them; the lists are closed, so that none is
  * forgotten.
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

  /** A home that an earlier process left is proven; its changelogs are not replayed yet. */
  case object HomeProven extends CommitPhase("home-proven")

  /** A store stands at the version that was asked for, from a home or from the checkpoint location. */
  case object StoreLoaded extends CommitPhase("store-loaded")

  /** A planned flush freezes the memtables next. */
  case object FlushStarted extends CommitPhase("flush-started")

  /** The memtables are frozen; the files are being written. */
  case object FlushFrozen extends CommitPhase("flush-frozen")

  /** Maintenance has an image of a version and uploads it next. */
  case object SnapshotStarted extends CommitPhase("snapshot-started")

  /** Maintenance has uploaded an image. */
  case object SnapshotEnded extends CommitPhase("snapshot-ended")

  /** A part of what an open transaction has staged is on disk. */
  case object WritesSpilled extends CommitPhase("writes-spilled")

  /** A prepared version is on disk, and not in memory any more. */
  case object VersionSpilled extends CommitPhase("version-spilled")

  /** A version that takes several writes is in the base store in part. */
  case object PartApplied extends CommitPhase("part-applied")

  /** A version that a process died over is about to be written to the end. */
  case object RedoStarted extends CommitPhase("redo-started")

  /** The phases that a version passes. Those not listed happen concurrently with it. */
  val all: Seq[CommitPhase] = Seq(
    BatchSerialized,
    ChangelogDurable,
    SnapshotUploaded,
    VersionPrepared,
    CommitReported,
    ConfirmStarted,
    ConfirmApplied
  )

  /** Loads, flushes and snapshots. */
  val besides: Seq[CommitPhase] =
    Seq(HomeProven, StoreLoaded, FlushStarted, FlushFrozen, SnapshotStarted, SnapshotEnded)

  /** The further phases of a version for which memory has no room. */
  val spills: Seq[CommitPhase] = Seq(WritesSpilled, VersionSpilled, PartApplied, RedoStarted)
}

/** The observer of every phase, on the thread that passes it. An exception of the observer's fails that thread's
  * work.
  */
trait CommitObserver {
  def reached(phase: CommitPhase): Unit
}

object CommitObserver {
  val none: CommitObserver = (_: CommitPhase) => ()
}
