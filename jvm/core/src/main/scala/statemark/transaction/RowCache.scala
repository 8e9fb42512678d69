package statemark.transaction

import java.nio.ByteBuffer
import java.util.{Arrays, BitSet}
import java.util.concurrent.locks.ReentrantLock
import scala.collection.immutable.ArraySeq
import scala.collection.mutable
import statemark.common.KeyHash
import statemark.engine.{BaseRows, BatchReader, BatchWriter, HeapBatch, RowCursor, SerializedBatch}
import statemark.staging.TransactionBuffer

/** The base, with rows in memory that were read or written last: finding one there takes a tenth of what RocksDB
  * takes (ADR 32). It changes with the base, and never before it. Where a store begins without rows, it also knows of
  * keys that have none: of all while memory has room for all rows, and of most while it has room for a filter.
  *
  * ''Thread:'' as the base; `written` under the lock of the store. Another store may have it give back memory between two
  * steps of the owner's. The lock of the cache is held for no call of the base.
  *
  * @param pages where rows lie
  * @param isEmpty whether the base has no rows yet
  */
private[statemark] final class RowCache(
    base: BaseRows,
    mergeDelimiter: Array[Byte],
    pages: RowPages,
    isEmpty: Boolean
) extends BaseRows
    with AutoCloseable {
  import RowCache._

  private val lock = new ReentrantLock
  private val memory =
    pages.join(count => if (lock.tryLock()) unlocking(giveBack(count)) else 0)
  // None where it does not pay.
  @volatile private var kept: Option[RowTable] = Some(new RowTable(memory, isEmpty))
  // None where it does not pay, or where not all keys of the base are known.
  @volatile private var filter =
    Option.when(isEmpty)(new KeyFilter(() => pageForFilter, memory.give))
  private val use = new Use
  private val scans = new ShortScans
  // Of the owner's last read.
  private var wasKept_ = false

  override def wasKept: Boolean = wasKept_

  private def locked[A](step: => A): A = {
    lock.lock()
    unlocking(step)
  }

  private def unlocking[A](step: => A): A =
    try step
    catch {
      case e: Throwable =>
        // What it knows is not sure any more.
        forget()
        throw e
    } finally lock.unlock()

  override def get(key: Array[Byte]): Option[Array[Byte]] = {
    use.read()
    wasKept_ = false
    kept match {
      case None => base.get(key)
      case Some(table) =>
        val hash = KeyHash.of(key)
        lock.lock()
        val (known, isAbsent) =
          try {
            val row = table.get(hash, key)
            (row, row.isEmpty && knowsAbsent(table, hash))
          } finally lock.unlock()
        if (known.isDefined || isAbsent) {
          use.answered += 1
          wasKept_ = known.isDefined
          known
        } else {
          val found = base.get(key)
          found.foreach(value => locked(table.put(hash, key, value)))
          found
        }
    }
  }

  /** Tells whether a key that the table does not know has no row. */
  private def knowsAbsent(table: RowTable, hash: Long): Boolean =
    table.isWhole || filter.exists { keys =>
      use.filtered += 1
      val isAbsent = !keys.mayHave(hash)
      if (isAbsent) use.absent += 1
      isAbsent
    }

  override def exist(keys: IndexedSeq[Array[Byte]], rowCount: Long): Array[Boolean] = {
    use.asked += keys.length
    kept match {
      case None => base.exist(keys, rowCount)
      case Some(table) =>
        val found = new Array[Boolean](keys.length)
        val unknown = new mutable.ArrayBuilder.ofInt
        locked {
          for (i <- keys.indices) {
            val hash = KeyHash.of(keys(i))
            found(i) = table.has(hash, keys(i))
            if (!found(i) && !knowsAbsent(table, hash)) (unknown += i): Unit
          }
        }
        val others = unknown.result()
        use.answered += keys.length - others.length
        if (others.nonEmpty) {
          val rest = base.exist(ArraySeq.unsafeWrapArray(others.map(keys)), rowCount)
          for (i <- others.indices) found(others(i)) = rest(i)
        }
        found
    }
  }

  override def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): RowCursor = {
    use.hasScanned = true
    scans.find(begin, end) match {
      case Some(found) => found
      case None => scans.record(begin, end, base.scan(begin, end))
    }
  }

  override def scanned(key: Array[Byte]): Option[Boolean] = scans.tells(key)

  override def rest(): Unit = base.rest()

  override def wantsRowsBefore: Boolean = filter.isDefined

  /** Records that `batch` has been written to the base. */
  def written(batch: SerializedBatch): Unit = {
    scans.forget()
    locked(batch match {
      // It says nothing of what reads are for.
      case heap: HeapBatch if heap.records == 0 => ()
      case heap: HeapBatch if use.pays(wereKept = kept.isDefined) =>
        if (kept.isEmpty) kept = Some(new RowTable(memory, hasAll = false))
        if (heap.rowsBefore.isEmpty || !use.filterPays) closeFilter(): Unit
        heap.foreachRecord(new Changes(heap.rowsBefore))
      case _ => forget()
    })
  }

  /** Drops all that it knows. The caller has the lock. */
  private def forget(): Unit = {
    val before = kept
    kept = None
    closeFilter(): Unit
    before.foreach(_.close())
  }

  /** Gives back so many pages, or as many as it can; returns how many. */
  private def giveBack(count: Int): Int = {
    val pages = kept.fold(0)(_.giveBack(count))
    if (pages > 0) pages else closeFilter()
  }

  /** Gives back the filter's pages; returns how many. */
  private def closeFilter(): Int = {
    val before = filter
    val pages = before.fold(0)(_.pages)
    filter = None
    before.foreach(_.close())
    pages
  }

  /** Returns a page, of the rows' where memory has no other one. A filter that takes half of the store's pages is not
    * worth them.
    */
  private def pageForFilter: Option[ByteBuffer] = memory.take().orElse {
    val isWorth = filter.exists(_.pages * 2 < memory.pages)
    kept.filter(_ => isWorth).flatMap(_.dropPage())
  }

  /** Gives back the memory. ''Thread:'' any. */
  override def close(): Unit = {
    locked(forget())
    memory.close()
  }

  /** Does with the table, and the filter, what a batch has done with the base.
    * @param rowsBefore tells of each record whether the base had its key; there is no filter where nobody knows
    */
  private final class Changes(rowsBefore: Option[BitSet]) extends BatchReader.Visitor {
    private var records = 0

    override def record(
        tag: Byte,
        in: Array[Byte],
        key: Int,
        keyLength: Int,
        value: Int,
        valueLength: Int
    ): Unit = kept match {
      case None => ()
      case Some(table) =>
        val hash = KeyHash.of(in, key, keyLength)
        filter match {
          case Some(keys) => count(keys, hash, tag != BatchWriter.Delete)
          case None => ()
        }
        records += 1
        tag match {
          case BatchWriter.Put => table.put(hash, in, key, keyLength, in, value, valueLength)
          case BatchWriter.Delete => table.remove(hash, in, key, keyLength)
          case BatchWriter.Merge =>
            val name = Arrays.copyOfRange(in, key, key + keyLength)
            val before = table.get(hash, name)
            if (before.isDefined || table.isWhole) {
              val operand = Arrays.copyOfRange(in, value, value + valueLength)
              table.put(hash, name, TransactionBuffer.merged(before, operand, mergeDelimiter))
            }
          // A range: which keys lie in it, the table does not know.
          case _ => forget()
        }
    }

    /** Counts a key that is there after the record, or is not, in the filter. */
    private def count(keys: KeyFilter, hash: Long, isRow: Boolean): Unit = {
      val wasRow = rowsBefore match {
        case Some(rows) => rows.get(records)
        case None => false
      }
      if (wasRow && !isRow) keys.remove(hash)
      else if (!wasRow && isRow && !keys.add(hash)) closeFilter(): Unit
    }
  }
}

