package statemark.spark.live

import java.math.{BigDecimal => JBigDecimal}
import java.nio.charset.StandardCharsets
import java.util.Base64
import java.util.concurrent.TimeUnit
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Cast, EvalMode, Literal}
import org.apache.spark.sql.catalyst.util.GenericArrayData
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String
import org.json4s._
import org.json4s.jackson.JsonMethods.{compact, parse}
import scala.util.Try
import statemark.common.InvalidInputException

/** Keys as JSON: an array with an object for each, which has a field for each column, or with an array of the values
  * in the order of the columns; Python gives a list of values as one value, which a key of several columns is not. The one
  * field of a key of one column may have any name: Spark makes up the name of a
  * column that is computed. What JSON has no value for is an object: `{"float": "nan"}`, also `inf` and `-inf`; `{"base64": …}`; `{"micros": …}` of an interval; and
  * `{"instant": …, "wall": …}` of a time, in microseconds since 1970: the moment, and what a clock shows then.
  *
  * A text may stand for a number or a time, and a number for a text; any other value of another type than the
  * column's is refused, as is a fraction for a column of whole numbers. One that the column cannot hold is part of no
  * key.
  *
  * ''Thread:'' any, several at once.
  *
  * @param zone the time zone of times in strings that name none
  */
private[live] final class KeyJson(schema: StructType, zone: String) {
  import KeyJson._

  /** @throws InvalidInputException where an object has not the columns of a key, or values of other types */
  def keys(text: String): AskedKeys = Try(parse(text)).toOption match {
    case Some(JArray(items)) =>
      new AskedKeys(
        schema,
        items.map {
          case JObject(List((_, only))) if schema.length == 1 => row(Seq(only))
          case JObject(fields) => row(fields, schema, "a key")
          case JArray(List(JArray(values)))
              if schema.length > 1 && values.length == schema.length =>
            row(values)
          case JArray(values) if values.length == schema.length => row(values)
          case JArray(values) => throw bad(
              s"a key has ${values.length} value${if (values.length == 1) "" else "s"} without a name where " +
                s"${names(schema)} is asked for"
            )
          case other => throw bad(s"a key is ${compact(other)}, no object")
        }
      )
    case _ => throw bad("they are no JSON array of objects")
  }

  /** None where no row can have it. */
  private def row(
      fields: List[JField],
      struct: StructType,
      path: String
  ): Option[InternalRow] = {
    val values = fields.toMap
    if (values.keySet != struct.fieldNames.toSet)
      throw bad(
        s"$path has ${values.keys.toSeq.sorted.mkString(", ")} where ${names(struct)} is asked for"
      )
    row(struct.map(f => values(f.name)), struct)
  }

  /** @param values one for each column */
  private def row(values: Seq[JValue], struct: StructType = schema): Option[InternalRow] =
    // All of them, so that values of other types are found.
    all(struct.zip(values).map { case (f, json) => value(json, f.dataType, f.name) })
      .map(InternalRow.fromSeq)

  private def value(json: JValue, dataType: DataType, path: String): Option[Any] =
    (json, dataType) match {
      case (JNull, _) => Some(None.orNull)
      case (JObject(fields), struct: StructType) => row(fields, struct, path)
      case (JArray(items), ArrayType(element, _)) =>
        all(items.map(value(_, element, s"an element of $path")))
          .map(values => new GenericArrayData(values.toArray[Any]))
      case (JBool(b), BooleanType) => Some(b)
      case (JDouble(d), FloatType) => finite(d.toFloat)
      case (Number(n), of: NumericType) => number(n, of, json, path)
      case (NotFinite(d), DoubleType) => Some(d)
      case (NotFinite(d), FloatType) => Some(d.toFloat)
      case (NotFinite(_), of: NumericType) if !isWhole(of) => None
      case (JString(text), of: NumericType) => Try(new JBigDecimal(text)).toOption match {
          case Some(n) => number(n, of, json, path)
          case None => Some(cast(text, of, path))
        }
      case (JString(text), _: StringType) => encoded(text).map(UTF8String.fromBytes)
      case (Bytes(bytes), _: StringType) => Some(UTF8String.fromBytes(bytes))
      case (Number(_), _: StringType) => Some(UTF8String.fromString(compact(json)))
      case (JString(text), BinaryType) => encoded(text)
      case (Bytes(bytes), BinaryType) => Some(bytes)
      case (Time(instant, _), TimestampType) => Some(instant)
      case (Time(_, wall), TimestampNTZType) => Some(wall)
      case (Time(_, wall), DateType) =>
        Option.when(wall % DayMicros == 0)((wall / DayMicros).toInt)
      case (Interval(micros), _: DayTimeIntervalType) =>
        Option.when(micros.isValidLong)(micros.toLong)
      case (JString(text), of) if isTemporal(of) => Some(cast(text, of, path))
      case (_, _: MapType) =>
        throw bad(
          s"$path is a map, by which no row is looked up; read them with format 'statemark'"
        )
      case _ => throw misfit(json, dataType, path)
    }

  private def number(n: JBigDecimal, to: NumericType, json: JValue, path: String): Option[Any] =
    if (isWhole(to) && n.stripTrailingZeros.scale > 0) throw misfit(json, to, path)
    else fitted(n, to)

  /** None where the column cannot hold the number; fractions of a FLOAT or DOUBLE are rounded. */
  private def fitted(n: JBigDecimal, to: NumericType): Option[Any] = {
    def within[A](min: Long, max: Long)(as: Long => A): Option[A] =
      Try(n.longValueExact()).toOption.filter(l => l >= min && l <= max).map(as)
    to match {
      case ByteType => within(Byte.MinValue.toLong, Byte.MaxValue.toLong)(_.toByte)
      case ShortType => within(Short.MinValue.toLong, Short.MaxValue.toLong)(_.toShort)
      case IntegerType => within(Int.MinValue.toLong, Int.MaxValue.toLong)(_.toInt)
      case LongType => within(Long.MinValue, Long.MaxValue)(identity)
      case FloatType => finite(n.floatValue)
      case DoubleType => Some(n.doubleValue).filterNot(_.isInfinite)
      case of: DecimalType =>
        // Looked at before it is brought to the column's scale, as that writes powers of ten out.
        val short = n.stripTrailingZeros
        val digits = short.precision.toLong - short.scale
        val fits = short.scale <= of.scale && digits <= of.precision - of.scale
        Option.when(fits)(Decimal(BigDecimal(short.setScale(of.scale)), of.precision, of.scale))
      case _ => None // there are no others
    }
  }

  private def cast(text: String, to: DataType, path: String): Any =
    Try(Cast(
      Literal(UTF8String.fromString(text), StringType),
      to,
      Some(zone),
      EvalMode.ANSI
    ).eval())
      .getOrElse(throw misfit(JString(text), to, path))

  private def misfit(json: JValue, dataType: DataType, path: String) =
    bad(s"$path is ${compact(json)}, no ${dataType.sql}")

  private def bad(why: String): InvalidInputException = LiveQueries.wrong(
    s"Keys do not fit: $why.",
    s"Give all columns of a key of this operator: ${schema.sql}."
  )
}

