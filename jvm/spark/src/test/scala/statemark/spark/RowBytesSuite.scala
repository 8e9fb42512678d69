package statemark.spark

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.streaming.state.{
  KeyStateEncoderSpec,
  NoPrefixKeyStateEncoderSpec,
  PrefixKeyScanStateEncoderSpec,
  StateSchemaProvider,
  TestStateSchemaProvider
}
import org.apache.spark.sql.types.{LongType, StringType, StructType}
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String
import org.scalatest.funsuite.AnyFunSuite
import statemark.spark.rows.{RowBytes, RowEncoderRegistry, RowEncoders}

/** Rows are encoded without Spark's encoder where that does nothing but copy them. */
class RowBytesSuite extends AnyFunSuite {
  private val schema = new StructType().add("name", StringType).add("n", LongType)

  private def encoders(
      spec: KeyStateEncoderSpec,
      hasMultipleValues: Boolean,
      usesFamilies: Boolean = false,
      encoding: String = "unsaferow",
      schemas: Option[StateSchemaProvider] = None
  ): RowEncoders = {
    val registry = new RowEncoderRegistry(encoding, usesFamilies, delimiterBytes = 1, schemas)
    registry.register("default", schema, schema, spec, hasMultipleValues)
    registry.get("default").get
  }

  private val projection = UnsafeProjection.create(schema)

  /** A row in an array of its own, and the same one in the middle of a page. */
  private def rowsOf(name: String, n: Long): Seq[UnsafeRow] = {
    val alone = projection(InternalRow(UTF8String.fromString(name), n)).copy()
    val page = new Array[Long](8 + alone.getSizeInBytes / 8)
    val at = Platform.LONG_ARRAY_OFFSET + 24L
    alone.writeToMemory(page, at)
    val inPage = new UnsafeRow(schema.length)
    inPage.pointTo(page, at, alone.getSizeInBytes)
    Seq(alone, inPage)
  }

  for (usesFamilies <- Seq(false, true))
    test(s"the bytes are those of Spark's encoder, of rows of any size (families: $usesFamilies)") {
      val spec = NoPrefixKeyStateEncoderSpec(schema)
      val rows = encoders(spec, hasMultipleValues = false, usesFamilies)
      assert(rows.areKeysPlain && rows.areValuesPlain)
      val plain = new RowBytes
      for {
        name <- Seq("a", "b", "", "a longer name", "x" * 200, "c")
        row <- rowsOf(name, name.length.toLong)
      } {
        assert(rows.keyBytes(row, plain).sameElements(rows.key.encodeKey(row)), name)
        assert(rows.valueBytes(row, plain).sameElements(rows.value.encodeValue(row)), name)
      }
    }

  test("an array serves the next row of its size") {
    val bytes = new RowBytes
    val first = bytes.of(rowsOf("one", 1).head)
    // What is long is not kept in its place.
    assert(bytes.of(rowsOf("x" * 40000, 1).head).length > 40000)
    assert(bytes.of(rowsOf("two", 2).head) eq first)
  }

  test("where Spark's encoder does more than copy, it is asked") {
    val prefixed = encoders(PrefixKeyScanStateEncoderSpec(schema, 1), hasMultipleValues = true)
    assert(!prefixed.areKeysPlain && !prefixed.areValuesPlain)
    val avro = encoders(
      NoPrefixKeyStateEncoderSpec(schema),
      hasMultipleValues = false,
      schemas = Some(new TestStateSchemaProvider),
      encoding = "avro"
    )
    assert(!avro.areKeysPlain && !avro.areValuesPlain)
  }
}
