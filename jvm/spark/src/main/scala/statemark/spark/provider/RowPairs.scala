package statemark.spark.provider

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.{
  RocksDBStateStoreProvider,
  StateStoreIterator,
  UnsafeRowPair
}
import org.apache.spark.sql.types.{LongType, StructField, StructType}
import statemark.spark.rows.{RowChecksums, RowEncoders}
import statemark.transaction.RowScan

/** Makes Spark's rows of the scans of a store. A row is the caller's until it asks for the next.
  *
  * ''Thread:'' as the store.
  *
  * @param validate is given each row that nobody has checked against the schema
  */
private final class RowPairs(
    usesFamilies: Boolean,
    checksums: RowChecksums,
    validate: (UnsafeRow, UnsafeRow) => Unit
) {
  def keyOf(rows: RowEncoders, key: Array[Byte]): UnsafeRow = rows.key.decodeKey(
    if (usesFamilies) RocksDBStateStoreProvider.decodeStateRowWithPrefix(key) else key
  )

  def of(
      rows: RowEncoders,
      scan: RowScan,
      isValidating: Boolean = false
  ): StateStoreIterator[UnsafeRowPair] = {
    val pair = new UnsafeRowPair()
    val iterator = new ScanIterator(scan).map { key =>
      pair.withRows(
        keyOf(rows, key),
        rows.value.decodeValue(checksums.decode(key, scan.value))
      )
      if (isValidating) validate(pair.key, pair.value)
      pair
    }
    new StateStoreIterator(iterator, () => scan.close())
  }

  /** One pair for each value of a key's list. */
  def ofLists(rows: RowEncoders, scan: RowScan): StateStoreIterator[UnsafeRowPair] = {
    val pair = new UnsafeRowPair()
    val iterator = new ScanIterator(scan).flatMap { key =>
      val row = keyOf(rows, key)
      rows.value.decodeValues(checksums.decode(key, scan.value)).map(pair.withRows(row, _))
    }
    new StateStoreIterator(iterator, () => scan.close())
  }

  /** Pairs whose keys are read when the caller asks for them: before it asks whether there are more rows, and before it
    * closes the scan. Values stay until the caller asks for the row after the next.
    */
  def byValue(rows: RowEncoders, scan: RowScan): StateStoreIterator[UnsafeRowPair] =
    new StateStoreIterator(
      new PairsByValue(scan, keyOf(rows, _), rows.value.decodeValue, validate),
      () => scan.close()
    )
}

private[spark] object RowPairs {

  /** The values of `dropDuplicatesWithinWatermark`. ''Source:'' Spark 4.2 `StreamingDeduplicateWithinWatermarkExec`. */
  val WithinWatermark: StructType =
    StructType(Seq(StructField("expiresAtMicros", LongType, nullable = false)))

  /** Tells whether the operator of a store scans for what its values say, and wants the keys of those rows alone that it
    * removes.
    */
  def areFoundByValue(valueSchema: StructType): Boolean = valueSchema == WithinWatermark
}
