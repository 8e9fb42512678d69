package statemark.common

import java.lang.ref.Cleaner
import java.nio.ByteBuffer
import java.util.{ArrayDeque, Arrays}
import java.util.concurrent.atomic.AtomicReference

/** Free arrays of powers of two in size, and buffers outside the heap, for the rows of a batch: what one batch has
  * staged makes room for the next one, so that the garbage collector neither copies nor promotes it. An array is given
  * back by the one that took it, when nothing refers to it; what a taken array holds is left over from others.
  *
  * ''Thread:'' any.
  *
  * @param mostBytes bytes of free arrays that it holds; the rest is left to the garbage collector
  * @param overwrites whether to overwrite what is given back, so that a test sees who still reads it
  */
private[statemark] final class ArrayPool(mostBytes: Long, overwrites: Boolean = false) {
  import ArrayPool._

  private val bytes = Array.fill(Sizes)(new ArrayDeque[Array[Byte]])
  private val longs = Array.fill(Sizes)(new ArrayDeque[Array[Long]])
  private val buffers = new ArrayDeque[ByteBuffer]

  /** Memory of the buffers. */
  val outside: DirectMemory = new DirectMemory(part = 8, DefaultOutside)
  private var heldBytes_ = 0L

  /** Heap bytes of what is free. */
  def heldBytes: Long = synchronized(heldBytes_)

  /** Bytes of buffers that are in use. */
  def bufferBytes: Long = synchronized(outside.takenBytes - buffers.size * LargestBytes.toLong)

  /** Returns a buffer outside the heap, as large as the largest array; None where there is no room for it. */
  def takeBuffer(): Option[ByteBuffer] =
    synchronized(Option(buffers.pollFirst)).orElse {
      val buffer = outside.take(LargestBytes, pieces = 1)
      // One that an error has lost.
      buffer.foreach(cleaner.register(_, () => outside.lost(LargestBytes)): Unit)
      buffer
    }

  /** Returns a page, outside the heap where it is as large as a buffer there, and half of the room is free: the other
    * half is for what stays longer than a batch.
    */
  def takePage(length: Int): ByteBuffer =
    Option.when(length == LargestBytes && bufferBytes * 2 < outside.limitBytes)(takeBuffer())
      .flatten.getOrElse(ByteBuffer.wrap(takeBytes(length)))

  def give(buffer: ByteBuffer): Unit = if (buffer.hasArray) give(buffer.array)
  else {
    if (overwrites) for (i <- 0 until LargestBytes by 8) buffer.putLong(i, Garbage): Unit
    synchronized(buffers.addFirst(buffer))
  }

  def takeBytes(length: Int): Array[Byte] = {
    val free = synchronized {
      if (isKept(length)) taken(bytes(sizeOf(length)).pollFirst, length.toLong) else None
    }
    free.getOrElse(new Array[Byte](length))
  }

  def takeLongs(length: Int): Array[Long] = {
    val free = synchronized {
      if (isKept(length * 8L)) taken(longs(sizeOf(length)).pollFirst, length * 8L) else None
    }
    free.getOrElse(new Array[Long](length))
  }

  private def taken[A](array: A, bytes: Long): Option[A] = {
    val found = Option(array)
    if (found.isDefined) heldBytes_ -= bytes
    found
  }

  def give(array: Array[Byte]): Unit = if (isKept(array.length)) {
    if (overwrites) Arrays.fill(array, Garbage.toByte)
    synchronized(if (hasRoom(array.length)) bytes(sizeOf(array.length)).addFirst(array))
  }

  def give(array: Array[Long]): Unit = if (isKept(array.length * 8L)) {
    if (overwrites) Arrays.fill(array, Garbage)
    synchronized(if (hasRoom(array.length * 8L)) longs(sizeOf(array.length)).addFirst(array))
  }

  private def hasRoom(more: Long): Boolean = {
    val result = heldBytes_ + more <= mostBytes
    if (result) heldBytes_ += more
    result
  }
}

private[statemark] object ArrayPool {

  /** Half of the smallest array that G1 calls humongous. */
  final val LargestBytes: Int = 256 * 1024

  private val DefaultOutside = 32L * 1024 * 1024
  private val cleaner = Cleaner.create()

  /** Smaller ones die young. */
  private final val SmallestBytes = 256
  private final val Sizes = 20
  private final val Garbage = 0x9b9b9b9b9b9b9b9bL

  /** The pool of this process. A test sets the property, where its JVM is to overwrite what is given back. */
  val shared: ArrayPool = new ArrayPool(
    Runtime.getRuntime.maxMemory / 20,
    overwrites = sys.props.contains("statemark.overwritesFreed")
  )

  private def isKept(bytes: Long): Boolean =
    bytes >= SmallestBytes && bytes <= LargestBytes && java.lang.Long.bitCount(bytes) == 1

  private def sizeOf(length: Int): Int = Integer.numberOfTrailingZeros(length)
}

/** Decides who has arrays of a pool in the end: their owner, who gives them back when he is done, or the garbage
  * collector, where readers on other threads were let in, who may outlive him.
  *
  * ''Thread:'' any.
  */
private[statemark] final class Sharing {
  import Sharing._
  private val state = new AtomicReference[State](Private)

  /** Lets a reader in; false where the owner is done. */
  def share(): Boolean = state.compareAndSet(Private, Shared) || state.get == Shared

  /** Ends the ownership; tells whether nobody reads. Idempotent: true once at most. */
  def end(): Boolean = state.compareAndSet(Private, Ended)
}

private object Sharing {
  sealed trait State
  case object Private extends State
  case object Shared extends State
  case object Ended extends State
}