private object KeyJson {
  private val DayMicros = TimeUnit.DAYS.toMicros(1)

  private def names(struct: StructType): String = struct.fieldNames.mkString(", ")

  private def all(values: Seq[Option[Any]]): Option[Seq[Any]] =
    Option.when(values.forall(_.isDefined))(values.flatten)

  /** Types of which a string tells a value. Older lines of Spark have no TIME. */
  private def isTemporal(dataType: DataType): Boolean = dataType match {
    case DateType | TimestampType | TimestampNTZType => true
    case _: DayTimeIntervalType | _: YearMonthIntervalType => true
    case other => other.typeName.startsWith("time(")
  }

  private def isWhole(dataType: NumericType): Boolean = dataType match {
    case ByteType | ShortType | IntegerType | LongType => true
    case _ => false
  }

  private def finite(f: Float): Option[Float] = Some(f).filterNot(_.isInfinite)

  /** None where it is no text: half of a character that takes two. */
  private def encoded(text: String): Option[Array[Byte]] =
    Option.when(StandardCharsets.UTF_8.newEncoder.canEncode(text))(
      text.getBytes(StandardCharsets.UTF_8)
    )

  private object Number {
    def unapply(json: JValue): Option[JBigDecimal] = json match {
      case JInt(n) => Some(new JBigDecimal(n.bigInteger))
      case JLong(n) => Some(JBigDecimal.valueOf(n))
      case JDouble(n) => Some(JBigDecimal.valueOf(n))
      case JDecimal(n) => Some(n.bigDecimal)
      case _ => None
    }
  }

  private object NotFinite {
    def unapply(json: JValue): Option[Double] = json match {
      case JObject(List(("float", JString("nan")))) => Some(Double.NaN)
      case JObject(List(("float", JString("inf")))) => Some(Double.PositiveInfinity)
      case JObject(List(("float", JString("-inf")))) => Some(Double.NegativeInfinity)
      case _ => None
    }
  }

  private object Bytes {
    def unapply(json: JValue): Option[Array[Byte]] = json match {
      case JObject(List(("base64", JString(text)))) => Try(Base64.getDecoder.decode(text)).toOption
      case _ => None
    }
  }

  private object Interval {
    def unapply(json: JValue): Option[BigInt] = json match {
      case JObject(List(("micros", JInt(micros)))) => Some(micros)
      case _ => None
    }
  }

  /** Instant and wall clock. */
  private object Time {
    def unapply(json: JValue): Option[(Long, Long)] = json match {
      case JObject(List(("instant", JInt(instant)), ("wall", JInt(wall)))) =>
        Some((instant.toLong, wall.toLong))
      case _ => None
    }
  }
}
