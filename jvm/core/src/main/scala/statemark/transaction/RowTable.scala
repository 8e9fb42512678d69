package statemark.transaction

import java.lang.invoke.MethodHandles
import java.nio.ByteOrder
import java.util.Arrays
import statemark.common.ArrayPool
import statemark.staging.PagedTable

/** Rows by key, for reads.
  *
  * {{{
  *   row    int16 length of key | int16 length of value | key | value
  * }}}
  *
  * ''Thread:'' one at a time.
  */
private[transaction] final class RowTable(pool: ArrayPool = ArrayPool.shared)
    extends PagedTable(pool, RowTable.HeaderBytes) {
  import PagedTable._
  import RowTable._

  // Of the last page.
  private var used = 0
  private var pageBytes = 0L
  private var deadBytes = 0L

  def heapBytes: Long = Tables * 12L + pageBytes + slotBytes

  /** Tells whether most of what the pages hold was replaced or removed. */
  def isMostlyDead: Boolean = deadBytes > MinDead && deadBytes * 2 > heapBytes

  override protected def keyLengthAt(page: Array[Byte], at: Int): Int = keyLength(page, at)

  def value(place: Long): Array[Byte] = {
    val page = pageOf(place)
    val at = offsetOf(place)
    val from = at + HeaderBytes + keyLength(page, at)
    Arrays.copyOfRange(page, from, from + valueLength(page, at))
  }

  /** Records a row whose key and value are parts of two arrays; false where it is too long: the table knows nothing of
    * the key then.
    */
  def put(
      hash: Long,
      key: Array[Byte],
      keyFrom: Int,
      keyLength: Int,
      value: Array[Byte],
      valueFrom: Int,
      valueLength: Int
  ): Boolean = {
    val isTaken = HeaderBytes + keyLength.toLong + valueLength <= LongestRow
    val table = tableOf(hash)
    val slot = slotOf(tables(table), hash, key, keyFrom, keyLength)
    val before = tables(table)(slot) & PlaceMask
    if (
      before != NoEntry && RowTable.valueLength(pageOf(before), offsetOf(before)) == valueLength
    ) {
      val at = offsetOf(before) + HeaderBytes + keyLength
      System.arraycopy(value, valueFrom, pageOf(before), at, valueLength)
    } else if (isTaken) {
      val entry = PagedTable.slot(
        hash,
        append(key, keyFrom, keyLength, value, valueFrom, valueLength)
      )
      if (before == NoEntry) link(table, entry)
      else {
        deadBytes += bytesAt(before)
        tables(table)(slot) = entry
      }
    } else if (before != NoEntry) remove(table, slot)
    isTaken
  }

  /** Forgets what is known of a key. */
  def remove(hash: Long, key: Array[Byte], from: Int, length: Int): Unit = {
    val table = tableOf(hash)
    val slot = slotOf(tables(table), hash, key, from, length)
    if (tables(table)(slot) != 0) remove(table, slot)
  }

  private def remove(table: Int, slot: Int): Unit = {
    deadBytes += bytesAt(tables(table)(slot) & PlaceMask)
    unlink(table, slot)
  }

  /** Returns a table of the same rows, without what was replaced or removed. */
  def compacted(): RowTable = {
    val to = new RowTable(pool)
    for (table <- tables.indices; slot <- tables(table) if slot != 0) {
      val page = pageOf(slot & PlaceMask)
      val at = offsetOf(slot)
      val key = at + HeaderBytes
      val length = keyLength(page, at)
      val place = to.append(page, key, length, page, key + length, valueLength(page, at))
      to.link(table, slot & ~PlaceMask | place)
    }
    to
  }

  /** Gives its arrays to others; it is used no more. */
  def free(): Unit = giveAll()

  private def append(
      key: Array[Byte],
      keyFrom: Int,
      keyLength: Int,
      value: Array[Byte],
      valueFrom: Int,
      valueLength: Int
  ): Long = {
    val bytes = HeaderBytes + keyLength + valueLength
    if (pageCount == 0 || used + bytes > pages(pageCount - 1).length) {
      val page = sharedPage(pageCount, bytes)
      addPage(page): Unit
      pageBytes += page.length
      used = FirstOffset
    }
    val page = pages(pageCount - 1)
    val at = used
    Shorts.set(page, at, keyLength.toShort)
    Shorts.set(page, at + 2, valueLength.toShort)
    System.arraycopy(key, keyFrom, page, at + HeaderBytes, keyLength)
    System.arraycopy(value, valueFrom, page, at + HeaderBytes + keyLength, valueLength)
    used += bytes
    placeOf(pageCount - 1, at)
  }

  private def bytesAt(place: Long): Long = {
    val page = pageOf(place)
    val at = offsetOf(place)
    HeaderBytes + keyLength(page, at).toLong + valueLength(page, at)
  }
}

private[transaction] object RowTable {
  private val Shorts =
    MethodHandles.byteArrayViewVarHandle(classOf[Array[Short]], ByteOrder.LITTLE_ENDIAN)

  private final val HeaderBytes = 4

  /** The length of key and value above which a row is not worth its room, as looking it up takes as long as to copy it. */
  private final val LongestRow = 16 * 1024
  private final val MinDead = 64 * 1024

  private def keyLength(page: Array[Byte], at: Int): Int = (Shorts.get(page, at): Short).toInt
  private def valueLength(page: Array[Byte], at: Int): Int =
    (Shorts.get(page, at + 2): Short).toInt
}
