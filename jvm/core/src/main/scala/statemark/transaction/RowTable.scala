package statemark.transaction

import java.lang.invoke.MethodHandles
import java.nio.{ByteBuffer, ByteOrder}
import java.util.Arrays
import scala.collection.mutable
import statemark.common.{Buffers, KeyHash}

/** Rows by key, for reads, in pages outside the heap. Where memory has no more pages, a page of its own is used again:
  * the one of which most was replaced, or the oldest. Of its rows those go on that were asked for since, as many as fill
  * half of it.
  *
  * {{{
  *   row    1 bit: was asked for | 15 bits: length of key | int16 length of value | key | value
  *   slot   upper 24 bits of the key's hash | 40 bits: number of the page, from 1, and offset of the row; 0 where free
  * }}}
  * Slots lie in pages, too. The uppermost bits of the hash choose the page, by a directory, and the lower ones of the 24
  * the slot in it.
  *
  * ''Thread:'' one at a time.
  *
  * @param hasAll whether there are no rows beside those that it will be told
  * @param hashOf returns the hash of the key that is a part of an array, by which calls find it
  */
private[transaction] final class RowTable(
    memory: RowPages#Member,
    hasAll: Boolean,
    hashOf: (Array[Byte], Int, Int) => Long = KeyHash.of
) extends AutoCloseable {
  import RowTable._

  private val directory = new PageDirectory[Slots]
  private var pages = new Array[ByteBuffer](8)
  // One for each page that there ever was.
  private val uses = mutable.ArrayBuffer.empty[Use]
  // The number of the page that is being filled.
  private var filling = 0
  private var ages = 0L
  private var rowBytes = 0L
  private var deadBytes = 0L
  private var isWhole_ = hasAll
  private var isClosed = false

  /** Tells whether a key that it does not know of has no row. */
  def isWhole: Boolean = isWhole_

  /** Returns the row of a key, if it knows it, which stays longer for it. */
  def get(hash: Long, key: Array[Byte]): Option[Array[Byte]] = {
    val place = asked(hash, key)
    if (place == NoRow) None
    else {
      val page = pageOf(place)
      val at = offsetOf(place)
      val value = new Array[Byte](valueLength(page, at))
      Buffers.read(page, at + HeaderBytes + keyLength(page, at), value, 0, value.length)
      Some(value)
    }
  }

  /** Tells whether it knows the row of a key. */
  def has(hash: Long, key: Array[Byte]): Boolean = asked(hash, key) != NoRow

  private def asked(hash: Long, key: Array[Byte]): Long = {
    val place = placeOf(hash, key, 0, key.length)
    if (place != NoRow) {
      val page = pageOf(place)
      val lengths = Buffers.short(page, offsetOf(place))
      if (lengths >= 0) Buffers.setShort(page, offsetOf(place), (lengths | Asked).toShort)
    }
    place
  }

  /** Records the row of a key. Where it is too long, or there is no room for it, the table knows nothing of the key. */
  def put(hash: Long, key: Array[Byte], value: Array[Byte]): Unit =
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
  ): Unit = {
    val bytes = HeaderBytes + keyLength.toLong + valueLength
    val old = placeOf(hash, key, keyFrom, keyLength)
    if (old != NoRow && RowTable.valueLength(pageOf(old), offsetOf(old)) == valueLength) {
      val to = offsetOf(old) + HeaderBytes + keyLength
      Buffers.write(pageOf(old), to, value, valueFrom, valueLength)
    } else if (bytes <= LongestRow && hasSlot(hash) && hasRoom(bytes.toInt)) {
      // Not before, as rows may have been dropped for it, and moved.
      val slots = directory.of(hash)
      val at = find(slots, hash, key, keyFrom, keyLength)
      val before = slots(at) & PlaceMask
      if (before == NoRow) slots.taken += 1 else died(before)
      val page = pages(filling)
      val to = uses(filling).filled
      Buffers.setShort(page, to, keyLength.toShort)
      Buffers.setShort(page, to + 2, valueLength.toShort)
      Buffers.write(page, to + HeaderBytes, key, keyFrom, keyLength)
      Buffers.write(page, to + HeaderBytes + keyLength, value, valueFrom, valueLength)
      uses(filling).filled += bytes.toInt
      rowBytes += bytes
      slots(at) = slotOf(hash, RowTable.placeOf(filling, to))
    } else {
      remove(hash, key, keyFrom, keyLength)
      isWhole_ = false
    }
  }

  /** Returns where the row of a key is. */
  private def placeOf(hash: Long, key: Array[Byte], from: Int, length: Int): Long =
    if (directory.isEmpty) NoRow
    else {
      val slots = directory.of(hash)
      slots(find(slots, hash, key, from, length)) & PlaceMask
    }

  /** Forgets the row of a key: the base has none, or another one. */
  def remove(hash: Long, key: Array[Byte], from: Int, length: Int): Unit = if (!directory.isEmpty) {
    val slots = directory.of(hash)
    val at = find(slots, hash, key, from, length)
    if (slots(at) != 0) {
      died(slots(at) & PlaceMask)
      slots.unlink(at)
    }
  }

  /** Gives back so many pages, with the rows that were recorded first, or as many as it can; returns how many. */
  def giveBack(count: Int): Int = {
    val pages = Iterator.continually(dropPage()).take(count)
      .takeWhile(_.isDefined).flatten
    pages.map(memory.give).size
  }

  /** Gives back all memory; it knows nothing from then on. Idempotent. */
  override def close(): Unit = if (!isClosed) {
    isClosed = true
    isWhole_ = false
    val all = directory.clear() ++ uses.indices.filter(uses(_).isTaken).map(pages(_))
    pages = Array.empty
    uses.clear()
    all.foreach(memory.give)
  }

  /** Makes room for a row on the page that is being filled. */
  private def hasRoom(bytes: Int): Boolean =
    uses.nonEmpty && uses(filling).filled + bytes <= RowPages.PageBytes || {
      val isMostlyDead = deadBytes > MinDead && deadBytes * 2 > rowBytes
      val fresh = if (isMostlyDead) None else memory.take().map(added)
      val next = fresh.orElse(oldest(besides = -1).map { number =>
        compact(number, mostBytes = RowPages.PageBytes / 2)
        number
      })
      next.foreach { number =>
        filling = number
        ages += 1
        uses(number).age = ages
      }
      next.isDefined
    }

  /** Makes room for a slot. */
  private def hasSlot(hash: Long): Boolean =
    if (isClosed) false
    else if (directory.isEmpty) {
      memory.take().foreach(page => directory.begin(new Slots(page)))
      !directory.isEmpty
    } else {
      val slots = directory.of(hash)
      slots.taken < MostTaken || slots.depth < MostDepth && {
        val page = memory.take().orElse(dropPage())
        page.foreach(p => directory.split(directory.of(hash), new Slots(p)))
        // It may be that all went to one of the two.
        page.isDefined && directory.of(hash).taken < MostTaken
      }
    }

  /** Returns the number of a page. */
  private def added(page: ByteBuffer): Int = {
    val free = uses.indexWhere(!_.isTaken)
    val number = if (free < 0) uses.length else free
    if (free < 0) uses += new Use
    if (number >= pages.length) pages = Arrays.copyOf(pages, number * 2)
    pages(number) = page
    uses(number).isTaken = true
    number
  }

  /** Returns the number of the page to use again: where half of one is dead the first of those, else the oldest. */
  private def oldest(besides: Int): Option[Int] = {
    var found = -1
    var i = 0
    while (i < uses.length && !(found >= 0 && uses(found).isMostlyDead)) {
      val use = uses(i)
      if (i != besides && use.isTaken)
        if (found < 0 || use.isMostlyDead || use.age < uses(found).age) found = i
      i += 1
    }
    Option.when(found >= 0)(found)
  }

  /** Returns a page that it has no more, the one whose rows were recorded first; None where there is none but the one
    * that is being filled.
    */
  def dropPage(): Option[ByteBuffer] = oldest(besides = filling).map { number =>
    compact(number, mostBytes = 0)
    uses(number).isTaken = false
    pages(number)
  }

  /** Drops rows of a page: those that are dead; those that nobody has asked for since it was filled, unless the table has
    * all rows and most of the page is dead; and those beyond `mostBytes`.
    */
  private def compact(number: Int, mostBytes: Int): Unit = {
    val (page, use) = (pages(number), uses(number))
    val rows = new Array[Byte](use.filled)
    page.get(0, rows): Unit
    rowBytes -= use.filled
    deadBytes -= use.dead
    val keepsAll = isWhole_ && use.isMostlyDead
    var to = 0
    var at = 0
    while (at < rows.length) {
      val lengths: Short = ArrayShorts.get(rows, at)
      val keyLength = lengths & LengthMask
      val bytes = HeaderBytes + keyLength + (ArrayShorts.get(rows, at + 2): Short)
      val hash = hashOf(rows, at + HeaderBytes, keyLength)
      val slots = directory.of(hash)
      val slot = find(slots, slotOf(hash, RowTable.placeOf(number, at)))
      if (slots(slot) != 0) {
        if ((lengths < 0 || keepsAll) && to + bytes <= mostBytes) {
          page.put(to, rows, at, bytes): Unit
          Buffers.setShort(page, to, keyLength.toShort)
          slots(slot) = slotOf(hash, RowTable.placeOf(number, to))
          to += bytes
        } else {
          slots.unlink(slot)
          isWhole_ = false
        }
      }
      at += bytes
    }
    rowBytes += to
    use.filled = to
    use.dead = 0
  }

  private def died(place: Long): Unit = {
    val page = pageOf(place)
    val at = offsetOf(place)
    val bytes = HeaderBytes + keyLength(page, at) + valueLength(page, at)
    uses(numberOf(place)).dead += bytes
    deadBytes += bytes
  }

  /** Returns the slot of a key, or the free one at which the search for it ends. */
  private def find(slots: Slots, hash: Long, key: Array[Byte], from: Int, length: Int): Int = {
    var at = home(hash)
    var slot = slots(at)
    while (
      slot != 0 &&
      !((slot ^ hash) >>> PlaceBits == 0 && isOf(slot & PlaceMask, key, from, length))
    ) {
      at = slots.next(at)
      slot = slots(at)
    }
    at
  }

  /** Returns where the slot `wanted` is, or the free one at which the search for it ends. */
  private def find(slots: Slots, wanted: Long): Int = {
    var at = home(wanted)
    while (slots(at) != 0 && slots(at) != wanted) at = slots.next(at)
    at
  }

  private def isOf(place: Long, key: Array[Byte], from: Int, length: Int): Boolean = {
    val page = pageOf(place)
    val at = offsetOf(place)
    keyLength(page, at) == length && Buffers.isEqual(page, at + HeaderBytes, key, from, length)
  }

  private def pageOf(place: Long): ByteBuffer = pages(numberOf(place))
}

