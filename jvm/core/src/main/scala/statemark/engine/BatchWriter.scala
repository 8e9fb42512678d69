package statemark.engine

import java.nio.ByteBuffer
import java.util.Arrays
import statemark.common.{ArrayPool, Buffers, Bytes}

/** Builds RocksDB write batches in their serialized form, so that a whole transaction crosses JNI
  * in one call (design: a batch in key order costs a fifth of single puts).
  *
  * {{{
  *   header   8 bytes sequence (0, RocksDB fills it in) | 4 bytes count, little endian
  *   record   tag | varint32 length, key [| varint32 length, value]
  * }}}
  * The tags and this layout are RocksDB's `WriteBatch` format and must not be changed. Where a
  * batch would outgrow `segmentBytes` it goes on in another segment: an array cannot hold 2 GiB.
  *
  * ''Thread:'' one.
  *
  * @param expectedBytes the expected size; more and less are fine
  * @param full takes each segment when it is complete; its array comes from the pool, and goes back there by the one
  *   that took it
  */
final class BatchWriter(
    segmentBytes: Int,
    expectedBytes: Long = 0,
    pool: ArrayPool = ArrayPool.shared
)(full: BatchSegment => Unit) {
  import BatchWriter._

  private var buffer = Bytes.empty
  private var length = HeaderBytes
  private var count = 0
  // The size of the array that the segment begins with.
  private var expected = math.min(math.max(expectedBytes, 1024L), segmentBytes.toLong)

  def put(key: Array[Byte], value: Array[Byte]): Unit = record(Put, key, value)

  /** Writes a put of one byte and then a value. */
  def putTagged(key: Array[Byte], tag: Byte, value: Array[Byte]): Unit = {
    begin(Put, key, value.length + 1)
    writeVarint(value.length + 1)
    writeByte(tag)
    append(value)
  }

  def delete(key: Array[Byte]): Unit = begin(Delete, key, 0)

  def merge(key: Array[Byte], operand: Array[Byte]): Unit = record(Merge, key, operand)

  def deleteRange(begin: Array[Byte], end: Array[Byte]): Unit = record(DeleteRange, begin, end)

  private def record(tag: Byte, key: Array[Byte], value: Array[Byte]): Unit = {
    begin(tag, key, value.length)
    writeVarint(value.length)
    append(value)
  }

  /** Completes the last segment; the writer is empty afterwards. */
  def finish(): Unit =
    if (count > 0) {
      val segment = BatchSegment(buffer, length)
      // The array is one that others have used.
      Arrays.fill(buffer, 0, HeaderBytes, 0: Byte)
      setCount(buffer, count)
      buffer = Bytes.empty
      length = HeaderBytes
      count = 0
      expected = math.min(segmentBytes, ArrayPool.LargestBytes).toLong
      full(segment)
    }

  /** Writes a record whose key and value are parts of two buffers.
    * @param valueLength negative where the tag has no value
    */
  private[statemark] def record(
      tag: Byte,
      key: ByteBuffer,
      keyFrom: Int,
      keyLength: Int,
      value: ByteBuffer,
      valueFrom: Int,
      valueLength: Int
  ): Unit = {
    begin(tag, keyLength, math.max(valueLength, 0))
    append(key, keyFrom, keyLength)
    if (valueLength >= 0) {
      writeVarint(valueLength)
      append(value, valueFrom, valueLength)
    }
  }

  /** Writes all of a record but its value. */
  private def begin(tag: Byte, key: Array[Byte], valueLength: Int): Unit = {
    begin(tag, key.length, valueLength)
    append(key)
  }

  /** Writes all of a record but key and value. */
  private def begin(tag: Byte, keyLength: Int, valueLength: Int): Unit = {
    val room = 1 + 2 * MaxVarint + keyLength.toLong + valueLength
    if (count > 0 && length + room > segmentBytes) finish()
    ensure(room)
    writeByte(tag)
    writeVarint(keyLength)
    count += 1
  }

  private def ensure(room: Long): Unit =
    if (length + room > buffer.length) {
      val needed = math.max(length + room, math.max(buffer.length * 2L, expected))
      val larger = pool.takeBytes(
        if (needed > ArrayPool.LargestBytes) math.min(needed, MaxArray).toInt
        else Integer.highestOneBit(needed.toInt * 2 - 1)
      )
      System.arraycopy(buffer, 0, larger, 0, math.min(length, buffer.length))
      pool.give(buffer)
      buffer = larger
    }

  private def writeByte(b: Byte): Unit = {
    buffer(length) = b
    length += 1
  }

  private def writeVarint(n: Int): Unit = {
    var rest = n
    while ((rest & ~0x7f) != 0) {
      writeByte(((rest & 0x7f) | 0x80).toByte)
      rest >>>= 7
    }
    writeByte(rest.toByte)
  }

  private def append(bytes: Array[Byte]): Unit = {
    System.arraycopy(bytes, 0, buffer, length, bytes.length)
    length += bytes.length
  }

  private def append(bytes: ByteBuffer, from: Int, n: Int): Unit = {
    Buffers.read(bytes, from, buffer, length, n)
    length += n
  }
}

/** A complete write batch in the first bytes of an array. */
final case class BatchSegment(bytes: Array[Byte], length: Int) {

  /** Returns the batch in an array of its own. */
  def toArray: Array[Byte] = Arrays.copyOf(bytes, length)
}

object BatchWriter {
  val DefaultSegmentBytes: Int = 256 * 1024 * 1024

  /** Returns the segments of what `write` writes. */
  def collect(
      segmentBytes: Int = DefaultSegmentBytes,
      expectedBytes: Long = 0,
      pool: ArrayPool = ArrayPool.shared
  )(write: BatchWriter => Unit): Vector[BatchSegment] = {
    val segments = Vector.newBuilder[BatchSegment]
    val writer = new BatchWriter(segmentBytes, expectedBytes, pool)(segment => segments += segment)
    write(writer)
    writer.finish()
    segments.result()
  }

  private[engine] def setCount(batch: Array[Byte], count: Int): Unit =
    for (i <- 0 until 4) batch(CountAt + i) = (count >>> (8 * i)).toByte

  /** Number of records. */
  private[engine] def countOf(batch: Array[Byte]): Int =
    (0 until 4).map(i => (batch(CountAt + i) & 0xff) << (8 * i)).sum

  private[engine] val HeaderBytes = 12
  private val CountAt = 8
  private val MaxVarint = 5
  private val MaxArray = Int.MaxValue - 16L

  // RocksDB's record tags (db/dbformat.h, ValueType): part of the wire format.
  private[statemark] final val Delete: Byte = 0x0
  private[statemark] final val Put: Byte = 0x1
  private[statemark] final val Merge: Byte = 0x2
  private[statemark] final val DeleteRange: Byte = 0xf
}
