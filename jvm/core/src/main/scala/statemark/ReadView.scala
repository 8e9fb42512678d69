package statemark

import java.util.concurrent.atomic.AtomicBoolean
import statemark.common.{Bytes, Gate, Position}
import statemark.engine._
import statemark.transaction._

/** A store for readers beside its owner: at one version, or with what the open transaction has staged so far.
  *
  * Of one version the rows are all of it and nothing else, whatever the owner does (I9).
  *
  * ''Thread:'' any, several at once; each scan one. ''Throws:'' [[statemark.common.ViewClosedException]] from
  * every call once the store is closed, and [[statemark.common.StoreUnusableException]] where its files are damaged.
  *
  * ''Source:'' KIP-892, `readOnly(IsolationLevel)`.
  *
  * @param state what the rows are: for an open transaction, what it began on, with the families that it has
  */
final class ReadView private[statemark] (
    base: EngineView,
    staged: StagedRows,
    val state: StoreState,
    mergeDelimiter: Array[Byte]
) extends BaseRows
    with AutoCloseable {
  // Others have a share in what it reads, and are not to lose theirs.
  private val isClosed = new AtomicBoolean

  /** The source offsets that the rows include; None where nobody told. */
  def position: Option[Position] = state.position

  /** The row of `key`; the array is the caller's. */
  override def get(key: Array[Byte]): Option[Array[Byte]] = staged.lookup(key) match {
    case StagedLookup.Value(bytes) => Some(bytes)
    case StagedLookup.Deleted | StagedLookup.KnownAbsent => None
    case StagedLookup.Operands(bytes) => Some(merged(base.get(key), bytes))
    case StagedLookup.NotStaged => base.get(key)
  }

  /** Rows of `[begin, end)` in key order; the caller closes the scan. */
  def range(begin: Option[Array[Byte]], end: Option[Array[Byte]]): TransactionScan =
    new TransactionScan(
      new ScanCursors(base.scan(begin, end), staged.scan(begin, end), _ => ()),
      merged,
      new Gate
    )

  /** Rows whose key starts with `prefix`, as [[range]]. */
  def prefix(prefix: Array[Byte]): TransactionScan = range(Some(prefix), Bytes.prefixEnd(prefix))

  /** A transaction over the view that is never committed, for code that reads through one. */
  def transaction(): Transaction = Transaction.reading(this, state, mergeDelimiter)

  override def getAll(keys: Seq[Array[Byte]]): Seq[Option[Array[Byte]]] = keys.map(get)

  override def exist(
      keys: IndexedSeq[Array[Byte]],
      rowCount: Long
  ): Array[Boolean] = keys.iterator.map(get(_).isDefined).toArray

  override def scan(
      begin: Option[Array[Byte]],
      end: Option[Array[Byte]]
  ): RowCursor = new ScanCursor(range(begin, end))

  /** Idempotent. */
  override def close(): Unit = if (isClosed.compareAndSet(false, true)) {
    base.close()
    staged.release()
  }

  private def merged(base: Option[Array[Byte]], operands: Array[Byte]): Array[Byte] =
    TransactionBuffer.merged(base, operands, mergeDelimiter)
}

private final class ScanCursor(scan: TransactionScan) extends RowCursor {
  private var isThere = scan.next()

  override def keyOrEnd(): Option[Array[Byte]] = Option.when(isThere)(scan.key)
  override def value: Array[Byte] = scan.value
  override def next(): Unit = isThere = scan.next()
  override def close(): Unit = scan.close()
}
