package statemark.transaction

import java.nio.ByteBuffer
import statemark.common.Buffers

/** Rules out most keys that the base does not have. It has a fingerprint for each key of the base: the upper half of
  * its hash. Keys with equal fingerprints have one each, so that it stays right when one of them
  * goes. A key that went unnoticed leaves one, at which lookups ask the base in vain.
  *
  * {{{
  *   slot   int32 fingerprint, 0 where free
  * }}}
  *
  * ''Thread:'' one at a time.
  *
  * @param take returns a page, None where there is none for the filter
  * @param give gets a page back
  */
private[transaction] final class KeyFilter(take: () => Option[ByteBuffer], give: ByteBuffer => Unit)
    extends AutoCloseable {
  import KeyFilter._

  private val directory = new PageDirectory[Slots]
  private var pageCount = 0

  /** Pages that it holds. */
  def pages: Int = pageCount

  /** Tells whether the base may have the key of a hash. */
  def mayHave(hash: Long): Boolean = !directory.isEmpty && {
    val slots = directory.of(hash)
    slots(slots.find(fingerprint(hash))) != 0
  }

  /** Records a key that the base did not have. False where there is no page for it: the filter is of no use any more. */
  def add(hash: Long): Boolean = {
    val isAdded = hasSlot(hash)
    if (isAdded) directory.of(hash).add(fingerprint(hash))
    isAdded
  }

  /** Records that the base has lost a key that it had. */
  def remove(hash: Long): Unit = if (!directory.isEmpty) {
    val slots = directory.of(hash)
    val at = slots.find(fingerprint(hash))
    if (slots(at) != 0) slots.unlink(at)
  }

  /** Gives back all memory. Idempotent. */
  override def close(): Unit = {
    pageCount = 0
    directory.clear().foreach(give)
  }

  private def taken(): Option[Slots] = {
    val page = take()
    pageCount += page.size
    page.map(new Slots(_))
  }

  /** Makes room for a fingerprint. */
  private def hasSlot(hash: Long): Boolean =
    if (directory.isEmpty) {
      taken().foreach(directory.begin)
      !directory.isEmpty
    } else {
      val slots = directory.of(hash)
      slots.taken < MostTaken || slots.depth < MostDepth && {
        taken().foreach(directory.split(slots, _))
        // It may be that all went to one of the two.
        directory.of(hash).taken < MostTaken
      }
    }
}

private[transaction] object KeyFilter {
  private final val SlotBits = 12
  private final val SlotCount = 1 << SlotBits
  private final val MostTaken = SlotCount * 3 / 4
  // The other bits choose a slot of a page.
  private final val MostDepth = 32 - SlotBits

  private def fingerprint(hash: Long): Long = math.max(1L, hash >>> 32)

  private final class Slots(page: ByteBuffer) extends PageDirectory.Slots(page, SlotCount) {
    override def apply(slot: Int): Long = Buffers.int(page, slot << 2) & 0xffffffffL
    override def update(slot: Int, value: Long): Unit = Buffers.setInt(page, slot << 2, value.toInt)
    override def hashOf(value: Long): Long = value << 32
    override def home(value: Long): Int = value.toInt & (SlotCount - 1)

    /** Returns a slot that has the fingerprint, or the free one at which the search for it ends. */
    def find(fingerprint: Long): Int = {
      var at = home(fingerprint)
      var found = this(at)
      while (found != 0 && found != fingerprint) {
        at = next(at)
        found = this(at)
      }
      at
    }
  }
}
