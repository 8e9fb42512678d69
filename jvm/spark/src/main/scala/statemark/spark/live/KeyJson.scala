package statemark.spark.live

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{BoundReference, JsonToStructs}
import org.apache.spark.sql.catalyst.util.ArrayData
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String
import org.json4s.{JArray, JObject, JString, JValue}
import org.json4s.jackson.JsonMethods.{compact, parse}
import scala.util.Try
import scala.util.control.NonFatal
import statemark.common.InvalidInputException

/** Keys as JSON: an array with an object for each.
  *
  * ''Thread:'' any, several at once; they wait for each other.
  *
  * @param zone of times that name none
  */
private[live] final class KeyJson(schema: StructType, zone: String) {
  import KeyJson._

  // Making one is a good part of a lookup.
  private val parser = JsonToStructs(
    ArrayType(schema),
    Map("mode" -> "FAILFAST"),
    BoundReference(0, StringType, nullable = false),
    Some(zone)
  )

  /** @throws InvalidInputException where an object has not the columns of a key, or values of other types */
  def keys(text: String): LiveKeys = {
    val objects = Try(parse(text)).toOption match {
      case Some(JArray(items)) => items
      case _ => throw bad(text, "it is no JSON array of objects")
    }
    objects.foreach {
      case JObject(fields) if fields.map(_._1).toSet == schema.fieldNames.toSet =>
      case JObject(fields) =>
        throw bad(text, s"a key has ${fields.map(_._1).sorted.mkString(", ")}")
      case _ => throw bad(text, "a key is no object")
    }
    LiveKeys.of(schema, rows(compact(JArray(objects.map(fitted(_, schema))))))
  }

  private def rows(keys: String): Seq[InternalRow] =
    try
      synchronized(parser.eval(InternalRow(UTF8String.fromString(keys))))
        .asInstanceOf[ArrayData]
        .toArray[InternalRow](schema).toSeq
    catch { case NonFatal(e) => throw bad(keys, e.getMessage) }

  private def bad(keys: String, why: String) = new InvalidInputException(
    s"Keys $keys do not fit: $why. A key of this operator has ${schema.sql}, all of them."
  )
}

private object KeyJson {

  /** A time without a zone is as a clock on the wall shows it, whichever zone the text names. */
  private def fitted(value: JValue, dataType: DataType): JValue = (value, dataType) match {
    case (JObject(fields), struct: StructType) =>
      JObject(fields.map { case (name, v) =>
        name -> struct.find(_.name == name).fold(v)(field => fitted(v, field.dataType))
      })
    case (JString(text), TimestampNTZType) => JString(text.replaceFirst(Zone, ""))
    case _ => value
  }

  private val Zone = "(Z|[+-]\\d\\d:\\d\\d(:\\d\\d)?)$"
}
