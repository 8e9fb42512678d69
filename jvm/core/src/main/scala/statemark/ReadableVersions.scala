package statemark

import java.util.concurrent.TimeUnit
import statemark.common.Clock
import statemark.engine.{EngineView, StoreState, VersionId}
import statemark.staging.StagedRows
import statemark.transaction.{PreparedTransaction, Transaction}

/** The limits of versions that a store has left, and that can still be read.
  *
  * @param versions the last so many, while the store has readers
  * @param ms how long a version to which a read is pinned stays readable, from the pin on
  */
final case class ReadRetention(versions: Int, ms: Long, clock: Clock) {

  /** Tells whether a reader that read at `lastRead` is taken to read on. */
  private[statemark] def hasReaders(lastRead: Long, now: Long): Boolean =
    now - lastRead < ReadRetention.ReadersStayNanos
}

object ReadRetention {

  /** The most that may be kept without being asked for: RocksDB keeps every version of a row that a snapshot sees. */
  val MaxVersions: Int = 512

  /** The time after a read for which a store goes on keeping versions: RocksDB pays for them with each flush and
    * scan.
    */
  private[statemark] val ReadersStayNanos = TimeUnit.MINUTES.toNanos(10)

  /** Readers see the newest version only. */
  val none: ReadRetention = ReadRetention(0, 0, Clock.system)
}

/** The versions of a store that readers find. Its owner puts another in its place with each step, and so no
  * reader waits for what the owner does: a write, a checkpoint, a compaction.
  *
  * ''Thread:'' immutable.
  *
  * @param rows the rows of the base
  * @param open the newest transaction on the base; it may have been rolled back
  * @param left versions before the base, oldest first
  */
private[statemark] final case class ReadableVersions(
    base: StoreState,
    rows: EngineView,
    prepared: Option[PreparedTransaction] = None,
    open: Option[Transaction] = None,
    left: Vector[ReadableRows] = Vector.empty
) {

  /** Returns the versions after the base has become `next` and nothing is prepared, and the views that no reader
    * finds any more.
    *
    * @param keeps how many versions before it stay readable
    * @param pinned further versions that stay readable
    */
  def advanced(
      next: StoreState,
      nextRows: EngineView,
      keeps: Int,
      pinned: Set[Long]
  ): (ReadableVersions, Vector[EngineView]) = {
    val all = left :+ ReadableRows(rows, StagedRows.None, base)
    val (older, newer) = all.splitAt(all.length - keeps)
    val (kept, useless) = older.partition(v => pinned(v.state.version))
    (ReadableVersions(next, nextRows, left = kept ++ newer), useless.map(_.base))
  }

  /** Returns the version `at`; None where no reader finds it any more. */
  def find(at: VersionId): Option[ReadableRows] =
    if (base.at == at) Some(ReadableRows(rows, StagedRows.None, base))
    else
      prepared.filter(_.state.at == at).map(p => ReadableRows(rows, p.rows, p.state))
        .orElse(left.find(_.state.at == at))

  /** Returns the rows that `level` shows: those staged over the base, or the base alone. */
  def newest(level: IsolationLevel): ReadableRows = {
    val staged = level match {
      case IsolationLevel.ReadCommitted => None
      case IsolationLevel.ReadUncommitted =>
        open.flatMap(t => t.stagedRows.map((_, t.families)))
          .orElse(prepared.map(p => (p.rows, p.state.families)))
    }
    staged.fold(ReadableRows(rows, StagedRows.None, base)) { case (writes, families) =>
      ReadableRows(rows, writes, base.copy(families = families), andMore = true)
    }
  }
}

/** Rows of a base, what is staged over them, and what the two are.
  * @param andMore whether `state` does not tell of the staged rows, as their version is not committed
  */
private[statemark] final case class ReadableRows(
    base: EngineView,
    staged: StagedRows,
    state: StoreState,
    andMore: Boolean = false
) {

  /** Adds a reader of both; false where one of them is gone. */
  def retain(): Boolean = base.retain() && {
    val isThere = staged.retain()
    if (!isThere) base.close()
    isThere
  }
}
