package statemark.staging

import java.nio.ByteBuffer
import java.util.Arrays
import statemark.common.{ArrayPool, Buffers}
import statemark.engine.BatchWriter

/** The entries of a transaction by key: the write of a key that stands, if any, and whether the base has the key. The
  * number of an entry is its place.
  *
  * {{{
  *   entry   int64 sequence number of the write | int64 place of the value | int32 its length | int32 its room
  *           | int16 kind of the write | int16 whether the base has the key | int32 length of the key | key
  * }}}
  * A value is replaced where it lies, as long as it has room there; what a longer one leaves behind is lost.
  * Pages and slots go back to the pool with `clear`. Nothing that is returned refers to them.
  *
  * ''Thread:'' the owner of the transaction. Others may look beside it: what they find then means nothing until they know
  * that the owner changed nothing meanwhile, but they neither hang nor ask for much memory.
  */
private[statemark] final class StagedTable(pool: ArrayPool, expected: Int = 0)
    extends PagedTable(pool, StagedTable.HeaderBytes, expected) {
  import Buffers.{int, long, setInt, setLong, setShort, short}
  import PagedTable._
  import StagedTable._

  // Pages that several entries share; the last of them is being filled.
  private var sharedPages = 0
  private var filling = 0
  private var used = 0
  private var bytes_ = 0L
  private var entries_ = 0
  private var clears = 0

  def entries: Int = entries_

  /** Bytes of entries with keys and values, of what these have left behind, and of slots. */
  def bytes: Long = bytes_

  override protected def keyLengthAt(page: ByteBuffer, at: Int): Int =
    int(page, at + KeyLengthAt)

  /** Returns how many slots a call for `key` looks at that are of other keys or its own. */
  def looks(hash: Long, key: Array[Byte]): Int = {
    val slots = tables(tableOf(hash))
    val found = slotOf(slots, hash, key)
    val passed = (found - home(hash >>> PlaceBits, slots)) & (slots.length - 1)
    passed + (if (slots(found) == 0) 0 else 1)
  }

  /** Adds an entry for a key that has none: without a write, and the base is unknown. */
  def add(hash: Long, key: Array[Byte]): Long = {
    val entry = allocate(HeaderBytes + key.length)
    val page = pageOf(entry)
    val at = offsetOf(entry)
    setLong(page, at + SeqAt, 0)
    setLong(page, at + ValueAt, 0)
    // Of the value's length and room, and of the rest.
    setLong(page, at + ValueLengthAt, 0)
    setInt(page, at + OpAt, 0)
    setInt(page, at + KeyLengthAt, key.length)
    Buffers.write(page, at + HeaderBytes, key, 0, key.length)
    link(tableOf(hash), slot(hash, entry))
    entries_ += 1
    bytes_ += SlotBytes
    entry
  }

  /** Returns the place of so many bytes. */
  private def allocate(bytes: Int): Long = {
    bytes_ += bytes
    if (bytes > LongestShared)
      placeOf(addPage(ByteBuffer.allocate(bytes + FirstOffset)), FirstOffset)
    else {
      if (sharedPages == 0 || used + bytes > pages(filling).capacity) {
        if (sharedPages > 0) bytes_ += pages(filling).capacity - used
        filling = addPage(sharedPage(sharedPages, bytes))
        sharedPages += 1
        used = FirstOffset
      }
      val at = used
      used += bytes
      placeOf(filling, at)
    }
  }

  def hasWrite(entry: Long): Boolean = op(entry) != NoWrite

  def op(entry: Long): Byte = opAt(pageOf(entry), offsetOf(entry))
  def inBase(entry: Long): Byte = short(pageOf(entry), offsetOf(entry) + InBaseAt).toByte
  def seq(entry: Long): Long = long(pageOf(entry), offsetOf(entry) + SeqAt)
  def valueLength(entry: Long): Int = int(pageOf(entry), offsetOf(entry) + ValueLengthAt)

  def setInBase(entry: Long, inBase: Byte): Unit =
    setShort(pageOf(entry), offsetOf(entry) + InBaseAt, inBase)

  /** Replaces the write of an entry. */
  def write(entry: Long, op: Byte, seq: Long, value: Array[Byte]): Unit = {
    val page = pageOf(entry)
    val at = offsetOf(entry)
    if (value.length > int(page, at + RoomAt)) moveValue(page, at, value.length, kept = 0)
    val place = long(page, at + ValueAt)
    Buffers.write(pageOf(place), offsetOf(place), value, 0, value.length)
    written(page, at, op, seq, value.length)
  }

  /** Appends a delimiter and an operand to the value of an entry. */
  def append(entry: Long, seq: Long, delimiter: Array[Byte], operand: Array[Byte]): Unit = {
    val page = pageOf(entry)
    val at = offsetOf(entry)
    val before = int(page, at + ValueLengthAt)
    val length = Math.addExact(before, delimiter.length + operand.length)
    if (length > int(page, at + RoomAt)) moveValue(page, at, length, kept = before)
    val place = long(page, at + ValueAt)
    pageOf(place).put(offsetOf(place) + before, delimiter)
      .put(offsetOf(place) + before + delimiter.length, operand): Unit
    written(page, at, opAt(page, at), seq, length)
  }

  private def written(page: ByteBuffer, at: Int, op: Byte, seq: Long, length: Int): Unit = {
    setLong(page, at + SeqAt, seq)
    setInt(page, at + ValueLengthAt, length)
    setShort(page, at + OpAt, op)
  }

  /** Finds room for a value that has become longer: twice as much as before, so that all that a value leaves behind is
    * no more than it has.
    */
  private def moveValue(page: ByteBuffer, at: Int, length: Int, kept: Int): Unit = {
    val before = int(page, at + RoomAt)
    // A long value that is replaced goes to the collector, and needs no room to grow into.
    val grows = kept > 0 || before <= LongestShared
    val room = if (grows) math.max(length, math.min(2L * before, MaxRoom).toInt) else length
    val from = long(page, at + ValueAt)
    val to = allocate(room)
    if (kept > 0) pageOf(to).put(offsetOf(to), pageOf(from), offsetOf(from), kept): Unit
    if (before > LongestShared) {
      pages((from >>> PageBits).toInt) = NoPage
      bytes_ -= before
    }
    setLong(page, at + ValueAt, to)
    setInt(page, at + RoomAt, room)
  }

  private def keyFrom(entry: Long): Int = offsetOf(entry) + HeaderBytes
  def keyLength(entry: Long): Int = keyLengthAt(pageOf(entry), offsetOf(entry))

  def key(entry: Long): Array[Byte] = copied(pageOf(entry), keyFrom(entry), keyLength(entry))

  /** Returns the first bytes of the value. */
  def value(entry: Long, length: Int): Array[Byte] = {
    val place = long(pageOf(entry), offsetOf(entry) + ValueAt)
    copied(pageOf(place), offsetOf(place), length)
  }

  /** Returns the write of an entry. */
  def standing(entry: Long): StagedLookup =
    StagedLookup(op(entry), value(entry, valueLength(entry)))

  /** Copies no more than there is, whatever a reader beside the owner has read. */
  private def copied(page: ByteBuffer, from: Int, length: Int): Array[Byte] = {
    java.util.Objects.checkFromIndexSize(from, length, page.capacity): Unit
    val result = new Array[Byte](length)
    Buffers.read(page, from, result, 0, length)
    result
  }

  def compare(a: Long, b: Long): Int = compareKey(a, pageOf(b), keyFrom(b), keyLength(b))

  /** Compares the key of an entry with `key`. */
  def compareKey(entry: Long, key: Array[Byte]): Int = compareKey(entry, ByteBuffer.wrap(key))

  /** Compares the key of an entry with all bytes of a buffer. */
  def compareKey(entry: Long, key: ByteBuffer): Int = compareKey(entry, key, 0, key.limit())

  private def compareKey(entry: Long, other: ByteBuffer, from: Int, length: Int): Int =
    Buffers.compare(pageOf(entry), keyFrom(entry), keyLength(entry), other, from, length)

  /** Returns how many bytes the keys of two entries have in common, `most` at most. */
  def sharedBytes(a: Long, b: Long, most: Int): Int = {
    val length = math.min(most, math.min(keyLength(a), keyLength(b)))
    Buffers.shared(pageOf(a), keyFrom(a), pageOf(b), keyFrom(b), length)
  }

  /** Returns eight bytes of the key as a number, zeros after its end. */
  def prefix(entry: Long, from: Int): Long = {
    val page = pageOf(entry)
    val at = keyFrom(entry) + from
    val left = keyLength(entry) - from
    if (left >= java.lang.Long.BYTES) Buffers.prefix(page, at)
    else {
      var result = 0L
      var i = 0
      while (i < java.lang.Long.BYTES) {
        result = (result << 8) | (if (i < left) page.get(at + i) & 0xffL else 0L)
        i += 1
      }
      result
    }
  }

  /** Writes the put, the delete, or the merge of an entry. */
  def writeTo(out: BatchWriter, entry: Long): Unit = {
    val page = pageOf(entry)
    val at = offsetOf(entry)
    val place = long(page, at + ValueAt)
    val tag = opAt(page, at) match {
      case Put => BatchWriter.Put
      case Delete => BatchWriter.Delete
      case _ => BatchWriter.Merge
    }
    out.record(
      tag,
      page,
      at + HeaderBytes,
      keyLength(entry),
      pageOf(place),
      offsetOf(place),
      if (tag == BatchWriter.Delete) -1 else int(page, at + ValueLengthAt)
    )
  }

  /** Copies the writes of one of the tables of slots: each as it is at some moment, which `beside` makes sure of. */
  def copyBeside[A](table: Int, beside: Beside)(copy: Long => A): Vector[A] = {
    val (slots, before) = beside((tables(table), clears))
    val found = Vector.newBuilder[A]
    var isSame = true
    var i = 0
    while (isSame && i < slots.length) {
      val entry = beside {
        isSame = (tables(table) eq slots) && clears == before
        if (isSame && slots(i) != 0 && hasWrite(slots(i) & PlaceMask))
          Some(copy(slots(i) & PlaceMask))
        else None
      }
      found ++= entry
      i += 1
    }
    // It has grown, and entries have moved, or has been cleared.
    if (isSame) found.result() else copyBeside(table, beside)(copy)
  }

  /** Forgets all entries. */
  def clear(): Unit = {
    giveAll()
    sharedPages = 0
    bytes_ = 0
    entries_ = 0
    clears += 1
  }
}

