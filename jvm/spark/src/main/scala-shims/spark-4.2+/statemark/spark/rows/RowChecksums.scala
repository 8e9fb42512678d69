package statemark.spark.rows

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._

/** Spark's row checksums of one store: a header before every value covers key and value. In a
  * changelog a deleted key and the end of a range carry one as well. Where they are off, every method
  * hands back what it was given.
  *
  * ''Thread:'' one at a time.
  * ''Source:'' Spark 4.2 `KeyValueChecksumEncoder`.
  */
final class RowChecksums private (
    val isEnabled: Boolean,
    verifier: Option[KeyValueIntegrityVerifier],
    delimiterBytes: Int
) {

  /** `value` behind its header. */
  def encode(key: Array[Byte], value: Array[Byte]): Array[Byte] =
    if (!isEnabled) value
    else
      KeyValueChecksumEncoder.encodeValueRowWithChecksum(
        value,
        KeyValueChecksum.create(key, Some(value))
      )

  /** A stored value, one or several, without headers.
    * @throws SparkException where a checksum is wrong
    */
  def decode(key: Array[Byte], value: Array[Byte]): Array[Byte] =
    if (!isEnabled) value
    else
      KeyValueChecksumEncoder.decodeAndVerifyValueRowWithChecksum(
        verifier,
        key,
        value,
        delimiterBytes
      )

  /** The rows of a stored list of values.
    * @throws SparkException where a checksum is wrong
    */
  def rows(
      encoder: RocksDBValueStateEncoder,
      key: Array[Byte],
      value: Array[Byte]
  ): Iterator[UnsafeRow] =
    if (!isEnabled) encoder.decodeValues(value)
    else
      encoder.decodeValues(KeyValueChecksumEncoder.decodeAndVerifyMultiValueRowWithChecksum(
        verifier,
        key,
        value,
        delimiterBytes
      ))

  /** @throws SparkException where the checksum of a value in a changelog is wrong */
  def verify(key: Array[Byte], value: Array[Byte]): Unit = verifier.foreach { v =>
    val (row, checksum) = KeyValueChecksumEncoder.decodeOneValueRowIndexWithChecksum(value)
    v.verify(ArrayIndexRange(key, 0, key.length), Some(row), checksum)
  }

  /** A deleted key as it stands in a changelog. */
  def encodeDeleted(key: Array[Byte]): Array[Byte] =
    if (!isEnabled) key
    else KeyValueChecksumEncoder.encodeKeyRowWithChecksum(key, KeyValueChecksum.create(key, None))

  /** @throws SparkException where the checksum is wrong */
  def decodeDeleted(key: Array[Byte]): Array[Byte] =
    if (!isEnabled) key
    else KeyValueChecksumEncoder.decodeAndVerifyKeyRowWithChecksum(verifier, key)

  /** The end of a deleted range, from a changelog.
    * @throws SparkException where the checksum is wrong
    */
  def decodeRangeEnd(begin: Array[Byte], end: Array[Byte]): Array[Byte] =
    if (!isEnabled) end
    else KeyValueChecksumEncoder.decodeAndVerifyValueRowWithChecksum(verifier, begin, end, 0)
}

object RowChecksums {

  /** @param verifiesAll whether every row that is read is verified, and not the share that Spark's
    *   setting names
    */
  def apply(
      store: String,
      conf: StateStoreConf,
      delimiterBytes: Int,
      verifiesAll: Boolean
  ): RowChecksums = {
    val ratio = if (verifiesAll) 1L else conf.rowChecksumReadVerificationRatio
    new RowChecksums(
      conf.rowChecksumEnabled,
      KeyValueIntegrityVerifier.create(store, conf.rowChecksumEnabled, ratio),
      delimiterBytes
    )
  }
}
