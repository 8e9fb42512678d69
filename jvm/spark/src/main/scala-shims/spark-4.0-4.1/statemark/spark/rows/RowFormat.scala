package statemark.spark.rows

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/** What Spark's encoders can do, and the bytes between merged values. */
object RowFormat {
  def mergeDelimiter(@annotation.unused conf: RocksDBConf): String = ","

  def valueEncoder(
      data: RocksDBDataEncoder,
      schema: StructType,
      hasMultipleValues: Boolean,
      @annotation.unused delimiterBytes: Int
  ): RocksDBValueStateEncoder =
    RocksDBStateEncoder.getValueEncoder(data, schema, hasMultipleValues)

  /** No operator of this line scans or deletes ranges. */
  def supportsRangeScan(@annotation.unused encoder: RocksDBKeyStateEncoder): Boolean = false

  def supportsDeleteRange(@annotation.unused encoder: RocksDBKeyStateEncoder): Boolean = false
}
