package statemark.spark.offline.verify

import java.nio.{ByteBuffer, ByteOrder}
import java.util.zip.CRC32C

/** Checks rows against their checksums without trusting the lengths in them.
  *
  * ''Source:'' Spark 4.2 `KeyValueChecksumEncoder`
  */
object RowChecksumCheck {
  private val HeaderBytes = 8

  /** A deleted key behind its checksum. */
  def isDeletedKey(key: Array[Byte]): Boolean =
    key.length >= 4 && header(key).getInt(0) == crc(key, 4, key.length)

  /** One value behind checksum and length. */
  def isValue(key: Array[Byte], value: Array[Byte]): Boolean = areValues(key, value, 0, one = true)

  /** One value behind its checksum, without a length. */
  def isPlainValue(key: Array[Byte], value: Array[Byte]): Boolean =
    value.length >= 4 && header(value).getInt(0) == crc(key, value, 4, value.length)

  /** Merged values, each behind checksum and length. */
  def areValues(key: Array[Byte], value: Array[Byte], delimiterBytes: Int): Boolean =
    areValues(key, value, delimiterBytes, one = false)

  private def areValues(
      key: Array[Byte],
      value: Array[Byte],
      delimiterBytes: Int,
      one: Boolean
  ): Boolean = {
    val buffer = header(value)
    var at = 0
    var isRight = value.length >= HeaderBytes
    while (isRight && at < value.length) {
      val length = if (at + HeaderBytes <= value.length) buffer.getInt(at + 4) else -1
      val end = at.toLong + HeaderBytes + length
      val isLast = end == value.length
      isRight = length >= 0 && (isLast || (!one && end + delimiterBytes < value.length)) &&
        buffer.getInt(at) == crc(key, value, at + HeaderBytes, end.toInt)
      at = if (isLast) value.length else end.toInt + delimiterBytes
    }
    isRight
  }

  private def header(bytes: Array[Byte]): ByteBuffer =
    ByteBuffer.wrap(bytes).order(ByteOrder.nativeOrder())

  private def crc(bytes: Array[Byte], from: Int, until: Int): Int =
    crc(Array.emptyByteArray, bytes, from, until)

  private def crc(key: Array[Byte], value: Array[Byte], from: Int, until: Int): Int = {
    val sum = new CRC32C
    sum.update(key)
    sum.update(value, from, until - from)
    sum.getValue.toInt
  }
}
