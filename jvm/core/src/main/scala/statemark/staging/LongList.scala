package statemark.staging

import java.util.Arrays
import statemark.common.ArrayPool

/** Numbers in chunks, of which none is large to the garbage collector, from a pool.
  *
  * ''Thread:'' one.
  */
private[statemark] final class LongList(pool: ArrayPool) {
  import LongList._

  private var chunks = Array.empty[Array[Long]]
  private var room = 0
  private var length_ = 0

  def length: Int = length_

  def apply(i: Int): Long = chunks(i >>> ChunkBits)(i & ChunkMask)

  def update(i: Int, value: Long): Unit = chunks(i >>> ChunkBits)(i & ChunkMask) = value

  /** Makes sure of memory for another number. */
  def reserve(): Unit = if (length_ == room) grow(length_ + 1)

  def +=(value: Long): Unit = {
    reserve()
    length_ += 1
    update(length_ - 1, value)
  }

  /** Makes it longer or shorter; new places hold any numbers. */
  def resize(length: Int): Unit = {
    if (length > room) grow(length)
    length_ = length
  }

  /** Moves the numbers from `at` on by one place, and puts one there. */
  def insert(at: Int, value: Long): Unit = {
    this += value
    var chunk = (length_ - 1) >>> ChunkBits
    while (chunk > (at >>> ChunkBits)) {
      val to = chunks(chunk)
      System.arraycopy(to, 0, to, 1, math.min(ChunkLength, length_ - (chunk << ChunkBits)) - 1)
      to(0) = chunks(chunk - 1)(ChunkMask)
      chunk -= 1
    }
    val to = chunks(chunk)
    val from = at & ChunkMask
    val end = math.min(ChunkLength, length_ - (chunk << ChunkBits))
    System.arraycopy(to, from, to, from + 1, end - from - 1)
    to(from) = value
  }

  /** Returns the chunks to the pool; it is empty afterwards. */
  def clear(): Unit = {
    chunks.foreach(pool.give)
    chunks = Array.empty
    room = 0
    length_ = 0
  }

  /** Tells whether all pass a test; none is boxed for it. */
  def forall(test: Long => Boolean): Boolean = {
    var i = 0
    while (i < length_ && test(apply(i))) i += 1
    i == length_
  }

  def iterator: Iterator[Long] = Iterator.range(0, length_).map(apply)

  private def grow(atLeast: Int): Unit = {
    val first = math.min(Integer.highestOneBit(math.max(atLeast, MinChunk) * 2 - 1), ChunkLength)
    if (chunks.length <= 1 && room < first) {
      val larger = pool.takeLongs(first)
      chunks.foreach { chunk =>
        System.arraycopy(chunk, 0, larger, 0, length_)
        pool.give(chunk)
      }
      chunks = Array(larger)
      room = first
    }
    val count = (atLeast + ChunkMask) >>> ChunkBits
    if (count > chunks.length) {
      val before = chunks.length
      chunks = Arrays.copyOf(chunks, count)
      for (i <- before until count) chunks(i) = pool.takeLongs(ChunkLength)
      room = count << ChunkBits
    }
  }
}

private object LongList {
  private final val ChunkBits = 15
  private final val ChunkLength = 1 << ChunkBits
  private final val ChunkMask = ChunkLength - 1
  private final val MinChunk = 16
}
