package statemark.transaction

import java.nio.ByteBuffer
import scala.annotation.tailrec
import scala.reflect.ClassTag

/** Pages of slots by the uppermost bits of a hash. A page that is full is split in two, and nothing else moves.
  *
  * ''Thread:'' one at a time.
  *
  * ''Source:'' R. Fagin et al., Extendible hashing, 1979.
  */
private[transaction] final class PageDirectory[A <: PageDirectory.Slots: ClassTag] {
  private var parts = Array.empty[A]
  // Bits of the hash that choose.
  private var depth = 0

  def isEmpty: Boolean = parts.isEmpty

  /** Puts the first page in. */
  def begin(first: A): Unit = parts = Array(first)

  /** Returns the page of a hash, where there is any page. */
  def of(hash: Long): A =
    // A shift by 64 would be none.
    parts((hash >>> 1 >>> (63 - depth)).toInt)

  /** Gives half of what a page is for to another one, and what it has of that. */
  def split(full: A, other: A): Unit = {
    val all = new Array[Long](full.count)
    for (i <- all.indices) all(i) = full(i)
    if (full.depth == depth) {
      parts = Array.tabulate(parts.length * 2)(i => parts(i >>> 1))
      depth += 1
    }
    full.depth += 1
    other.depth = full.depth
    for (i <- parts.indices if parts(i) eq full)
      if (((i >>> (depth - full.depth)) & 1) != 0) parts(i) = other
    full.clear()
    for (i <- all.indices)
      if (all(i) != 0) {
        val to = of(full.hashOf(all(i)))
        to.add(all(i))
      }
  }

  /** Returns all pages, which it has no more. */
  def clear(): Seq[ByteBuffer] = {
    val pages = parts.toSeq.distinct.map(_.page)
    parts = Array.empty
    depth = 0
    pages
  }
}

private[transaction] object PageDirectory {

  /** The slots of a page, as a hash table: a search begins at the slot that the hash says, and ends at a free one.
    * @param count a power of two
    */
  abstract class Slots(val page: ByteBuffer, val count: Int) {

    /** Uppermost bits of the hash that all slots have in common. */
    var depth: Int = 0

    /** Slots that are not free. */
    var taken: Int = 0

    clear()

    /** Returns what a slot has, 0 where it is free. */
    def apply(slot: Int): Long
    def update(slot: Int, value: Long): Unit

    /** Returns the bits of the hash that a slot has, at their places. */
    def hashOf(value: Long): Long

    /** Returns the slot at which a search for a value begins. */
    def home(value: Long): Int

    final def next(slot: Int): Int = (slot + 1) & (count - 1)

    final def add(value: Long): Unit = {
      var at = home(value)
      while (this(at) != 0) at = next(at)
      this(at) = value
      taken += 1
    }

    /** Frees a slot, and moves what lies behind it, so that no search ends there too early. */
    final def unlink(slot: Int): Unit = {
      @tailrec def close(gap: Int, at: Int): Unit = {
        val moved = this(at)
        if (moved == 0) this(gap) = 0
        else if (((at - home(moved)) & (count - 1)) >= ((at - gap) & (count - 1))) {
          this(gap) = moved
          close(at, next(at))
        } else close(gap, next(at))
      }
      close(slot, next(slot))
      taken -= 1
    }

    final def clear(): Unit = {
      taken = 0
      for (i <- 0 until count) this(i) = 0
    }
  }
}
