package statemark.common

import java.lang.invoke.MethodHandles
import java.nio.ByteOrder
import java.security.SecureRandom

/** The hash of keys in tables in memory: SipHash-1-3 with a secret of this process (ADR 27). A sender of keys cannot
  * choose keys that fall into one slot. Another process has other hashes, so that nothing on disk, and no order that a
  * user sees, may come from them.
  *
  * ''Thread:'' any.
  *
  * ''Source:'' J.-P. Aumasson, D. J. Bernstein, SipHash: a fast short-input PRF, 2012.
  */
private[statemark] object KeyHash {
  private val Longs =
    MethodHandles.byteArrayViewVarHandle(classOf[Array[Long]], ByteOrder.LITTLE_ENDIAN)

  // The system's source of randomness, once per process.
  private val random = new SecureRandom
  private val secret0 = random.nextLong()
  private val secret1 = random.nextLong()

  /** Returns the hash of a key, the same for equal keys while this process lives. */
  def of(key: Array[Byte]): Long = sipHash13(key, 0, key.length, secret0, secret1)

  /** Returns the hash of the key that is a part of `bytes`. */
  def of(bytes: Array[Byte], from: Int, length: Int): Long =
    sipHash13(bytes, from, length, secret0, secret1)

  /** Returns SipHash-1-3 of bytes: one round for each eight of them, one for the rest with the length, three at the end.
    *
    * @param secret0 the first eight bytes of the secret, little endian
    * @param secret1 the other eight
    */
  private[common] def sipHash13(
      bytes: Array[Byte],
      from: Int,
      length: Int,
      secret0: Long,
      secret1: Long
  ): Long = {
    var v0 = secret0 ^ 0x736f6d6570736575L
    var v1 = secret1 ^ 0x646f72616e646f6dL
    var v2 = secret0 ^ 0x6c7967656e657261L
    var v3 = secret1 ^ 0x7465646279746573L
    val whole = length >>> 3
    var i = 0
    while (i <= whole + 3) {
      val word =
        if (i < whole) longAt(bytes, from + (i << 3))
        else if (i == whole) lastWord(bytes, from, length)
        else 0L
      if (i == whole + 1) v2 ^= 0xff
      v3 ^= word
      v0 += v1
      v2 += v3
      v1 = java.lang.Long.rotateLeft(v1, 13) ^ v0
      v3 = java.lang.Long.rotateLeft(v3, 16) ^ v2
      v0 = java.lang.Long.rotateLeft(v0, 32)
      v2 += v1
      v0 += v3
      v1 = java.lang.Long.rotateLeft(v1, 17) ^ v2
      v3 = java.lang.Long.rotateLeft(v3, 21) ^ v0
      v2 = java.lang.Long.rotateLeft(v2, 32)
      v0 ^= word
      i += 1
    }
    v0 ^ v1 ^ v2 ^ v3
  }

  /** Returns the bytes after the last whole word, and the length in the highest byte. */
  private def lastWord(bytes: Array[Byte], from: Int, length: Int): Long = {
    val rest = length & 7
    var word = length.toLong << 56
    if (rest > 0 && length >= 8) word |= longAt(bytes, from + length - 8) >>> (64 - 8 * rest)
    else {
      var i = 0
      while (i < rest) {
        word |= (bytes(from + i) & 0xffL) << (8 * i)
        i += 1
      }
    }
    word
  }

  private def longAt(bytes: Array[Byte], at: Int): Long = Longs.get(bytes, at): Long
}
