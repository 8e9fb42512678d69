package statemark.spark.rows

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/** What Spark's encoders can do, and the bytes between merged values. */
object RowFormat {

  /** ''Source:'' Spark 4.2 `RocksDB.mergeDelimiter`: pinned in the checkpoint by its version. */
  def mergeDelimiter(conf: RocksDBConf): String = {
    require(
      RocksDBConf.MERGE_OPERATOR_VALID_VERSIONS.contains(conf.mergeOperatorVersion),
      s"Invalid merge operator version: ${conf.mergeOperatorVersion}; " +
        s"it must be one of ${RocksDBConf.MERGE_OPERATOR_VALID_VERSIONS.mkString(", ")}"
    )
    if (conf.mergeOperatorVersion == 1) "," else ""
  }

  def valueEncoder(
      data: RocksDBDataEncoder,
      schema: StructType,
      hasMultipleValues: Boolean,
      delimiterBytes: Int
  ): RocksDBValueStateEncoder =
    RocksDBStateEncoder.getValueEncoder(data, schema, hasMultipleValues, delimiterBytes)

  def supportsRangeScan(encoder: RocksDBKeyStateEncoder): Boolean = encoder.supportsRangeScan

  def supportsDeleteRange(encoder: RocksDBKeyStateEncoder): Boolean = encoder.supportsDeleteRange
}
