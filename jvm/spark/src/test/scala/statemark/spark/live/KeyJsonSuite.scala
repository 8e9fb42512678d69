package statemark.spark.live

import java.time.LocalDate
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.util.GenericArrayData
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.InvalidInputException
import statemark.spark.reads.LiveKeys

/** Goal: a key as JSON is the key of each row that is equal to it. */
class KeyJsonSuite extends AnyFunSuite {
  private val small = DecimalType(10, 2)
  private val negativeNaN = java.lang.Double.longBitsToDouble(0xfff8000000000000L)

  private def text(s: String) = UTF8String.fromString(s)
  private def decimal(s: String, of: DecimalType) = Decimal(BigDecimal(s), of.precision, of.scale)

  /** Types, values as JSON, and as Spark has them. */
  private val values = Seq[(DataType, String, Any)](
    (BooleanType, "true", true),
    (ByteType, "-128", Byte.MinValue),
    (ShortType, "32767", Short.MaxValue),
    (IntegerType, "-2147483648", Int.MinValue),
    (IntegerType, "7.0", 7),
    (LongType, "9223372036854775807", Long.MaxValue),
    (FloatType, "0.1", 0.1f),
    (FloatType, """{"float": "nan"}""", Float.NaN),
    (FloatType, """{"float": "-inf"}""", Float.NegativeInfinity),
    (FloatType, "-0.0", 0.0f),
    // Halfway between two: a cast takes the even one, its shortest text is nearer to the other.
    (FloatType, "1.0000000596046448", 1.0f),
    (FloatType, "\"1.0000000596046448\"", 1.0000001f),
    (DoubleType, "7", 7.0),
    (DoubleType, "5e-324", Double.MinPositiveValue),
    (DoubleType, """{"float": "nan"}""", Double.NaN),
    (DoubleType, """{"float": "inf"}""", Double.PositiveInfinity),
    (DoubleType, "-0.0", 0.0),
    (DoubleType, "\"NaN\"", Double.NaN),
    (small, "\"1.5\"", decimal("1.50", small)),
    (small, "1.5", decimal("1.50", small)),
    (small, "\"1E+7\"", decimal("10000000.00", small)),
    (small, "0", decimal("0.00", small)),
    (small, "\"0E-600000000\"", decimal("0.00", small)),
    (small, "\"1.500000\"", decimal("1.50", small)),
    (StringType, "\"\"", text("")),
    (StringType, "\"ä€😀\"", text("ä€😀")),
    (StringType, "7", text("7")),
    (StringType, """{"base64": "YWI="}""", text("ab")),
    (BinaryType, """{"base64": "AP8="}""", Array[Byte](0, -1)),
    (BinaryType, "\"ab\"", Array[Byte]('a', 'b')),
    (DateType, "\"2024-02-29\"", LocalDate.of(2024, 2, 29).toEpochDay.toInt),
    (DateType, """{"instant": 5, "wall": -86400000000}""", -1),
    (TimestampType, """{"instant": -5, "wall": 7}""", -5L),
    (TimestampType, "\"1970-01-01T02:00:00.000001+02:00\"", 1L),
    (TimestampType, "\"1970-01-01 01:00:00\"", 0L), // in the zone of the session
    (TimestampNTZType, """{"instant": -5, "wall": 7}""", 7L),
    (TimestampNTZType, "\"1970-01-01T00:00:00.000002+02:00\"", 2L),
    (DayTimeIntervalType(), """{"micros": -3}""", -3L),
    (YearMonthIntervalType(), "\"1-2\"", 14)
  )

  private def found(schema: StructType, json: String): Seq[Option[UnsafeRow]] =
    new KeyJson(schema, "Europe/Berlin").keys(json).rows

  private def key(schema: StructType, row: InternalRow): UnsafeRow =
    LiveKeys.of(schema, Seq(row)).rows.head

  test("values of every type, alone, in a struct, in an array and beside others") {
    for ((of, json, value) <- values) withClue(s"${of.sql} $json: ") {
      val alone = new StructType().add("a", of)
      val one = key(alone, InternalRow(value))
      assert(found(alone, s"""[{"a": $json}, {"a": null}, {"a": $json}]""") ==
        Seq(Some(one), Some(key(alone, InternalRow(None.orNull))), Some(one)))
      val inStruct = new StructType().add("s", alone).add("n", IntegerType)
      assert(found(inStruct, s"""[{"n": 3, "s": {"a": $json}}]""") ==
        Seq(Some(key(inStruct, InternalRow(InternalRow(value), 3)))))
      val inArray = new StructType().add("l", ArrayType(of))
      val array = new GenericArrayData(Array[Any](value, None.orNull))
      assert(found(inArray, s"""[{"l": [$json, null]}]""") ==
        Seq(Some(key(inArray, InternalRow(array)))))
      val beside = new StructType().add("n", IntegerType).add("a", of).add("b", of)
      assert(found(beside, s"""[{"a": $json, "b": null, "n": 3}]""") ==
        Seq(Some(key(beside, InternalRow(3, value, None.orNull)))))
    }
  }

