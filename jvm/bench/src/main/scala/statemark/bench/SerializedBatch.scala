package statemark.bench

import java.lang.invoke.MethodHandles
import java.nio.ByteOrder

/** A RocksDB write batch built as bytes in the JVM, so that a commit crosses JNI once.
  * {{{
  * 0        8      12
  * | seq = 0| count | record ...              fixed integers are little-endian
  * record = | 1: put, default column family | varint32 length | key | varint32 length | value |
  * }}}
  * The layout is RocksDB's own (db/write_batch.cc) and part of its log format: it must not change.
  */
final class SerializedBatch(expectedBytes: Int) {
  import SerializedBatch._
  private var bytes = new Array[Byte](math.max(HeaderBytes, expectedBytes))
  private var size = HeaderBytes
  private var count = 0

  def put(key: Array[Byte], value: Array[Byte]): Unit = {
    ensure(1 + 5 + key.length + 5 + value.length)
    bytes(size) = PutTag
    size += 1
    append(key)
    append(value)
    count += 1
  }

  def result(): Array[Byte] = {
    ints.set(bytes, CountOffset, count)
    if (bytes.length == size) bytes else java.util.Arrays.copyOf(bytes, size)
  }

  private def append(data: Array[Byte]): Unit = {
    var rest = data.length
    while (rest >= 0x80) {
      bytes(size) = (rest | 0x80).toByte
      size += 1
      rest >>>= 7
    }
    bytes(size) = rest.toByte
    size += 1
    System.arraycopy(data, 0, bytes, size, data.length)
    size += data.length
  }

  private def ensure(more: Int): Unit =
    if (size + more > bytes.length)
      bytes = java.util.Arrays.copyOf(bytes, math.max(size + more, bytes.length * 2))
}

object SerializedBatch {
  private val HeaderBytes = 12
  private val CountOffset = 8
  private val PutTag: Byte = 1
  private val ints =
    MethodHandles.byteArrayViewVarHandle(classOf[Array[Int]], ByteOrder.LITTLE_ENDIAN)
}
