package statemark.spark.rows

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider
import org.apache.spark.unsafe.Platform

/** The bytes that Spark has for a row that is encoded as it is: one for the encoding, and the row's. Spark copies a row
  * twice for them. Here it is copied once, into an array that the next row of the same size takes again: whoever gets
  * it keeps none of it. A handle has its own, so that a call that comes too late, when a task has ended, touches no
  * array of the next task's.
  *
  * ''Thread:'' one at a time.
  *
  * ''Source:'' Spark 4.2 `RocksDBDataEncoder.encodeUnsafeRow`.
  */
private[spark] final class RowBytes {
  import RowBytes._

  private var bytes = Array.emptyByteArray

  def of(row: UnsafeRow): Array[Byte] = {
    val size = row.getSizeInBytes
    val to =
      if (bytes.length == HeaderBytes + size) bytes else new Array[Byte](HeaderBytes + size)
    if (to.length <= MostKept) bytes = to
    to(0) = RocksDBStateStoreProvider.STATE_ENCODING_VERSION
    Platform.copyMemory(row.getBaseObject, row.getBaseOffset, to, FirstByte, size.toLong)
    to
  }
}

private object RowBytes {

  /** The bytes of a row above which its array is left to the garbage collector, as Spark keeps handles for long. */
  private val MostKept = 32 * 1024
  private val HeaderBytes = RocksDBStateStoreProvider.STATE_ENCODING_NUM_VERSION_BYTES
  private val FirstByte = Platform.BYTE_ARRAY_OFFSET.toLong + HeaderBytes
}
