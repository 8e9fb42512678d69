package statemark.staging

import java.nio.ByteBuffer
import java.util.Arrays
import statemark.common.{ArrayPool, Buffers}

/** A hash table whose entries lie as bytes in pages: millions of them are a few thousand objects to the garbage
  * collector. The place of an entry is a number, page and offset, and never 0. A slot has a place, and the upper bits of
  * the key's hash. The lowest bits choose one of 256 small tables of slots, so that growing copies a small part of them.
  * Pages and slots come from a pool.
  *
  * ''Thread:'' as each implementation says.
  *
  * @param headerBytes what an entry has before its key
  * @param expected the expected number of entries; more and less are fine
  */
private[statemark] abstract class PagedTable(pool: ArrayPool, headerBytes: Int, expected: Int) {
  import PagedTable._

  // Of slots, so that they need not grow.
  private val firstSize =
    math.min(MostFirst, math.max(MinSlots, Integer.highestOneBit(expected / Tables * 3 / 2) * 2))

  protected final val tables: Array[Array[Long]] = Array.fill(Tables)(NoSlots)
  private val counts = new Array[Int](Tables)
  protected final var pages: Array[ByteBuffer] = new Array[ByteBuffer](4)
  protected final var pageCount: Int = 0

  /** Returns the length of the key of the entry at `at`. */
  protected def keyLengthAt(page: ByteBuffer, at: Int): Int

  /** Tells whether the entry at `place` is of `key`. */
  private def isOf(place: Long, key: Array[Byte]): Boolean = {
    val page = pageOf(place)
    val at = offsetOf(place)
    keyLengthAt(page, at) == key.length &&
    Buffers.isEqual(page, at + headerBytes, key, 0, key.length)
  }

  /** Returns the place of the entry of `key`, [[PagedTable.NoEntry]] where it has none. */
  final def find(hash: Long, key: Array[Byte]): Long = {
    val slots = tables(tableOf(hash))
    val slot = slotOf(slots, hash, key)
    // A reader beside the owner may come to the end of slots that are somebody else's.
    if (slot < 0) NoEntry else slots(slot) & PlaceMask
  }

  /** Returns the slot of a key, or the free one at which the search for it ends. */
  protected final def slotOf(slots: Array[Long], hash: Long, key: Array[Byte]): Int = {
    val tag = hash >>> PlaceBits
    var at = home(tag, slots)
    var left = slots.length
    while (
      left > 0 && slots(at) != 0 &&
      !((slots(at) >>> PlaceBits) == tag && isOf(slots(at) & PlaceMask, key))
    ) {
      at = (at + 1) & (slots.length - 1)
      left -= 1
    }
    if (left == 0) -1 else at
  }

  /** Adds the slot of an entry to one of the tables. */
  protected final def link(table: Int, slot: Long): Unit = {
    if (counts(table) >= tables(table).length * 3 / 4) grow(table)
    insert(tables(table), slot)
    counts(table) += 1
  }

  private def grow(table: Int): Unit = {
    val old = tables(table)
    val larger = pool.takeLongs(math.max(firstSize, old.length * 2))
    Arrays.fill(larger, 0L)
    var i = 0
    while (i < old.length) {
      if (old(i) != 0) insert(larger, old(i))
      i += 1
    }
    tables(table) = larger
    pool.give(old)
  }

  private def insert(slots: Array[Long], slot: Long): Unit = {
    var at = home(slot >>> PlaceBits, slots)
    while (slots(at) != 0) at = (at + 1) & (slots.length - 1)
    slots(at) = slot
  }

  /** Returns a page for several entries: as large as the `before` ones together, up to the largest, so that a small table
    * is small. One that is to fill more than the largest begins with that.
    */
  protected final def sharedPage(before: Int, atLeast: Int): ByteBuffer = {
    val isLarge = expected.toLong * headerBytes >= ArrayPool.LargestBytes
    val size =
      if (isLarge) ArrayPool.LargestBytes
      else math.min(ArrayPool.LargestBytes, MinPage << math.min(before, PageBits))
    pool.takePage(math.max(size, Integer.highestOneBit(atLeast) * 2))
  }

  /** Returns the number of the page from now on. */
  protected final def addPage(page: ByteBuffer): Int = {
    if (pageCount == pages.length) pages = Arrays.copyOf(pages, pageCount * 2)
    pages(pageCount) = page
    pageCount += 1
    pageCount - 1
  }

  /** Gives all memory back to the pool, and forgets all entries. */
  protected final def giveAll(): Unit = {
    val before = (pages.take(pageCount), tables.clone())
    Arrays.fill(tables.asInstanceOf[Array[AnyRef]], NoSlots)
    Arrays.fill(counts, 0)
    pages = new Array[ByteBuffer](4)
    pageCount = 0
    before._1.foreach(pool.give(_))
    before._2.foreach(pool.give(_))
  }

  protected final def pageOf(place: Long): ByteBuffer = pages((place >>> PageBits).toInt)
}

private[statemark] object PagedTable {
  final val NoEntry: Long = 0

  /** Tables of slots. */
  final val Tables: Int = 256

  private final val MinSlots = 8
  // Together 2 MiB, which the first writes take where less is written than expected.
  private final val MostFirst = 1024
  // One slot that is free: of a table without entries.
  private val NoSlots = new Array[Long](1)

  // A slot is the upper 24 bits of the hash, and 40 bits of place. None is 0, as nothing lies at the offset 0.
  final val PlaceBits: Int = 40
  final val PlaceMask: Long = (1L << PlaceBits) - 1
  private final val TagBits = 64 - PlaceBits
  final val PageBits: Int = 18
  final val FirstOffset: Int = 1
  private final val MinPage = 4096

  def tableOf(hash: Long): Int = hash.toInt & (Tables - 1)

  /** Returns the slot of an entry. */
  def slot(hash: Long, place: Long): Long = hash >>> PlaceBits << PlaceBits | place

  def placeOf(page: Int, offset: Int): Long = page.toLong << PageBits | offset

  def offsetOf(place: Long): Int = place.toInt & ((1 << PageBits) - 1)

  /** Returns the slot at which the search for a key begins: by the upper bits of its hash, which the slot has. */
  def home(tag: Long, slots: Array[Long]): Int =
    (tag >>> (TagBits - Integer.numberOfTrailingZeros(slots.length))).toInt
}
