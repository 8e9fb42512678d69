package statemark.transaction

import java.util.Arrays
import statemark.common.KeyHash
import statemark.engine.{BaseRows, BatchReader, BatchWriter, HeapBatch, RowCursor, SerializedBatch}
import statemark.staging.{PagedTable, TransactionBuffer}

/** The base, with rows on the heap that were read or written last: finding one there takes a tenth of what RocksDB
  * takes (ADR 32). It changes with the base, and never before it. Where a store begins without rows, and memory has room
  * for all of them, it also knows which keys have none.
  *
  * Two tables hold them, the newer one with what was used since the older one was full. Full is half of the store's share
  * of the memory; the older table is dropped when the newer one is full as well.
  *
  * ''Thread:'' as the base; `written` under the lock of the store. Any thread may forget beside the owner,
  * who goes on with the tables that it has found: they are as true as the base. The owner alone gives arrays of a table
  * back to the pool, what others forget is left to the garbage collector.
  *
  * @param memory in which they are counted
  * @param isEmpty whether the base has no rows yet
  */
private[statemark] final class RowCache(
    base: BaseRows,
    mergeDelimiter: Array[Byte],
    memory: UncommittedMemory#Member,
    isEmpty: Boolean
) extends BaseRows {
  import RowCache._

  @volatile private var tables = new Tables(new RowTable, None, isWhole = isEmpty)
  private val use = new Use
  private val scans = new ShortScans

  override def get(key: Array[Byte]): Option[Array[Byte]] = {
    val now = tables
    use.asked += 1
    if (now eq Off) base.get(key)
    else {
      val hash = KeyHash.of(key)
      val known = now.find(hash, key)
      if (known.isDefined || now.isWhole) {
        use.answered += 1
        // A row of the older table has moved.
        withRoom(now): Unit
        known
      } else {
        val found = base.get(key)
        found.foreach { value =>
          now.put(hash, key, value)
          withRoom(now): Unit
        }
        found
      }
    }
  }

  override def exist(keys: IndexedSeq[Array[Byte]], rowCount: Long): Array[Boolean] = {
    val now = tables
    use.asked += keys.length
    if (now eq Off) base.exist(keys, rowCount)
    else {
      val found = keys.iterator.map(key => now.has(KeyHash.of(key), key)).toArray
      val others = if (now.isWhole) IndexedSeq.empty else keys.indices.filterNot(found(_))
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
    val now = begun(use.pays(wereKept = tables ne Off))
    batch match {
      case heap: HeapBatch if now ne Off => heap.foreachRecord(new Changes(now))
      case _ => forget()
    }
  }

  /** Returns the tables to write to, which are new where there are none and rows are to be kept. */
  private def begun(keeps: Boolean): Tables = synchronized {
    if (keeps && (tables eq Off)) tables = new Tables(new RowTable, None, isWhole = false)
    if (keeps) tables else Off
  }

  /** Drops all rows. ''Thread:'' any, without the lock of the store, which may be held for long. */
  def forget(): Unit = synchronized {
    tables = Off
    memory.forget()
  }

  /** Returns the tables to go on with: `now`, or others where these have become too large; none where there is no room,
    * or where they were forgotten meanwhile.
    */
  private def withRoom(now: Tables): Tables =
    if (now.newer.heapBytes <= now.checkedBytes) now
    else synchronized {
      if (tables eq now) {
        val isFull = now.newer.heapBytes > memory.share / 2
        val next = if (isFull) now.smaller else now
        next.checkedBytes = next.newer.heapBytes
        if (memory.keep(next.heapBytes)) {
          tables = next
          now.freeOthers(next)
        } else forget()
      }
      tables
    }

  /** Does with the tables what a batch has done with the base. */
  private final class Changes(begun: Tables) extends BatchReader.Visitor {
    private var now = begun

    override def record(
        tag: Byte,
        in: Array[Byte],
        key: Int,
        keyLength: Int,
        value: Int,
        valueLength: Int
    ): Unit = if (now ne Off) {
      val hash = KeyHash.of(in, key, keyLength)
      tag match {
        case BatchWriter.Put => now.put(hash, in, key, keyLength, in, value, valueLength)
        case BatchWriter.Delete => now.remove(hash, in, key, keyLength)
        case BatchWriter.Merge =>
          val name = Arrays.copyOfRange(in, key, key + keyLength)
          val before = now.find(hash, name)
          if (before.isDefined || now.isWhole) {
            val operand = Arrays.copyOfRange(in, value, value + valueLength)
            now.put(hash, name, TransactionBuffer.merged(before, operand, mergeDelimiter))
          }
        // A range: which keys lie in it, the tables do not know.
        case _ => forget()
      }
      now = if (tag == BatchWriter.DeleteRange) Off else withRoom(now)
    }
  }
}

private[statemark] object RowCache {

  // For the rows of stores whose uncommitted writes have no limit.
  private val withoutLimit = new UncommittedMemory
  private val MostWithoutLimit = Runtime.getRuntime.maxMemory / 10

  /** Returns where a store counts its rows whose uncommitted writes have no limit.
    * @param onPressure drops them
    */
  def membership(onPressure: () => Unit): UncommittedMemory#Member = withoutLimit.join(
    MostWithoutLimit,
    new UncommittedMemory.Store {
      override def forget(): Unit = onPressure()
      override def spillPrepared(): Unit = ()
    }
  )

  /** @param isWhole whether they have all rows of the base: a key that they do not know of has none */
  private final class Tables(val newer: RowTable, older: Option[RowTable], var isWhole: Boolean) {

    /** The size of the newer table when its memory was last asked for. */
    var checkedBytes = 0L

    def heapBytes: Long = newer.heapBytes + older.fold(0L)(_.heapBytes)

    /** Returns the row of a key, which stays longer for it. */
    def find(hash: Long, key: Array[Byte]): Option[Array[Byte]] = {
      val place = newer.find(hash, key)
      if (place != PagedTable.NoEntry) Some(newer.value(place))
      else older match {
        case None => None
        case Some(table) =>
          val before = table.find(hash, key)
          if (before == PagedTable.NoEntry) None
          else {
            val value = table.value(before)
            put(hash, key, value)
            Some(value)
          }
      }
    }

    def has(hash: Long, key: Array[Byte]): Boolean =
      newer.find(hash, key) != PagedTable.NoEntry ||
        older.exists(_.find(hash, key) != PagedTable.NoEntry)

    def put(hash: Long, key: Array[Byte], value: Array[Byte]): Unit =
      put(hash, key, 0, key.length, value, 0, value.length)

    def put(
        hash: Long,
        key: Array[Byte],
        keyFrom: Int,
        keyLength: Int,
        value: Array[Byte],
        valueFrom: Int,
        valueLength: Int
    ): Unit =
      if (!newer.put(hash, key, keyFrom, keyLength, value, valueFrom, valueLength)) {
        isWhole = false
        older.foreach(_.remove(hash, key, keyFrom, keyLength))
      }

    def remove(hash: Long, key: Array[Byte], from: Int, length: Int): Unit = {
      newer.remove(hash, key, from, length)
      older.foreach(_.remove(hash, key, from, length))
    }

    /** Returns tables that hold less. */
    def smaller: Tables =
      if (newer.isMostlyDead) new Tables(newer.compacted(), older, isWhole)
      else new Tables(new RowTable, Some(newer), isWhole && older.isEmpty)

    /** Gives back the tables that the `next` ones do not have. */
    def freeOthers(next: Tables): Unit =
      for (table <- Some(newer) ++ older if !next.has(table)) table.free()

    private def has(table: RowTable): Boolean = (newer eq table) || older.exists(_ eq table)
  }

  /** No tables. */
  private val Off = new Tables(new RowTable, None, isWhole = false)

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