  test("what a column cannot hold is in no key, and leaves other keys alone") {
    for (
      (of, json) <- Seq(
        (ByteType, "128"),
        (IntegerType, "3e9"),
        (LongType, "9223372036854775808"),
        (FloatType, "1e300"),
        (DoubleType, "1" + "0" * 400),
        (small, "1.005"),
        (small, "\"1E+8\""),
        (small, "\"1E+600000000\""),
        (small, "\"1E-600000000\""), // to round it would take hours
        (small, "\"1E-400000000\""),
        (small, "\"1E+2147483647\""),
        (FloatType, "3.402823669209385e38"),
        // It has as many microseconds as 5 in 64 bits.
        (DayTimeIntervalType(), """{"micros": 18446744073709551621}"""),
        (StringType, "\"\\ud800\""), // no text that has bytes
        (BinaryType, "\"\\ud800\""),
        (small, "1e300"),
        (small, """{"float": "nan"}"""),
        (DateType, """{"instant": 0, "wall": 1}""")
      )
    ) withClue(s"${of.sql} $json: ") {
      val schema = new StructType().add("a", of).add("b", IntegerType)
      val json_ = s"""[{"a": $json, "b": 1}, {"a": null, "b": 1}]"""
      assert(found(schema, json_).map(_.isDefined) == Seq(false, true))
    }
  }

  test("values of other types, and other columns, are refused with the columns of a key") {
    val inner = new StructType().add("x", IntegerType).add("y", IntegerType)
    for (
      (of, json) <- Seq(
        (BooleanType, "1"),
        (IntegerType, "true"),
        (IntegerType, "\"x\""),
        (IntegerType, "3.5"),
        (ByteType, "\"3.5\""),
        (LongType, "\"1e-400000000\""),
        (LongType, """{"float": "inf"}"""),
        (DoubleType, "[1]"),
        (StringType, "{}"),
        (StringType, "true"),
        (StringType, """{"base64": "?"}"""),
        (BinaryType, "1"),
        (TimestampType, "5"),
        (TimestampType, "\"x\""),
        (inner, """{"x": 1}"""),
        (inner, """{"x": 1, "y": 2, "z": 3}"""),
        (inner, "1"),
        (ArrayType(IntegerType), "{}"),
        (MapType(StringType, IntegerType), """{"k": 1}""")
      )
    ) withClue(s"${of.sql} $json: ") {
      val schema = new StructType().add("a", of)
      val error = intercept[InvalidInputException](found(schema, s"""[{"a": $json}]"""))
      assert(error.remedy.contains(s"operator: ${schema.sql}"))
    }
  }

  test("the only column of a key is meant by any name, and values without names by their order") {
    val one = new StructType().add("_groupingexpression", LongType)
    val seven = Some(key(one, InternalRow(7L)))
    assert(found(
      one,
      """[{"key": 7}, {"_groupingexpression": 7}, [7]]"""
    ) == Seq(seven, seven, seven))
    val two = new StructType().add("a", LongType).add("b", StringType)
    assert(found(two, """[[7, "x"], [[7, "x"]], {"b": "x", "a": 7}]""").distinct.length == 1)
    def refusal(schema: StructType, json: String) =
      intercept[InvalidInputException](found(schema, json)).getMessage
    assert(refusal(two, "[[7]]").contains("1 value without a name where a, b is asked for"))
    assert(refusal(two, """[{"a": 7}]""").contains("a key has a where a, b is asked for"))
    assert(refusal(one, """[{"a": 7, "b": 8}]""").contains("where _groupingexpression is asked"))
    assert(refusal(one, """[{"key": "x"}]""").contains("_groupingexpression is \"x\", no BIGINT"))
  }

  test("of keys that are equal all are sought that a store can have, or all rows are read") {
    val schema = new StructType()
      .add("d", DoubleType).add("s", new StructType().add("f", FloatType).add("d", DoubleType))
    def row(d: Double, f: Float, e: Double) = InternalRow(d, InternalRow(f, e))
    def asked(rows: InternalRow*) = new AskedKeys(schema, rows.map(Some(_)))
    val zeros = asked(row(0.0, -0.0f, 1.0), row(-0.0, 0.0f, 1.0))
    assert(zeros.rows.distinct.length == 1 && zeros.placed.rows.length == 1)
    val forms = for (d <- Seq(0.0, -0.0); f <- Seq(0.0f, -0.0f)) yield key(schema, row(d, f, 1.0))
    assert(zeros.sought(areCanonical = false).map(_.rows.toSet).contains(forms.toSet))
    assert(zeros.sought(areCanonical = true).map(_.rows.toSeq).contains(Seq(forms.head)))
    forms.foreach(form => assert(zeros.rows.head.contains(zeros.of(form))))
    val nans = asked(row(1.0, Float.NaN, negativeNaN))
    assert(nans.sought(areCanonical = false).isEmpty)
    assert(nans.rows.head.contains(nans.of(row(1.0, Float.NaN, Double.NaN))))
    assert(nans.sought(areCanonical = true).exists(_.rows.length == 1))
    val many = new StructType().add("l", ArrayType(DoubleType))
    val array = InternalRow(new GenericArrayData(Array.fill[Any](30)(0.0)))
    assert(new AskedKeys(many, Seq(Some(array))).sought(areCanonical = false).isEmpty)
  }
}
