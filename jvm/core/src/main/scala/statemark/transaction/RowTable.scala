package statemark.transaction

import java.util.Arrays
import scala.annotation.tailrec
import statemark.staging.ArrayPool

/** Rows by key, as bytes in pages: millions of them are a few thousand objects to the garbage collector.
  *
  * A slot is a number: the page and offset where the row lies, and the upper bits of the key's hash. The lowest bits
  * choose one of 256 small tables, so that growing copies a small part of the slots.
  *
  * {{{
  *   row    int16 length of key | int16 length of value | key | value
  * }}}
  *
  * ''Thread:'' one at a time.
  */
private[transaction] final class RowTable(pool: ArrayPool = ArrayPool.shared) {
  import RowTable._

  private val tables = Array.fill(Tables)(NoSlots)
  private val counts = new Array[Int](Tables)
  private var pages = new Array[Array[Byte]](4)
  private var pageCount = 0
  // Of the last page.
  private var used = 0
  private var heapBytes_ = Tables * 12L
  private var deadBytes = 0L

  def heapBytes: Long = heapBytes_

  /** Tells whether most of what the pages hold was replaced or removed. */
  def isMostlyDead: Boolean = deadBytes > MinDead && deadBytes * 2 > heapBytes_

  /** Returns where `key` is, negative where the table does not know of it. */
  def find(hash: Long, key: Array[Byte]): Long = find(hash, key, 0, key.length)

  private def find(hash: Long, key: Array[Byte], from: Int, length: Int): Long = {
    val slot = slotOf(hash, key, from, length)
    if (slot < 0) Unknown else tables(tableOf(hash))(slot) & PlaceMask
  }

  /** Returns the slot of `key`; negative where it has none. */
  private def slotOf(hash: Long, key: Array[Byte], from: Int, length: Int): Int = {
    val slots = tables(tableOf(hash))
    val tag = hash >>> PlaceBits
    var at = home(tag, slots)
    while (
      slots(at) != 0 && !(slots(at) >>> PlaceBits == tag && isAt(slots(at), key, from, length))
    )
      at = (at + 1) & (slots.length - 1)
    if (slots(at) == 0) -1 else at
  }

  private def isAt(slot: Long, key: Array[Byte], from: Int, length: Int): Boolean = {
    val page = pageOf(slot)
    val at = offsetOf(slot)
    keyLength(page, at) == length &&
    Arrays.equals(page, at + HeaderBytes, at + HeaderBytes + length, key, from, from + length)
  }

  def value(place: Long): Array[Byte] = {
    val page = pageOf(place)
    val at = offsetOf(place)
    val from = at + HeaderBytes + keyLength(page, at)
    Arrays.copyOfRange(page, from, from + valueLength(place))
  }

  private def valueLength(place: Long): Int =
    (Shorts.get(pageOf(place), offsetOf(place) + 2): Short).toInt

  /** Records the row of a key; false where it is too long: the table knows nothing of the key then. */
  def put(hash: Long, key: Array[Byte], value: Array[Byte]): Boolean =
    put(hash, key, 0, key.length, value, 0, value.length)

  /** Records a row whose key and value are parts of two arrays. */
  def put(
      hash: Long,
      key: Array[Byte],
      keyFrom: Int,
      keyLength: Int,
      value: Array[Byte],
      valueFrom: Int,
      valueLength: Int
  ): Boolean = {
    val slot = slotOf(hash, key, keyFrom, keyLength)
    val bytes = HeaderBytes + keyLength.toLong + valueLength
    val isTaken = bytes <= LongestRow
    if (slot >= 0) {
      val slots = tables(tableOf(hash))
      val place = slots(slot)
      if (this.valueLength(place) == valueLength) {
        val at = offsetOf(place) + HeaderBytes + keyLength
        System.arraycopy(value, valueFrom, pageOf(place), at, valueLength)
      } else if (isTaken) {
        deadBytes += bytesAt(place)
        slots(slot) = (place & ~PlaceMask) |
          append(key, keyFrom, keyLength, value, valueFrom, valueLength)
      } else removeSlot(hash, slot)
    } else if (isTaken)
      add(
        hash >>> PlaceBits,
        tableOf(hash),
        append(key, keyFrom, keyLength, value, valueFrom, valueLength)
      )
    isTaken
  }

  /** Forgets what is known of a key. */
  def remove(hash: Long, key: Array[Byte], from: Int, length: Int): Unit = {
    val slot = slotOf(hash, key, from, length)
    if (slot >= 0) removeSlot(hash, slot)
  }

  /** Moves what lies behind a slot that becomes free, so that no search ends at it too early. */
  private def removeSlot(hash: Long, slot: Int): Unit = {
    val table = tableOf(hash)
    val slots = tables(table)
    deadBytes += bytesAt(slots(slot))
    val mask = slots.length - 1
    @tailrec def close(gap: Int, at: Int): Unit =
      if (slots(at) == 0) slots(gap) = 0
      else {
        val wanted = home(slots(at) >>> PlaceBits, slots)
        if (((at - wanted) & mask) >= ((at - gap) & mask)) {
          slots(gap) = slots(at)
          close(at, (at + 1) & mask)
        } else close(gap, (at + 1) & mask)
      }
    close(slot, (slot + 1) & mask)
    counts(table) -= 1
  }

  /** Returns a table of the same rows, without what was replaced or removed. */
  def compacted(): RowTable = {
    val to = new RowTable(pool)
    for (table <- tables.indices; slot <- tables(table) if slot != 0) {
      val page = pageOf(slot)
      val at = offsetOf(slot)
      val length = keyLength(page, at)
      to.add(
        slot >>> PlaceBits,
        table,
        to.append(
          page,
          at + HeaderBytes,
          length,
          page,
          at + HeaderBytes + length,
          valueLength(slot)
        )
      )
    }
    to
  }

  /** Gives its arrays to others; it is used no more. */
  def free(): Unit = {
    for (i <- 0 until pageCount) pool.give(pages(i))
    tables.foreach(pool.give)
  }

  private def add(tag: Long, table: Int, place: Long): Unit = {
    if (counts(table) >= tables(table).length * 3 / 4) grow(table)
    insert(tables(table), tag << PlaceBits | place)
    counts(table) += 1
  }

  private def grow(table: Int): Unit = {
    val old = tables(table)
    val larger = pool.takeLongs(math.max(MinSlots, old.length * 2))
    Arrays.fill(larger, 0L)
    var i = 0
    while (i < old.length) {
      if (old(i) != 0) insert(larger, old(i))
      i += 1
    }
    heapBytes_ += (larger.length - (if (old eq NoSlots) 0 else old.length)) * 8L
    tables(table) = larger
    pool.give(old)
  }

  private def insert(slots: Array[Long], slot: Long): Unit = {
    var at = home(slot >>> PlaceBits, slots)
    while (slots(at) != 0) at = (at + 1) & (slots.length - 1)
    slots(at) = slot
  }

  private def append(
      key: Array[Byte],
      keyFrom: Int,
      keyLength: Int,
      value: Array[Byte],
      valueFrom: Int,
      valueLength: Int
  ): Long = {
    val bytes = HeaderBytes + keyLength + valueLength
    if (pageCount == 0 || used + bytes > pages(pageCount - 1).length) addPage(bytes)
    val page = pages(pageCount - 1)
    val at = used
    Shorts.set(page, at, keyLength.toShort)
    Shorts.set(page, at + 2, valueLength.toShort)
    System.arraycopy(key, keyFrom, page, at + HeaderBytes, keyLength)
    System.arraycopy(value, valueFrom, page, at + HeaderBytes + keyLength, valueLength)
    used += bytes
    (pageCount - 1).toLong << PageBits | at
  }

  /** Adds a page, as large as all before together up to the largest. A small table is small. */
  private def addPage(atLeast: Int): Unit = {
    if (pageCount == pages.length) pages = Arrays.copyOf(pages, pageCount * 2)
    val wanted = math.min(MaxPage.toLong, MinPage.toLong << math.min(pageCount, PageBits)).toInt
    pages(pageCount) = pool.takeBytes(math.max(wanted, Integer.highestOneBit(atLeast) * 2))
    heapBytes_ += pages(pageCount).length
    pageCount += 1
    used = FirstOffset
  }

  private def bytesAt(slot: Long): Long =
    HeaderBytes + keyLength(pageOf(slot), offsetOf(slot)).toLong + valueLength(slot)

  private def keyLength(page: Array[Byte], at: Int): Int = (Shorts.get(page, at): Short).toInt
  private def pageOf(slot: Long) = pages(((slot & PlaceMask) >>> PageBits).toInt)
  private def offsetOf(slot: Long) = (slot & (MaxPage - 1)).toInt
}

