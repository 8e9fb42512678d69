package statemark.engine

import java.nio.ByteBuffer
import java.util.{Arrays => JArrays, List => JList}
import org.rocksdb.{DirectSlice, Holder, ReadOptions, RocksDB, RocksIterator, Slice}
import statemark.common.Bytes

/** A cursor over rows of a base store, in key order.
  *
  * ''Thread:'' one at a time.
  */
trait RowCursor extends AutoCloseable {

  /** Returns the key that it stands at, None at the end. */
  def keyOrEnd(): Option[Array[Byte]]

  /** Returns the value that it stands at, before the end only. */
  def value: Array[Byte]

  /** Tells whether it stands at no row, as `keyOrEnd().isEmpty`, which reads a key. */
  def isAtEnd: Boolean = keyOrEnd().isEmpty

  /** Returns the value that it stands at, in `used` where the value is as long.
    * @param used an array that this method has returned, or an empty one; its bytes are lost in any case
    */
  def valueIn(@annotation.unused used: Array[Byte]): Array[Byte] = value

  def next(): Unit
}

/** The rows of the base, under a transaction. */
private[statemark] trait BaseRows {
  def get(key: Array[Byte]): Option[Array[Byte]]

  /** Tells of each of `keys` whether it has a row.
    * @param keys ascending
    * @param rowCount number of rows that there are
    */
  def exist(keys: IndexedSeq[Array[Byte]], rowCount: Long): Array[Boolean]

  /** Returns rows of `[begin, end)` in key order, as they are now. */
  def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): RowCursor

  /** Lets go of what scans have kept for the next one. */
  def rest(): Unit

  /** Tells whether a key has a row, where one of the last scans has shown it. */
  def scanned(key: Array[Byte]): Option[Boolean] = None

  /** Tells whether the last `get` found a row that is in memory here: to ask for it again costs little. */
  def wasKept: Boolean = false

  /** Tells whether to say with the writes of a version which of their keys had rows ([[HeapBatch]]). */
  def wantsRowsBefore: Boolean = false
}

/** Lookups of one key. For a key that is not there RocksDB's `get` throws an exception in C++ and catches it, which takes
  * three times as long as to find out. `keyMayExist` does without, and brings the value, but only from what is in memory,
  * and takes longer where the key is there. So it is asked first while keys are missed often enough (ADR 30).
  *
  * ''Thread:'' any. The balance is an estimate: threads may overwrite each other's.
  *
  * @param mayExist tells whether a key may be there, and puts the value in where it is in memory
  * @param get returns the value, null where there is none
  */
private[engine] final class PointLookup(
    mayExist: (Array[Byte], Holder[Array[Byte]]) => Boolean,
    get: Array[Byte] => Array[Byte]
) {
  import PointLookup._

  // What asking first has gained lately.
  private var balance = 1

  def of(key: Array[Byte]): Option[Array[Byte]] =
    if (balance > 0) askedFirst(key)
    else {
      val value = Option(get(key))
      count(if (value.isDefined) -Found else Missed)
      value
    }

  private def askedFirst(key: Array[Byte]): Option[Array[Byte]] = {
    val value = new Holder[Array[Byte]]
    if (!mayExist(key, value)) {
      count(Missed)
      None
    } else
      // Where the index of a file is not in memory, RocksDB says that it has found the value, and gives an empty one.
      Option(value.getValue).filter(_.nonEmpty) match {
        case None =>
          count(-Twice)
          Option(get(key))
        case found =>
          count(-Found)
          found
      }
  }

  private def count(gain: Int): Unit =
    balance = math.max(-Most, math.min(Most, balance + gain))
}

private[engine] object PointLookup {
  // In units of about 0.25 microseconds.
  private val Missed = 8
  private val Found = 3
  private val Twice = 12
  private val Most = 4096
}

/** Lookups of keys whose values no caller wants. Together keys are found faster, but RocksDB brings their values to the
  * heap: so this is for short values, up to [[ExistenceLookup.ValueBytes]] and one value at once. Long ones stay where
  * they are (ADR 26).
  *
  * ''Thread:'' any.
  *
  * @param together returns the values of keys; null for a key that is not there, and for each key after the values that
  *   have gone over [[ExistenceLookup.ValueBytes]]
  * @param lengthOf returns the length of a value, which stays in native memory; `RocksDB.NOT_FOUND` where there is none
  */
private[engine] final class ExistenceLookup(
    together: JList[Array[Byte]] => JList[Array[Byte]],
    lengthOf: Array[Byte] => Int
) {
  import ExistenceLookup._

  // Of the keys that were found last; not known at first.
  @volatile private var hasShortValues = false

  def of(keys: IndexedSeq[Array[Byte]]): Array[Boolean] = {
    val found = new Array[Boolean](keys.length)
    for (from <- keys.indices by KeysAtOnce) {
      val chunk = from until math.min(from + KeysAtOnce, keys.length)
      def alone(i: Int): Long = {
        val length = lengthOf(keys(i))
        found(i) = length != RocksDB.NOT_FOUND
        if (found(i)) length.toLong else 0L
      }
      var bytes = 0L
      if (hasShortValues) {
        val values = together(JArrays.asList(chunk.map(keys): _*))
        for (i <- chunk; value <- Option(values.get(i - from))) {
          found(i) = true
          bytes += value.length
        }
      }
      if (!hasShortValues || bytes > ValueBytes) for (i <- chunk if !found(i)) bytes += alone(i)
      val rows = chunk.count(found(_))
      if (rows > 0) hasShortValues = bytes / rows <= ShortValue
    }
    found
  }
}

