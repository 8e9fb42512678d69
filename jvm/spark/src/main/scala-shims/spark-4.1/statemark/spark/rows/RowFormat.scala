package statemark.spark.rows

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
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

  /** @throws StateStoreKeyRowFormatValidationFailure and its kin where a row is not of its schema */
  def validate(
      key: UnsafeRow,
      keySchema: StructType,
      value: UnsafeRow,
      valueSchema: StructType,
      storeId: StateStoreId,
      conf: StateStoreConf
  ): Unit =
    StateStoreProvider.validateStateRowFormat(key, keySchema, value, valueSchema, storeId, conf)
}