private[transaction] object RowTable {
  private val Shorts = java.lang.invoke.MethodHandles.byteArrayViewVarHandle(
    classOf[Array[Short]],
    java.nio.ByteOrder.LITTLE_ENDIAN
  )

  val Unknown: Long = -1

  private final val Tables = 256
  private final val MinSlots = 8
  // One slot that is free: of a table without rows.
  private val NoSlots = new Array[Long](1)

  // A slot is the upper 24 bits of the hash, and 40 bits of place: page and offset. None is 0, as no row lies at the
  // offset 0.
  private final val PlaceBits = 40
  private final val PlaceMask = (1L << PlaceBits) - 1
  private final val TagBits = 64 - PlaceBits
  private final val PageBits = 18
  private final val FirstOffset = 1

  private final val MaxPage = ArrayPool.LargestBytes
  private final val MinPage = 4096
  private final val HeaderBytes = 4

  /** The length of key and value above which a row is not worth its room, as looking it up takes as long as to copy it. */
  private final val LongestRow = 16 * 1024
  private final val MinDead = 64 * 1024

  private def tableOf(hash: Long): Int = hash.toInt & (Tables - 1)

  /** Returns the slot at which the search for a key begins: by the upper bits of its hash, which the slot has. */
  private def home(tag: Long, slots: Array[Long]): Int =
    (tag >>> (TagBits - Integer.numberOfTrailingZeros(slots.length))).toInt
}
