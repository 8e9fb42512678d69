package statemark.spark.rows

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.{
  StateStoreConf,
  StateStoreId,
  StateStoreProvider
}
import org.apache.spark.sql.types.StructType

/** Asks Spark whether rows are of their schemas. */
object RowValidation {

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
