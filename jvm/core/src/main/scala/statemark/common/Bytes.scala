package statemark.common

import java.security.MessageDigest
import java.util.Arrays

/** Byte strings as RocksDB's bytewise comparator orders them: unsigned, shorter first when one is
  * a prefix of the other.
  */
object Bytes {

  val empty: Array[Byte] = Array.emptyByteArray

  val order: Ordering[Array[Byte]] =
    (a: Array[Byte], b: Array[Byte]) => Arrays.compareUnsigned(a, b)

  def startsWith(bytes: Array[Byte], prefix: Array[Byte]): Boolean =
    bytes.length >= prefix.length &&
      Arrays.equals(bytes, 0, prefix.length, prefix, 0, prefix.length)

  /** Returns the smallest byte string above every string that starts with `prefix`; None where there is
    * no such bound (an empty prefix, or one of 0xff only).
    */
  def prefixEnd(prefix: Array[Byte]): Option[Array[Byte]] =
    prefix.lastIndexWhere(_ != 0xff.toByte) match {
      case -1 => None
      case i =>
        val end = Arrays.copyOf(prefix, i + 1)
        end(i) = (end(i) + 1).toByte
        Some(end)
    }

  private val DigestLength = 16

  /** Returns the first 16 bytes of SHA-256, which formats have for what is too long or is nobody else's to read
    * (FORMAT.md).
    */
  def digest(bytes: Array[Byte]): Array[Byte] =
    Arrays.copyOf(MessageDigest.getInstance("SHA-256").digest(bytes), DigestLength)

  def concat(parts: Array[Byte]*): Array[Byte] = {
    val result = new Array[Byte](parts.map(_.length).sum)
    parts.foldLeft(0) { (at, part) =>
      System.arraycopy(part, 0, result, at, part.length)
      at + part.length
    }
    result
  }
}