private[statemark] object StagedTable {

  import Buffers.short

  /** Reads of another thread than the owner's. */
  trait Beside {
    def apply[A](read: => A): A
  }

  final val NoWrite: Byte = 0
  final val Put: Byte = 1
  final val Delete: Byte = 2

  /** Operands to append to what the base has. */
  final val Merge: Byte = 3

  /** No read has told yet whether the base has the key. */
  final val Unknown: Byte = 0
  final val Present: Byte = 1
  final val Absent: Byte = 2

  private final val SeqAt = 0
  private final val ValueAt = 8
  private final val ValueLengthAt = 16
  private final val RoomAt = 20
  private final val OpAt = 24
  private final val InBaseAt = 26
  private final val KeyLengthAt = 28
  final val HeaderBytes: Int = 32

  /** Bytes beside an entry: its slot, as slots are three eighths to three quarters full, and its place in key order. */
  final val SlotBytes: Int = 24

  /** The longest piece that shares a page: of a page little is left empty. */
  private final val LongestShared = 32 * 1024
  private final val MaxRoom = Int.MaxValue - 16L

  private val NoPage = ByteBuffer.allocate(0)

  private def opAt(page: ByteBuffer, at: Int): Byte = short(page, at + OpAt).toByte
}

/** A write of an entry, whose place a later one may have taken.
  *
  * @param value holds the value in its first `length` bytes; [[OlderWrite.InPlace]] where the value that the entry has
  *   begins with it
  */
private[statemark] final case class OlderWrite(
    seq: Long,
    op: Byte,
    value: Array[Byte],
    length: Int
) {
  def isInPlace: Boolean = value eq OlderWrite.InPlace

  def valueIn(table: StagedTable, entry: Long): Array[Byte] =
    if (isInPlace) table.value(entry, length) else Arrays.copyOf(value, length)
}

private[statemark] object OlderWrite {
  val InPlace: Array[Byte] = new Array[Byte](0)

  /** Returns the write that stands. */
  def newest(table: StagedTable, entry: Long): OlderWrite =
    OlderWrite(table.seq(entry), table.op(entry), InPlace, table.valueLength(entry))
}
