package statemark

import statemark.common.Clock
import statemark.engine.{EngineView, StoreState, VersionId}
import statemark.transaction.{PreparedTransaction, StagedRows, Transaction}

/** How long versions that a store has left can still be read.
  *
  * @param versions so many at least; 0 for none at all
  * @param ms and all that were left in the last so many, up to [[ReadRetention.MaxVersions]]
  */
final case class ReadRetention(versions: Int, ms: Long, clock: Clock)

object ReadRetention {

  /** RocksDB keeps every version of a row that a snapshot sees. */
  val MaxVersions: Int = 512

  /** Readers see the newest version only. */
  val none: ReadRetention = ReadRetention(0, 0, Clock.system)
}

/** The versions of a store that readers find. Its owner puts another in its place with each step, and so no
  * reader waits for what the owner does: a write, a checkpoint, a compaction.
  *
  * ''Thread:'' immutable.
  *
  * @param rows of the base
  * @param open the newest transaction on the base; it may have been rolled back
  * @param left versions before the base, oldest first
  */
private[statemark] final case class ReadableVersions(
    base: StoreState,
    rows: EngineView,
    prepared: Option[PreparedTransaction] = None,
    open: Option[Transaction] = None,
    left: Vector[LeftVersion] = Vector.empty
) {

  /** The base has become `next`, and nothing is prepared; and the views that nobody finds any more. */
  def advanced(
      next: StoreState,
      nextRows: EngineView,
      retention: ReadRetention
  ): (ReadableVersions, Vector[EngineView]) = {
    val now = retention.clock.nanos()
    val all = left :+ LeftVersion(base, rows, now)
    val oldest = math.max(0, all.length - ReadRetention.MaxVersions)
    val sure = math.max(0, all.length - retention.versions)
    val keepsAny = retention.versions > 0
    val (kept, useless) = all.zipWithIndex.partition { case (version, i) =>
      val isYoung = now - version.leftNanos <= retention.ms * ReadableVersions.NanosPerMs
      keepsAny && i >= oldest && (i >= sure || isYoung)
    }
    (ReadableVersions(next, nextRows, left = kept.map(_._1)), useless.map(_._1.rows))
  }

  /** The version `at`; None where no reader finds it any more. */
  def find(at: VersionId): Option[ReadableRows] =
    if (base.at == at) Some(ReadableRows(rows, StagedRows.None, base))
    else
      prepared.filter(_.state.at == at).map(p => ReadableRows(rows, p.rows, p.state))
        .orElse(left.find(_.state.at == at).map(v =>
          ReadableRows(v.rows, StagedRows.None, v.state)
        ))

  /** What `level` shows: all that is staged over the base, or nothing of it. */
  def newest(level: IsolationLevel): ReadableRows = {
    val staged = level match {
      case IsolationLevel.ReadCommitted => StagedRows.None
      case IsolationLevel.ReadUncommitted =>
        open.filter(_.isOpen).map(_.stagedRows).orElse(prepared.map(_.rows))
          .getOrElse(StagedRows.None)
    }
    ReadableRows(rows, staged, base)
  }
}

/** Rows of a base, what is staged over them, and what the two are. */
private[statemark] final case class ReadableRows(
    base: EngineView,
    staged: StagedRows,
    state: StoreState
)

/** @param leftNanos when the store left it */
private[statemark] final case class LeftVersion(
    state: StoreState,
    rows: EngineView,
    leftNanos: Long
)

private[statemark] object ReadableVersions {
  private val NanosPerMs = 1000L * 1000
}