private[engine] object ExistenceLookup {

  /** The bytes of values over which a lookup of many keys ends. */
  val ValueBytes: Long = 1024L * 1024
  private val KeysAtOnce = 1024
  private val ShortValue = ValueBytes / KeysAtOnce

  /** Finds `keys`, which ascend, beside the rows of a scan that begins at the first of them. */
  def byScan(keys: IndexedSeq[Array[Byte]], rows: RowCursor): Array[Boolean] = {
    val found = new Array[Boolean](keys.length)
    var row = rows.keyOrEnd()
    for (i <- keys.indices if row.isDefined) {
      var order = Bytes.order.compare(row.get, keys(i))
      while (order < 0) {
        rows.next()
        row = rows.keyOrEnd()
        order = row.fold(1)(Bytes.order.compare(_, keys(i)))
      }
      found(i) = order == 0
    }
    found
  }
}

/** The cursor of who owns the engine; stands before the end at a row where `isValid`.
  *
  * @param check asks for the state of an iterator, and throws where it could not read
  */
final class EngineScan private[engine] (
    iterator: RocksIterator,
    onClose: () => Unit,
    check: RocksIterator => Unit
) extends RowCursor {
  def isValid: Boolean = {
    val valid = iterator.isValid
    if (!valid) check(iterator)
    valid
  }
  def key: Array[Byte] = iterator.key()

  override def keyOrEnd(): Option[Array[Byte]] = if (isValid) Some(key) else None
  override def value: Array[Byte] = iterator.value()
  override def isAtEnd: Boolean = !isValid

  override def valueIn(used: Array[Byte]): Array[Byte] =
    if (iterator.value(used) == used.length) used else iterator.value()

  override def next(): Unit = iterator.next()
  override def close(): Unit = onClose()
}

private[engine] object EngineScan {

  /** Returns rows of `[begin, end)`.
    * @param options the scan's from now on
    * @param check as the scan's
    */
  def open(
      newIterator: ReadOptions => RocksIterator,
      options: ReadOptions,
      begin: Option[Array[Byte]],
      end: Option[Array[Byte]]
  )(check: RocksIterator => Unit): EngineScan = {
    val handles = new NativeHandles
    handles.add(options): Unit
    end.foreach(e => options.setIterateUpperBound(handles.add(new Slice(e))))
    val iterator = handles.add(newIterator(options))
    begin.fold(iterator.seekToFirst())(iterator.seek)
    new EngineScan(iterator, () => handles.close(), check)
  }
}

/** Iterators that scans use one after another: opening one takes longer than to seek it (ADR 31). RocksDB looks at the
  * bound of an iterator anew with each seek. One is kept, and no longer than the base stands still, as it shows what
  * was there when it was opened.
  *
  * ''Thread:'' any; a scan has its iterator for itself.
  */
private[engine] final class SpareIterator(
    newIterator: ReadOptions => RocksIterator,
    check: RocksIterator => Unit
) extends AutoCloseable {
  import SpareIterator._

  private var spare = Option.empty[Bounded]
  private var writes = 0L
  private var isClosed = false

  /** Returns rows of `[begin, end)`. The end is not longer than `LongestEnd`. */
  def scan(begin: Option[Array[Byte]], end: Array[Byte]): EngineScan = {
    val taken = take()
    taken.seek(begin, end)
    new EngineScan(taken.iterator, () => giveBack(taken), check)
  }

  private def take(): Bounded = {
    val (found, now) = synchronized {
      val kept = spare
      spare = None
      (kept, writes)
    }
    found.getOrElse(new Bounded(newIterator, now))
  }

  private def giveBack(used: Bounded): Unit = {
    val isKept = synchronized {
      val fits = !isClosed && spare.isEmpty && used.openedAt == writes
      if (fits) spare = Some(used)
      fits
    }
    if (!isKept) used.close()
  }

  /** Records that the base has changed. */
  def written(): Unit = {
    synchronized(writes += 1)
    rest()
  }

  /** Closes what is kept, which holds the memtables and files that were there as it was opened. */
  def rest(): Unit = {
    val kept = synchronized {
      val found = spare
      spare = None
      found
    }
    kept.foreach(_.close())
  }

  override def close(): Unit = {
    synchronized { isClosed = true }
    rest()
  }
}

private[engine] object SpareIterator {

  /** The bytes of the longest end of a scan that one is kept for: most ends are prefixes. */
  val LongestEnd = 256

  /** An iterator whose upper bound can be changed.
    * @param openedAt the number of writes then
    */
  private final class Bounded(newIterator: ReadOptions => RocksIterator, val openedAt: Long)
      extends AutoCloseable {
    private val handles = new NativeHandles
    private val bytes = ByteBuffer.allocateDirect(LongestEnd)
    private val bound = handles.add(new DirectSlice(bytes, LongestEnd))
    val iterator: RocksIterator =
      handles.add(newIterator(handles.add(new ReadOptions().setIterateUpperBound(bound))))

    def seek(begin: Option[Array[Byte]], end: Array[Byte]): Unit = {
      bytes.put(0, end)
      bound.setLength(end.length)
      if (begin.isEmpty) iterator.seekToFirst() else iterator.seek(begin.get)
    }

    override def close(): Unit = handles.close()
  }
}
