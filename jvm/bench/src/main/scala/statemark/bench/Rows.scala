package statemark.bench

import java.util.Random

import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types._

/** Rows of the shape that Spark's own state store benchmark uses: a random number and a timestamp
  * as the key, a number as the value.
  */
object Rows {
  type Pair = (UnsafeRow, UnsafeRow)

  private val keySchema = StructType(
    Seq(StructField("key1", IntegerType), StructField("key2", TimestampType))
  )
  private val valueSchema = StructType(Seq(StructField("value", IntegerType)))
  private val key = UnsafeProjection.create(keySchema)
  private val value = UnsafeProjection.create(valueSchema)
  private val firstColumn = UnsafeProjection.create(StructType(keySchema.take(1)))

  val plain: Shape = Shape(keySchema, valueSchema, NoPrefixKeyStateEncoderSpec(keySchema))
  val prefixed: Shape = plain.copy(encoder = PrefixKeyScanStateEncoderSpec(keySchema, 1))
  val multiValued: Shape = plain.copy(columnFamilies = true, multipleValues = true)

  def keyOf(number: Int, timestampMicros: Long): UnsafeRow = {
    val row = new GenericInternalRow(2)
    row.setInt(0, number)
    row.setLong(1, timestampMicros)
    key(row).copy()
  }

  def valueOf(number: Int): UnsafeRow = {
    val row = new GenericInternalRow(1)
    row.setInt(0, number)
    value(row).copy()
  }

  def prefixOf(number: Int): UnsafeRow = {
    val row = new GenericInternalRow(1)
    row.setInt(0, number)
    firstColumn(row).copy()
  }

  /** Keys in no order; the timestamps run from 0 ms to `count` - 1 ms. */
  def random(count: Int, seed: Long): Array[Pair] = {
    val numbers = new Random(seed)
    Array.tabulate(count)(i => (keyOf(numbers.nextInt(Int.MaxValue), i * 1000L), valueOf(i)))
  }

  /** `perPrefix` rows under each of the numbers 0 until `prefixes`, in no order. */
  def underPrefixes(prefixes: Int, perPrefix: Int, seed: Long): Array[Pair] = {
    val rows = Array.tabulate(prefixes * perPrefix) { i =>
      (keyOf(i / perPrefix, (i % perPrefix) * 1000L), valueOf(i))
    }
    shuffled(rows, seed)
  }

  def shuffled[A <: AnyRef](rows: Array[A], seed: Long): Array[A] = {
    val out = rows.clone()
    java.util.Collections.shuffle(java.util.Arrays.asList(out: _*), new Random(seed))
    out
  }
}
