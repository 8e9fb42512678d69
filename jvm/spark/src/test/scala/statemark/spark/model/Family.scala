package statemark.spark.model

import java.util.Arrays
import statemark.spark.Line

import scala.util.Random

import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** How the keys of a family are encoded, and with that which scans Spark allows on it. */
abstract class KeyKind(
    val prefixScan: Boolean,
    val rangeScan: Boolean,
    val deleteRange: Boolean
) {
  def schema: StructType
  def spec: KeyStateEncoderSpec

  /** How many leading columns a prefix scan is given. */
  def prefixColumns: Int
}

object KeyKind {
  val plain: StructType = StructType(
    Seq(StructField("key1", StringType, nullable = true), StructField("key2", IntegerType))
  )
  private val ordered = StructType(
    Seq(StructField("at", LongType, nullable = true), StructField("name", StringType))
  )

  case object NoPrefix extends KeyKind(false, false, false) {
    def schema: StructType = plain
    def spec: KeyStateEncoderSpec = NoPrefixKeyStateEncoderSpec(schema)
    def prefixColumns: Int = 0
  }
  case object Prefix extends KeyKind(true, false, false) {
    def schema: StructType = plain
    def spec: KeyStateEncoderSpec = PrefixKeyScanStateEncoderSpec(schema, 1)
    def prefixColumns: Int = 1
  }
  case object Range extends KeyKind(true, Line.hasStoreOf42, Line.hasStoreOf42) {
    def schema: StructType = ordered
    def spec: KeyStateEncoderSpec = RangeKeyScanStateEncoderSpec(schema, Seq(0))
    def prefixColumns: Int = 1
  }
  val all: IndexedSeq[KeyKind] = IndexedSeq(NoPrefix, Prefix, Range) ++ TimeKinds.all
}

/** One (virtual) column family of a history: its name, its rows' shape and its pool of keys.
  *
  * A key is known by its rank: its position in the pool, sorted by encoded bytes. So ranks sort as
  * every scan must, and a range of keys is a range of ranks.
  *
  * @param isInternal a family that Spark counts apart
  */
final class Family(
    val index: Int,
    val name: String,
    val kind: KeyKind,
    val multi: Boolean,
    val isInternal: Boolean,
    poolSize: Int,
    encoding: String,
    useFamilies: Boolean,
    random: Random
) {
  private val projection = UnsafeProjection.create(kind.schema)
  private val prefixSchema = StructType(kind.schema.take(kind.prefixColumns))
  private val prefixProjection = UnsafeProjection.create(prefixSchema)

  private def rowOf(key: Seq[Any]): UnsafeRow = projection(new GenericInternalRow(key.map {
    case text: String => UTF8String.fromString(text)
    case other => other
  }.toArray)).copy()

  /** Keys as plain values, in the order of their encoded bytes. */
  val keys: IndexedSeq[Seq[Any]] = {
    val encoder = {
      val schemas = new TestStateSchemaProvider
      schemas.captureSchema(name, kind.schema, Family.valueSchema)
      val data =
        if (encoding == "avro") {
          new AvroStateEncoder(kind.spec, Family.valueSchema, Some(schemas), name)
        } else new UnsafeRowDataEncoder(kind.spec, Family.valueSchema)
      RocksDBStateEncoder.getKeyEncoder(data, kind.spec, useFamilies)
    }
    Iterator
      .continually(Family.randomKey(kind, random))
      .take(poolSize)
      .distinct
      .map(key => key -> encoder.encodeKey(rowOf(key)).clone())
      .toIndexedSeq
      .sortWith((a, b) => Arrays.compareUnsigned(a._2, b._2) < 0)
      .map(_._1)
  }

  private val rows = keys.map(rowOf)
  private val ranks = keys.zipWithIndex.toMap
  private val prefixes = keys.map(_.take(kind.prefixColumns))

  def row(rank: Int): UnsafeRow = rows(rank)

  def prefixRow(rank: Int): UnsafeRow =
    prefixProjection(new GenericInternalRow(prefixes(rank).map {
      case text: String => UTF8String.fromString(text)
      case other => other
    }.toArray)).copy()

  def samePrefix(a: Int, b: Int): Boolean = prefixes(a) == prefixes(b)

  /** The rank of a row that a store returned. */
  def rank(row: UnsafeRow): Int = {
    val key = kind.schema.fields.toSeq.zipWithIndex.map { case (field, i) =>
      if (row.isNullAt(i)) null
      else {
        field.dataType match {
          case StringType => row.getUTF8String(i).toString
          case LongType => row.getLong(i)
          case _ => row.getInt(i)
        }
      }
    }
    ranks.getOrElse(key, throw Disagreement(s"a key of $name's pool", s"$key, never written"))
  }

  def show(rank: Int): String = s"#$rank${keys(rank).mkString("(", ",", ")")}"

  override def toString: String =
    s"$name($kind${if (multi) ", multi" else ""}${if (isInternal) ", internal" else ""}, " +
      s"${keys.size} keys)"
}

object Family {
  val valueSchema: StructType = StructType(
    Seq(StructField("value", IntegerType), StructField("text", StringType, nullable = true))
  )
  private val projection =
    ThreadLocal.withInitial[UnsafeProjection](() => UnsafeProjection.create(valueSchema))

  /** Rows of different lengths, some with a null. */
  private def textOf(value: Int): UTF8String =
    if (value % 11 == 0) null else UTF8String.fromString("v" * (value % 9))

  def valueRow(value: Int): UnsafeRow =
    projection.get()(new GenericInternalRow(Array[Any](value, textOf(value)))).copy()

  def value(row: UnsafeRow): Int = {
    val value = row.getInt(0)
    val text = if (row.isNullAt(1)) null else row.getUTF8String(1)
    if (text != textOf(value)) throw Disagreement(s"text ${textOf(value)} with $value", s"$text")
    value
  }

  // Of one hash in Java, so that who looks up by it has to compare them.
  private val hostile = Vector("AaAa", "AaBB", "BBAa", "BBBB")

  private def randomKey(kind: KeyKind, random: Random): Seq[Any] = {
    def text = random.nextInt(20) match {
      case 0 => null
      case n if n < 4 => hostile(random.nextInt(hostile.size))
      case _ => "abcdef".take(random.nextInt(4))
    }
    def number = random.nextInt(8) - 3
    def time = (random.nextInt(12) - 4).toLong * (if (random.nextBoolean()) 1L else 70000000000L)
    kind match {
      case KeyKind.NoPrefix | KeyKind.Prefix => Seq(text, number)
      case KeyKind.Range =>
        Seq(if (random.nextInt(15) == 0) null else time, "xyz".take(random.nextInt(3)))
      case _ => Seq(text, number % 2, time)
    }
  }
}
