package statemark.bench

import java.util.{Arrays, Comparator, HashMap => JHashMap, Map => JMap}
import java.util.concurrent.{ConcurrentHashMap, ConcurrentSkipListMap}

import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

import org.rocksdb.WriteBatchWithIndex

/** Staged writes of one open transaction over a base store. One owner; a scan sees the store as it
  * was when the scan was opened, staged writes included, later ones not.
  */
trait StagingBuffer extends AutoCloseable {
  def put(key: Array[Byte], value: Array[Byte]): Unit
  def get(key: Array[Byte]): Option[Array[Byte]]

  /** Pairs under the prefix in key order; close the scan when done. */
  def scan(prefix: Array[Byte]): Scan

  /** Writes everything to the base as one batch. @return nanoseconds by phase */
  def commit(): Map[String, Double]
}

trait Scan extends Iterator[(Array[Byte], Array[Byte])] with AutoCloseable

/** What the three JVM-side buffers share: cells with versions, and the commit in key order. */
abstract class CellBuffer(base: BaseStore) extends StagingBuffer {
  private var sequence = 0L
  private var openScans = 0

  /** The cell of the key, or none when the key has not been staged. */
  protected def find(key: StagedKey): Cell
  protected def add(cell: Cell): Unit
  protected def size: Int

  /** Cells in key order from the first that is not before `from`. */
  protected def ordered(from: StagedKey): Iterator[Cell]

  final override def put(key: Array[Byte], value: Array[Byte]): Unit = {
    sequence += 1
    val staged = new StagedKey(key)
    val cell = find(staged)
    if (cell == null) add(new Cell(staged, new Version(sequence, value, null)))
    else cell.newest = new Version(sequence, value, if (openScans > 0) cell.newest else null)
  }

  final override def get(key: Array[Byte]): Option[Array[Byte]] = {
    val cell = find(new StagedKey(key))
    if (cell != null) Some(cell.newest.value) else base.get(key)
  }

  final override def scan(prefix: Array[Byte]): Scan = {
    openScans += 1
    new MergedScan(prefix, sequence, ordered(new StagedKey(prefix)), base.scan(prefix)) {
      override def close(): Unit = {
        super.close()
        openScans -= 1
      }
    }
  }

  final override def commit(): Map[String, Double] = {
    var cells: Iterator[Cell] = Iterator.empty
    val order = Rounds.timed { cells = ordered(new StagedKey(Array.emptyByteArray)) }
    var batch = Array.emptyByteArray
    val serialize = Rounds.timed {
      val out = new SerializedBatch(size * 64)
      cells.foreach(c => out.put(c.key.bytes, c.newest.value))
      batch = out.result()
    }
    val apply = Rounds.timed(base.write(batch))
    Map("order" -> order, "serialize" -> serialize, "apply" -> apply)
  }

  override def close(): Unit = ()
}

/** (a) A hash map; order is made anew whenever a scan or the commit finds it out of date. */
final class HashSortOnDemand(base: BaseStore) extends CellBuffer(base) {
  private val cells = new JHashMap[StagedKey, Cell]()
  private var sorted = Array.empty[Cell]

  override protected def find(key: StagedKey): Cell = cells.get(key)
  override protected def add(cell: Cell): Unit = cells.put(cell.key, cell): Unit
  override protected def size: Int = cells.size

  override protected def ordered(from: StagedKey): Iterator[Cell] = {
    // A changed value needs no new order, as cells are shared; only a new key does.
    if (sorted.length != cells.size) sorted = CellBuffer.sorted(cells)
    val start = CellBuffer.lowerBound(sorted, from)
    sorted.iterator.drop(start)
  }
}

/** (b) A skip list for everything. */
final class SkipListOnly(base: BaseStore) extends CellBuffer(base) {
  private val cells = new ConcurrentSkipListMap[StagedKey, Cell](StagedKey.byFirst8ThenFull)
  // The list counts by walking.
  private var count = 0

  override protected def find(key: StagedKey): Cell = cells.get(key)
  override protected def add(cell: Cell): Unit = {
    cells.put(cell.key, cell)
    count += 1
  }
  override protected def size: Int = count
  override protected def ordered(from: StagedKey): Iterator[Cell] =
    cells.tailMap(from, true).values.iterator.asScala
}

