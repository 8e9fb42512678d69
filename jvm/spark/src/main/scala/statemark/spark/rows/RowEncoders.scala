package statemark.spark.rows

import java.util.concurrent.ConcurrentHashMap
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType
import statemark.common.Bytes

/** Spark's encoders of one column family. Not thread-safe: they reuse their rows.
  *
  * @param keySchema columns of a key
  * @param prefixColumns with so many of them a scan may begin; 0 where keys are found whole only
  * @param areKeysPlain whether the bytes of a key are those of [[RowBytes]]
  * @param areValuesPlain the same of a value
  */
final case class RowEncoders(
    key: RocksDBKeyStateEncoder,
    value: RocksDBValueStateEncoder,
    keySchema: StructType,
    prefixColumns: Int,
    areKeysPlain: Boolean,
    areValuesPlain: Boolean
) {

  /** Returns the bytes of a key, for a call that keeps none of them. */
  def keyBytes(row: UnsafeRow, plain: RowBytes): Array[Byte] =
    if (areKeysPlain) plain.of(row) else key.encodeKey(row)

  /** Returns the bytes of a value, for a call that keeps none of them. */
  def valueBytes(row: UnsafeRow, plain: RowBytes): Array[Byte] =
    if (areValuesPlain) plain.of(row) else value.encodeValue(row)

  /** Returns the bytes of several values of a key, with a delimiter between two.
    * @param stored makes of the bytes of a value what the store has for it
    */
  def joined(values: Array[UnsafeRow], delimiter: Array[Byte])(
      stored: Array[Byte] => Array[Byte]
  ): Array[Byte] = {
    val encoded = values.toSeq.map(row => stored(value.encodeValue(row)))
    Bytes.concat(encoded.take(1) ++ encoded.drop(1).flatMap(Seq(delimiter, _)): _*)
  }
}

/** The encoders of a provider by column family. They outlive aborts and stores: Spark registers a
  * column family in one store, aborts it, and reads the family with the next.
  *
  * No other provider shares them. Spark keeps those of a run by store, but a live read has a provider of its own
  * for the store that a task writes at that moment: with the same encoders, each would point the rows that the
  * other is reading at its own.
  *
  * @param delimiterBytes length of the delimiter between merged values
  */
final class RowEncoderRegistry(
    encoding: String,
    usesFamilies: Boolean,
    delimiterBytes: Int,
    schemas: Option[StateSchemaProvider]
) {
  private val byFamily = new ConcurrentHashMap[String, Option[RowEncoders]]()

  def get(family: String): Option[RowEncoders] = byFamily.getOrDefault(family, None)

  /** Keeps the encoders that are there. Keys are encoded by the schema in `spec`; the key schema
    * beside it may differ (joins do that) and is for schema checks only.
    */
  def register(
      family: String,
      keySchema: StructType,
      valueSchema: StructType,
      spec: KeyStateEncoderSpec,
      hasMultipleValues: Boolean
  ): Unit = {
    schemas match {
      case Some(recording: TestStateSchemaProvider) =>
        recording.captureSchema(family, keySchema, valueSchema)
      case _ =>
    }
    byFamily.computeIfAbsent(
      family,
      _ => Some(create(family, valueSchema, spec, hasMultipleValues))
    ): Unit
  }

  def remove(family: String): Unit = byFamily.remove(family): Unit

  private def create(
      family: String,
      valueSchema: StructType,
      spec: KeyStateEncoderSpec,
      hasMultipleValues: Boolean
  ): RowEncoders = {
    val data = encoding match {
      case "avro" => new AvroStateEncoder(spec, valueSchema, schemas, family)
      case "unsaferow" => new UnsafeRowDataEncoder(spec, valueSchema)
    }
    RowEncoders(
      RocksDBStateEncoder.getKeyEncoder(data, spec, usesFamilies),
      RowFormat.valueEncoder(data, valueSchema, hasMultipleValues, delimiterBytes),
      spec.keySchema,
      spec match {
        case PrefixKeyScanStateEncoderSpec(_, columns) => columns
        case _ => 0
      },
      areKeysPlain = encoding == "unsaferow" && spec.isInstanceOf[NoPrefixKeyStateEncoderSpec],
      areValuesPlain = encoding == "unsaferow" && !hasMultipleValues
    )
  }
}
