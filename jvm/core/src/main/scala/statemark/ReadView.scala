package statemark

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicBoolean
import statemark.common.{Gate, Position}
import statemark.engine._
import statemark.staging.{StagedLookup, StagedRows, TransactionBuffer}
import statemark.transaction._

/** A store for readers beside its owner: at one version, or with what the open transaction has staged so far.
  *
  * Of one version the rows are all of it and nothing else, whatever the owner does (I9).
  *
  * ''Thread:'' any, several at once; each scan one. ''Throws:'' [[statemark.common.ViewClosedException]] from
  * every call once the store is closed, and from a view of an open transaction once that has ended, where memory had no
  * room for all that it staged; [[statemark.common.StoreUnusableException]] where its files are damaged.
  *
  * ''Source:'' Kafka 4.4, `readOnly(IsolationLevel)` of its stores.
  *
  * @param state what the rows are: for an open transaction, what it began on, with the families that it has
  * @param hasStaged whether there are rows over those of the base
  */
final class ReadView private[statemark] (
    base: EngineView,
    staged: StagedRows,
    val state: StoreState,
    hasStaged: Boolean,
    mergeDelimiter: Array[Byte]
) extends Rows
    with AutoCloseable {
  // Others have a share in what it reads, and are not to lose theirs.
  private val isClosed = new AtomicBoolean
  private val scans = ConcurrentHashMap.newKeySet[TransactionScan]()

  /** Returns the source offsets that the rows include; None where they are not known. Staged rows are of input that no
    * commit includes yet, and so the view has these offsets, and more.
    */
  def position: Option[Position] = state.position.map(_.copy(andMore = hasStaged))

  override def families: ColumnFamilies = state.families

  override def get(key: Array[Byte]): Option[Array[Byte]] = staged.lookup(key) match {
    case StagedLookup.Value(bytes) => Some(bytes)
    case StagedLookup.Deleted | StagedLookup.KnownAbsent => None
    case StagedLookup.Operands(bytes) => Some(merged(base.get(key), bytes))
    case StagedLookup.NotStaged => base.get(key)
  }

  /** Opens a scan. The end of the view closes it, where its reader has not. */
  override def range(begin: Option[Array[Byte]], end: Option[Array[Byte]]): TransactionScan = {
    lazy val scan: TransactionScan = new TransactionScan(
      ScanCursors.open(base.scan(begin, end), staged, begin, end)(_ => scans.remove(scan): Unit),
      merged,
      new Gate
    )
    scans.add(scan): Unit
    // A thread that closed the view meanwhile has not seen the scan.
    if (isClosed.get) scan.close()
    scan
  }

  /** Idempotent. */
  override def close(): Unit = if (isClosed.compareAndSet(false, true)) {
    scans.forEach(_.close())
    base.close()
    staged.release()
  }

  private def merged(base: Option[Array[Byte]], operands: Array[Byte]): Array[Byte] =
    TransactionBuffer.merged(base, operands, mergeDelimiter)
}
