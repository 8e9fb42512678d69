package statemark.spark.rows

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._

/** These lines of Spark have no row checksums: every method hands back what it was given. */
final class RowChecksums private {
  def isEnabled: Boolean = false
  def encode(@annotation.unused key: Array[Byte], value: Array[Byte]): Array[Byte] = value
  def decode(@annotation.unused key: Array[Byte], value: Array[Byte]): Array[Byte] = value
  def rows(
      encoder: RocksDBValueStateEncoder,
      @annotation.unused key: Array[Byte],
      value: Array[Byte]
  ): Iterator[UnsafeRow] = encoder.decodeValues(value)
  def verify(key: Array[Byte], value: Array[Byte]): Unit = ()
  def encodeDeleted(key: Array[Byte]): Array[Byte] = key
  def decodeDeleted(key: Array[Byte]): Array[Byte] = key
  def decodeRangeEnd(@annotation.unused begin: Array[Byte], end: Array[Byte]): Array[Byte] = end
}

object RowChecksums {
  private val off = new RowChecksums

  @annotation.nowarn("msg=never used")
  def apply(
      store: String,
      conf: StateStoreConf,
      delimiterBytes: Int,
      verifiesAll: Boolean
  ): RowChecksums = off
}
