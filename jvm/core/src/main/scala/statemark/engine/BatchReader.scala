package statemark.engine

import java.util.Arrays
import statemark.common.Bytes

/** Reads what [[BatchWriter]] wrote, without copying it: where each record lies, in key order as it was
  * written, for point reads and scans.
  *
  * ''Thread:'' any, several at once, once it is made.
  *
  * @param segments the segments of one batch: first its range deletes, then at most one record for each key, ascending
  */
final class BatchReader(segments: Vector[BatchSegment]) {
  import BatchReader._

  // Segment and offset of each record.
  private val places: Array[Long] = {
    val found = Array.newBuilder[Long]
    for ((segment, s) <- segments.zipWithIndex) {
      var at = BatchWriter.HeaderBytes
      while (at < segment.length) {
        if (segment.bytes(at) != BatchWriter.DeleteRange) found += s.toLong << 32 | at
        at = endOf(segment.bytes, at)
      }
    }
    found.result()
  }

  /** Range deletes `[begin, end)`, which lie below all other records. */
  def ranges: Vector[(Array[Byte], Array[Byte])] = rangesOf(use => segments.foreach(visit(_, use)))

  def length: Int = places.length

  def key(i: Int): Array[Byte] = keyAt(segmentOf(i), offsetOf(i))

  def record(i: Int): BatchRecord = {
    val segment = segmentOf(i)
    val at = offsetOf(i)
    segment(at) match {
      case BatchWriter.Put => BatchRecord.Put(valueAt(segment, at))
      case BatchWriter.Merge => BatchRecord.Merge(valueAt(segment, at))
      case _ => BatchRecord.Delete
    }
  }

  /** Index of the first record whose key is not below `key`. */
  def firstFrom(key: Array[Byte]): Int = {
    var low = 0
    var high = places.length
    while (low < high) {
      val middle = (low + high) >>> 1
      if (compareKey(middle, key) < 0) low = middle + 1 else high = middle
    }
    low
  }

  /** Index of the record of `key`. */
  def find(key: Array[Byte]): Option[Int] =
    Some(firstFrom(key)).filter(i => i < places.length && compareKey(i, key) == 0)

  private def compareKey(i: Int, key: Array[Byte]): Int = {
    val segment = segmentOf(i)
    val length = varint(segment, offsetOf(i) + 1)
    val from = offsetOf(i) + 1 + varintBytes(length)
    Arrays.compareUnsigned(segment, from, from + length, key, 0, key.length)
  }

  private def segmentOf(i: Int) = segments((places(i) >>> 32).toInt).bytes
  private def offsetOf(i: Int) = places(i).toInt
}

/** The effect of a record on its key. */
sealed trait BatchRecord

object BatchRecord {
  final case class Put(value: Array[Byte]) extends BatchRecord
  final case class Merge(operand: Array[Byte]) extends BatchRecord
  case object Delete extends BatchRecord
}

private[statemark] object BatchReader {

  /** Heap that a reader takes for each record. */
  val PlaceBytes = 8L

  /** Is shown each record of a batch. */
  private[statemark] trait Visitor {

    /** @param tag what the record does
      * @param in holds the key from `key` on, and what belongs to it from `value` on
      */
    def record(
        tag: Byte,
        in: Array[Byte],
        key: Int,
        keyLength: Int,
        value: Int,
        valueLength: Int
    ): Unit
  }

  private[engine] def visit(batch: BatchSegment, use: Visitor): Unit = {
    val segment = batch.bytes
    var at = BatchWriter.HeaderBytes
    while (at < batch.length) {
      val tag = segment(at)
      val keyLength = varint(segment, at + 1)
      val key = at + 1 + varintBytes(keyLength)
      val afterKey = key + keyLength
      if (tag == BatchWriter.Delete) {
        use.record(tag, segment, key, keyLength, afterKey, 0)
        at = afterKey
      } else {
        val valueLength = varint(segment, afterKey)
        val value = afterKey + varintBytes(valueLength)
        use.record(tag, segment, key, keyLength, value, valueLength)
        at = value + valueLength
      }
    }
  }

  /** Returns the range deletes among the records that `visit` shows. */
  private[engine] def rangesOf(visit: Visitor => Unit): Vector[(Array[Byte], Array[Byte])] = {
    val found = Vector.newBuilder[(Array[Byte], Array[Byte])]
    visit { (tag, in, key, keyLength, value, valueLength) =>
      if (tag == BatchWriter.DeleteRange) found += ((
        Arrays.copyOfRange(in, key, key + keyLength),
        Arrays.copyOfRange(in, value, value + valueLength)
      ))
    }
    found.result()
  }

  /** Returns the key of the first record. */
  def firstKey(segment: Array[Byte]): Array[Byte] = keyAt(segment, BatchWriter.HeaderBytes)

  private def keyAt(segment: Array[Byte], at: Int): Array[Byte] = sized(segment, at + 1)

  private def valueAt(segment: Array[Byte], at: Int): Array[Byte] =
    if (segment(at) == BatchWriter.Delete) Bytes.empty
    else sized(segment, afterSized(segment, at + 1))

  private def endOf(segment: Array[Byte], at: Int): Int = {
    val afterKey = afterSized(segment, at + 1)
    if (segment(at) == BatchWriter.Delete) afterKey else afterSized(segment, afterKey)
  }

  private def sized(segment: Array[Byte], at: Int): Array[Byte] = {
    val length = varint(segment, at)
    val from = at + varintBytes(length)
    Arrays.copyOfRange(segment, from, from + length)
  }

  private def afterSized(segment: Array[Byte], at: Int): Int = {
    val length = varint(segment, at)
    at + varintBytes(length) + length
  }

  private def varint(segment: Array[Byte], at: Int): Int = {
    var result = 0
    var i = at
    var shift = 0
    while (segment(i) < 0) {
      result |= (segment(i) & 0x7f) << shift
      shift += 7
      i += 1
    }
    result | segment(i) << shift
  }

  private def varintBytes(n: Int): Int =
    math.max(1, (Integer.SIZE - Integer.numberOfLeadingZeros(n) + 6) / 7)
}