private[transaction] object RowTable {
  private val ArrayShorts =
    MethodHandles.byteArrayViewVarHandle(classOf[Array[Short]], ByteOrder.LITTLE_ENDIAN)

  private final val HeaderBytes = 4
  private final val Asked = 0x8000
  private final val LengthMask = 0x7fff

  /** The bytes of a row above which it is not worth its room: to copy it takes as long as to look it up. */
  private final val LongestRow = RowPages.PageBytes / 4
  private final val MinDead = 64 * 1024

  private final val NoRow = 0L
  private final val PlaceBits = 40
  private final val PlaceMask = (1L << PlaceBits) - 1
  private final val OffsetBits = 14

  private final val SlotBits = 11
  private final val SlotCount = 1 << SlotBits
  private final val MostTaken = SlotCount * 3 / 4
  // Of 24 bits of the hash the others choose a slot of a page.
  private final val MostDepth = 64 - PlaceBits - SlotBits

  private def slotOf(hash: Long, place: Long): Long = hash >>> PlaceBits << PlaceBits | place
  private def home(slot: Long): Int = (slot >>> PlaceBits).toInt & (SlotCount - 1)
  private def placeOf(number: Int, offset: Int): Long = (number + 1L) << OffsetBits | offset
  private def numberOf(place: Long): Int = (place >>> OffsetBits).toInt - 1
  private def offsetOf(place: Long): Int = place.toInt & ((1 << OffsetBits) - 1)

  private def keyLength(page: ByteBuffer, at: Int): Int =
    Buffers.short(page, at) & LengthMask
  private def valueLength(page: ByteBuffer, at: Int): Int =
    Buffers.short(page, at + 2).toInt

  private final class Slots(page: ByteBuffer) extends PageDirectory.Slots(page, SlotCount) {
    override def apply(slot: Int): Long = Buffers.long(page, slot << 3)
    override def update(slot: Int, value: Long): Unit = Buffers.setLong(page, slot << 3, value)
    override def hashOf(value: Long): Long = value
    override def home(value: Long): Int = RowTable.home(value)
  }

  /** State of a page of rows. */
  private final class Use {
    var isTaken = false
    var age = 0L
    var filled = 0
    var dead = 0
    def isMostlyDead: Boolean = dead * 2 > filled
  }
}
