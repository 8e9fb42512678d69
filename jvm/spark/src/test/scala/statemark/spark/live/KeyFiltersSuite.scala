package statemark.spark.live

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.sources._
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String
import org.scalatest.funsuite.AnyFunSuite
import statemark.spark.reads.LiveKeys

/** Goal: filters become keys only where that reads every row that they let through. */
class KeyFiltersSuite extends AnyFunSuite {
  private val two = new StructType().add("a", IntegerType).add("b", StringType)

  private def keys(key: StructType, filters: Filter*): Option[LiveKeys] =
    KeyFilters.keys(filters, key)

  private def pairs(found: LiveKeys): Seq[(Int, String)] =
    found.rows.toSeq.map(r => (r.getInt(0), Option(r.getUTF8String(1)).map(_.toString).orNull))

  test("a value for each column, or several") {
    val one = keys(two, EqualTo("key.a", 1), EqualTo("key.b", "x"))
    assert(one.exists(k => k.isWhole && pairs(k) == Seq((1, "x"))))
    val four = keys(two, In("key.a", Array(1, 2)), In("key.b", Array[Any]("x", null, "y")))
    assert(four.map(pairs(_).toSet).contains(Set((1, "x"), (1, "y"), (2, "x"), (2, "y"))))
    val absent = keys(two, EqualTo("key.a", 1), IsNull("key.b"))
    assert(absent.map(pairs).contains(Seq((1, null))))
  }

  test("leading columns are a prefix, others nothing") {
    val prefix = keys(two, EqualTo("key.a", 1), GreaterThan("key.b", "x"))
    assert(prefix.exists(k => !k.isWhole && k.schema.fieldNames.toSeq == Seq("a")))
    assert(keys(two, EqualTo("key.b", "x")).isEmpty)
    assert(keys(two, EqualTo("value.a", 1)).isEmpty)
    assert(keys(two, Or(EqualTo("key.a", 1), EqualTo("key.a", 2))).isEmpty)
  }

  test("a struct is known by all of its fields, none of them null") {
    val window = new StructType().add("start", LongType).add("end", LongType)
    val key = new StructType().add("w", window)
    val found = keys(key, EqualTo("key.w.start", 3L), EqualTo("key.w.end", 4L))
    val wanted = InternalRow(InternalRow(3L, 4L))
    assert(found.exists(k => k.rows.toSeq == Seq(k.of(wanted))))
    assert(keys(key, EqualTo("key.w.start", 3L)).isEmpty)
    assert(keys(key, EqualTo("key.w.start", 3L), IsNull("key.w.end")).isEmpty)
  }

  test("values that are equal and differ in bytes are not looked up") {
    for (dataType <- Seq(DoubleType, FloatType, StringType("UNICODE_CI")))
      assert(keys(new StructType().add("a", dataType), EqualTo("key.a", 0.0)).isEmpty, dataType)
  }

  test("decimals have the scale of the column") {
    val key = new StructType().add("a", DecimalType(10, 3))
    val found = keys(key, EqualTo("key.a", new java.math.BigDecimal("1.5")))
    assert(found.exists(_.rows.head.getDecimal(0, 10, 3) == Decimal("1.500")))
    assert(found.exists(k => k.rows.head == k.of(InternalRow(Decimal(BigDecimal("1.500"), 10, 3)))))
  }

  test("more keys than are worth it are scanned for") {
    val many = (0 until 200).toArray[Any]
    assert(keys(two, In("key.a", many), In("key.b", many.map(_.toString))).forall(!_.isWhole))
    val rows = keys(two, In("key.a", many), EqualTo("key.b", "x"))
    assert(rows.exists(_.rows.length == 200))
    assert(rows.exists(_.rows.last.getUTF8String(1) == UTF8String.fromString("x")))
  }
}
