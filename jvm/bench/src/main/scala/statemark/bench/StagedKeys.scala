package statemark.bench

import java.lang.invoke.MethodHandles
import java.nio.ByteOrder
import java.util.{Arrays, Comparator}

/** A key with its hash and its first eight bytes as an unsigned big-endian number: two keys that
  * differ there are ordered by one comparison of longs.
  */
final class StagedKey(val bytes: Array[Byte]) {
  val first8: Long = StagedKey.eightBytesAt(bytes, 0)
  private val hash = Arrays.hashCode(bytes)

  override def hashCode: Int = hash
  override def equals(other: Any): Boolean = other match {
    case that: StagedKey => hash == that.hash && Arrays.equals(bytes, that.bytes)
    case _ => false
  }
}

object StagedKey {
  private val longs =
    MethodHandles.byteArrayViewVarHandle(classOf[Array[Long]], ByteOrder.BIG_ENDIAN)

  /** Short keys are padded with zeros; a tie is decided by the full comparison. */
  def eightBytesAt(bytes: Array[Byte], offset: Int): Long =
    if (bytes.length >= offset + 8) longs.get(bytes, offset): Long
    else if (bytes.length <= offset) 0L
    else longs.get(Arrays.copyOf(Arrays.copyOfRange(bytes, offset, bytes.length), 8), 0): Long

  val byFullBytes: Comparator[StagedKey] = (a, b) => Arrays.compareUnsigned(a.bytes, b.bytes)

  val byFirst8ThenFull: Comparator[StagedKey] = (a, b) => {
    val c = java.lang.Long.compareUnsigned(a.first8, b.first8)
    if (c != 0) c else Arrays.compareUnsigned(a.bytes, b.bytes)
  }
}

/** One value of a staged key; `older` is kept only while a scan is open that may still need it. */
final class Version(val sequence: Long, val value: Array[Byte], val older: Version)

/** A staged key with its newest value. Scans remember the sequence number at which they were
  * opened and take the newest version that is not younger: this makes them snapshots without a
  * copy. Volatile, as a live query may read a cell while the owner writes it.
  */
final class Cell(val key: StagedKey, first: Version) {
  @volatile var newest: Version = first

  def asOf(sequence: Long): Option[Array[Byte]] = {
    var v = newest
    while (v != null && v.sequence > sequence) v = v.older
    if (v == null) None else Some(v.value)
  }
}