private[statemark] object RowCache {

  /** Counts reads, and tells whether to keep rows pays: not where no operator reads, nor where they read other rows each
    * time. Then none are kept for some versions.
    */
  private final class Use {
    var asked = 0L
    var answered = 0L

    // An operator of sessions reads ranges alone, others evict by them.
    var hasScanned = false
    private var isReadByKey = false

    /** Keys that the filter was asked for, and those of them that have no row. */
    var filtered = 0L
    var absent = 0L
    private var recentlyAsked = 0L
    private var recentlyAnswered = 0L
    private var versions = 0
    private var unasked = 0
    private var versionsToPass = 0

    /** Counts a read of a key by an operator. */
    def read(): Unit = {
      asked += 1
      isReadByKey = true
    }

    /** Tells whether the filter spares lookups. */
    def filterPays: Boolean = filtered < FewestFiltered || absent >= filtered / FewestAnswered

    /** Ends a version; tells whether to keep its rows. */
    def pays(wereKept: Boolean): Boolean = {
      unasked =
        if (hasScanned && !isReadByKey) Recent else if (asked > 0) 0 else unasked + 1
      if (wereKept) {
        versions += 1
        recentlyAsked += asked - recentlyAsked / Recent
        recentlyAnswered += answered - recentlyAnswered / Recent
        if (versions > Recent && recentlyAnswered < recentlyAsked / FewestAnswered)
          versionsToPass = Pause
      } else {
        versions = 0
        recentlyAsked = 0
        recentlyAnswered = 0
        if (versionsToPass > 0) versionsToPass -= 1
      }
      asked = 0
      answered = 0
      hasScanned = false
      versionsToPass == 0 && unasked < Recent
    }
  }

  /** The number of versions of which the use counts. */
  private val Recent = 8

  /** The number of keys that a filter was asked for, below which nothing is known of its use. */
  private val FewestFiltered = 10000L

  /** The least share of reads, as one in so many, that finds its row here. */
  private val FewestAnswered = 8

  /** The number of versions that are not kept. Then they are again, as queries change. */
  private val Pause = 16
}
