package statemark.transaction

import statemark.engine.RowCursor
import statemark.staging.{StagedCursor, StagedScans}

/** The cursors from which a scan reads, and which its transaction closes. They are apart from the scan, which holds a
  * row: where a reader lets go of a scan without closing it, this alone is left until the transaction ends, with a few
  * rows of the base at most.
  *
  * ''Thread:'' as the scan, inside its gate.
  */
private[statemark] final class ScanCursors(
    val base: RowCursor,
    val staged: StagedCursor,
    onClose: ScanCursors => Unit
) extends AutoCloseable {
  private var key = base.keyOrEnd()
  private var isClosed_ = false

  def isClosed: Boolean = isClosed_

  /** Returns the key of the base that it stands at, None at the end. */
  def baseKey: Option[Array[Byte]] = key

  def nextBase(): Unit = {
    base.next()
    key = base.keyOrEnd()
  }

  /** Idempotent. */
  override def close(): Unit = if (!isClosed_) {
    isClosed_ = true
    base.close()
    staged.close()
    onClose(this)
  }
}

private[statemark] object ScanCursors {

  /** Opens the staged side of a scan beside that of the base; where it cannot be read, neither is left open.
    * @param onClose is told of the end of those that were opened
    */
  def open(
      base: RowCursor,
      staged: StagedScans,
      begin: Option[Array[Byte]],
      end: Option[Array[Byte]]
  )(onClose: ScanCursors => Unit): ScanCursors =
    try {
      val writes = staged.scan(begin, end)
      try new ScanCursors(base, writes, onClose)
      catch {
        case e: Throwable =>
          writes.close()
          throw e
      }
    } catch {
      case e: Throwable =>
        base.close()
        throw e
    }
}
