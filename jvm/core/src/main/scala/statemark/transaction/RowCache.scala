package statemark.transaction

import java.util.Arrays
import java.util.concurrent.locks.ReentrantLock
import statemark.common.KeyHash
import statemark.engine.{BaseRows, BatchReader, BatchWriter, HeapBatch, RowCursor, SerializedBatch}
import statemark.staging.TransactionBuffer

/** The base, with rows in memory that were read or written last: finding one there takes a tenth of what RocksDB
  * takes (ADR 32). It changes with the base, and never before it. Where a store begins without rows, and memory has room
  * for all of them, it also knows which keys have none.
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
    pages.join(count => if (lock.tryLock()) unlocking(kept.fold(0)(_.giveBack(count))) else 0)
  // None where it does not pay.
  @volatile private var kept: Option[RowTable] = Some(new RowTable(memory, isEmpty))
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
    use.asked += 1
    wasKept_ = false
    kept match {
      case None => base.get(key)
      case Some(table) =>
        val hash = KeyHash.of(key)
        lock.lock()
        val (known, isWhole) =
          try (table.get(hash, key), table.isWhole)
          finally lock.unlock()
        if (known.isDefined || isWhole) {
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

  override def exist(keys: IndexedSeq[Array[Byte]], rowCount: Long): Array[Boolean] = {
    use.asked += keys.length
    kept match {
      case None => base.exist(keys, rowCount)
      case Some(table) =>
        val (found, isWhole) = locked {
          (keys.iterator.map(key => table.has(KeyHash.of(key), key)).toArray, table.isWhole)
        }
        val others = if (isWhole) IndexedSeq.empty else keys.indices.filterNot(found(_))
        use.answered += keys.length - others.length
        if (others.nonEmpty) {
          val rest = base.exist(others.map(keys), rowCount)
          for (i <- others.indices) found(others(i)) = rest(i)
        }
        found
    }
  }

  override def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): RowCursor =
    scans.scan(begin, end)(base.scan(begin, end))

  override def rest(): Unit = base.rest()

  /** Records that `batch` has been written to the base. */
  def written(batch: SerializedBatch): Unit = {
    scans.forget()
    locked {
      val keeps = use.pays(wereKept = kept.isDefined)
      batch match {
        case heap: HeapBatch if keeps =>
          if (kept.isEmpty) kept = Some(new RowTable(memory, hasAll = false))
          heap.foreachRecord(Changes)
        case _ => forget()
      }
    }
  }

  /** Drops all rows. The caller has the lock. */
  private def forget(): Unit = {
    val before = kept
    kept = None
    before.foreach(_.close())
  }

  /** Gives back the memory. ''Thread:'' any. */
  override def close(): Unit = {
    locked(forget())
    memory.close()
  }

  /** Does with the table what a batch has done with the base. */
  private object Changes extends BatchReader.Visitor {
    override def record(
        tag: Byte,
        in: Array[Byte],
        key: Int,
        keyLength: Int,
        value: Int,
        valueLength: Int
    ): Unit = kept.foreach { table =>
      val hash = KeyHash.of(in, key, keyLength)
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
  }
}

private[statemark] object RowCache {

  /** Counts reads, and tells whether to keep rows pays: not where no operator reads, nor where they read other rows each
    * time. Then none are kept for some versions.
    */
  private final class Use {
    var asked = 0L
    var answered = 0L
    private var recentlyAsked = 0L
    private var recentlyAnswered = 0L
    private var versions = 0
    private var unasked = 0
    private var versionsToPass = 0

    /** Ends a version; tells whether to keep its rows. */
    def pays(wereKept: Boolean): Boolean = {
      unasked = if (asked == 0) unasked + 1 else 0
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
      versionsToPass == 0 && unasked < Recent
    }
  }

  /** The number of versions of which the use counts. */
  private val Recent = 8

  /** The least share of reads, as one in so many, that finds its row here. */
  private val FewestAnswered = 8

  /** The number of versions that are not kept. Then they are again, as queries change. */
  private val Pause = 16
}