/** (c) A hash map for points; a skip list beside it from the first scan on, kept up to date. */
final class HashLazyIndex(base: BaseStore, cells: JMap[StagedKey, Cell]) extends CellBuffer(base) {
  private var index: Option[ConcurrentSkipListMap[StagedKey, Cell]] = None

  override protected def find(key: StagedKey): Cell = cells.get(key)
  override protected def add(cell: Cell): Unit = {
    cells.put(cell.key, cell)
    // Only a new key reaches the index: a changed value is a new version in the shared cell.
    index.foreach(_.put(cell.key, cell))
  }
  override protected def size: Int = cells.size

  override protected def ordered(from: StagedKey): Iterator[Cell] =
    if (index.isEmpty && from.bytes.isEmpty) CellBuffer.sorted(cells).iterator
    else {
      if (index.isEmpty) index = Some(CellBuffer.indexed(cells))
      index.get.tailMap(from, true).values.iterator.asScala
    }
}

/** (d) RocksDB's own indexed batch, one JNI call an operation. Its iterators are live, so a scan is
  * drained when it is opened: the cheapest correct snapshot for the few rows of a prefix.
  */
final class IndexedBatch(base: BaseStore) extends StagingBuffer {
  private val batch = new WriteBatchWithIndex(true)

  override def put(key: Array[Byte], value: Array[Byte]): Unit = batch.put(key, value)
  override def get(key: Array[Byte]): Option[Array[Byte]] =
    Option(batch.getFromBatchAndDB(base.db, base.readOptions, key))

  override def scan(prefix: Array[Byte]): Scan = {
    val rows = ArrayBuffer.empty[(Array[Byte], Array[Byte])]
    // The merged iterator owns and closes the one over the base.
    val merged = batch.newIteratorWithBase(base.db.newIterator(base.readOptions))
    try {
      merged.seek(prefix)
      var more = true
      while (more && merged.isValid) {
        val key = merged.key()
        more = BaseStore.startsWith(key, prefix)
        if (more) {
          rows += ((key, merged.value()))
          merged.next()
        }
      }
    } finally merged.close()
    val drained = rows.iterator
    new Scan {
      override def hasNext: Boolean = drained.hasNext
      override def next(): (Array[Byte], Array[Byte]) = drained.next()
      override def close(): Unit = ()
    }
  }

  override def commit(): Map[String, Double] =
    Map("apply" -> Rounds.timed(base.db.write(base.writeOptions, batch)))
  override def close(): Unit = batch.close()
}

object CellBuffer {
  private val byKey: Comparator[Cell] = (a, b) => StagedKey.byFirst8ThenFull.compare(a.key, b.key)

  def sorted(cells: JMap[StagedKey, Cell]): Array[Cell] = {
    val out = cells.values.toArray(new Array[Cell](0))
    Arrays.sort(out, byKey)
    out
  }

  /** Sorted first: a skip list takes ascending keys much faster than random ones. */
  def indexed(cells: JMap[StagedKey, Cell]): ConcurrentSkipListMap[StagedKey, Cell] = {
    val index = new ConcurrentSkipListMap[StagedKey, Cell](StagedKey.byFirst8ThenFull)
    sorted(cells).foreach(c => index.put(c.key, c))
    index
  }

  def lowerBound(cells: Array[Cell], from: StagedKey): Int = {
    var low = 0
    var high = cells.length
    while (low < high) {
      val mid = (low + high) >>> 1
      if (StagedKey.byFirst8ThenFull.compare(cells(mid).key, from) < 0) low = mid + 1
      else high = mid
    }
    low
  }

  /** The contenders, by the name under which they are reported. */
  val contenders: Seq[(String, BaseStore => StagingBuffer)] = Seq(
    "hash + sort on demand" -> (new HashSortOnDemand(_)),
    "skip list" -> (new SkipListOnly(_)),
    "hash + lazy index" -> (new HashLazyIndex(_, new JHashMap[StagedKey, Cell]())),
    "concurrent hash + lazy index" ->
      (new HashLazyIndex(_, new ConcurrentHashMap[StagedKey, Cell]())),
    "WriteBatchWithIndex" -> (new IndexedBatch(_))
  )
}
