package statemark.common

import java.lang.invoke.MethodHandles
import java.nio.{ByteBuffer, ByteOrder}

/** Numbers and keys in buffers and arrays, eight bytes at a time. Numbers are little endian.
  *
  * ''Thread:'' any.
  */
private[statemark] object Buffers {
  private val Shorts =
    MethodHandles.byteBufferViewVarHandle(classOf[Array[Short]], ByteOrder.LITTLE_ENDIAN)
  private val Ints =
    MethodHandles.byteBufferViewVarHandle(classOf[Array[Int]], ByteOrder.LITTLE_ENDIAN)
  private val Longs =
    MethodHandles.byteBufferViewVarHandle(classOf[Array[Long]], ByteOrder.LITTLE_ENDIAN)
  private val BigEndian =
    MethodHandles.byteBufferViewVarHandle(classOf[Array[Long]], ByteOrder.BIG_ENDIAN)
  private val ArrayLongs =
    MethodHandles.byteArrayViewVarHandle(classOf[Array[Long]], ByteOrder.LITTLE_ENDIAN)

  /** More are copied faster by a call. */
  private final val FewBytes = 128

  def short(buffer: ByteBuffer, at: Int): Short = Shorts.get(buffer, at): Short
  def int(buffer: ByteBuffer, at: Int): Int = Ints.get(buffer, at): Int
  def long(buffer: ByteBuffer, at: Int): Long = Longs.get(buffer, at): Long

  /** Returns eight bytes as a number that compares, unsigned, as they do. */
  def prefix(buffer: ByteBuffer, at: Int): Long = BigEndian.get(buffer, at): Long

  def setShort(buffer: ByteBuffer, at: Int, value: Short): Unit = Shorts.set(buffer, at, value)
  def setInt(buffer: ByteBuffer, at: Int, value: Int): Unit = Ints.set(buffer, at, value)
  def setLong(buffer: ByteBuffer, at: Int, value: Long): Unit = Longs.set(buffer, at, value)

  /** Copies bytes of a buffer. */
  def read(buffer: ByteBuffer, at: Int, to: Array[Byte], from: Int, length: Int): Unit =
    if (length < 8 || length > FewBytes) buffer.get(at, to, from, length): Unit
    else {
      var i = 0
      while (i + 8 < length) {
        ArrayLongs.set(to, from + i, long(buffer, at + i))
        i += 8
      }
      // Some of them a second time.
      ArrayLongs.set(to, from + length - 8, long(buffer, at + length - 8))
    }

  /** Copies bytes into a buffer. */
  def write(buffer: ByteBuffer, at: Int, bytes: Array[Byte], from: Int, length: Int): Unit =
    if (length < 8 || length > FewBytes) buffer.put(at, bytes, from, length): Unit
    else {
      var i = 0
      while (i + 8 < length) {
        setLong(buffer, at + i, ArrayLongs.get(bytes, from + i): Long)
        i += 8
      }
      setLong(buffer, at + length - 8, ArrayLongs.get(bytes, from + length - 8): Long)
    }

  /** Tells whether `length` bytes of a buffer and of an array are the same. */
  def isEqual(buffer: ByteBuffer, at: Int, bytes: Array[Byte], from: Int, length: Int): Boolean = {
    def isSame(i: Int) = long(buffer, at + i) == (ArrayLongs.get(bytes, from + i): Long)
    var i = 0
    if (length < 8) {
      while (i < length && buffer.get(at + i) == bytes(from + i)) i += 1
      i == length
    } else {
      while (i + 8 < length && isSame(i)) i += 8
      i + 8 >= length && isSame(length - 8)
    }
  }

  /** Returns how many of the first `length` bytes are the same. */
  def shared(a: ByteBuffer, aFrom: Int, b: ByteBuffer, bFrom: Int, length: Int): Int = {
    def sharedAt(i: Int) = sharedBytes(long(a, aFrom + i) ^ long(b, bFrom + i))
    var i = 0
    if (length < 8) {
      while (i < length && a.get(aFrom + i) == b.get(bFrom + i)) i += 1
      i
    } else {
      var same = 8
      while (same == 8 && i + 8 < length) {
        same = sharedAt(i)
        i += same
      }
      if (same < 8) i else length - 8 + sharedAt(length - 8)
    }
  }

  /** Returns how many of the first bytes of two numbers are the same. */
  private def sharedBytes(differing: Long): Int =
    java.lang.Long.numberOfTrailingZeros(differing) / 8

  /** Compares two keys by their bytes, unsigned; one that the other begins with comes first. */
  def compare(
      a: ByteBuffer,
      aFrom: Int,
      aLength: Int,
      b: ByteBuffer,
      bFrom: Int,
      bLength: Int
  ): Int = {
    val length = math.min(aLength, bLength)
    val same = shared(a, aFrom, b, bFrom, length)
    if (same == length) aLength - bLength
    else (a.get(aFrom + same) & 0xff) - (b.get(bFrom + same) & 0xff)
  }
}
