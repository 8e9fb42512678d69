package statemark.spark.live

import org.json4s._
import org.json4s.jackson.JsonMethods.parse
import scala.util.Try
import statemark.common.Position

/** Source offsets that a read waits for. ''Source:'' KIP-796, `PositionBound`. */
object PositionBound {

  /** Tells whether `position` is at or after `bound` in every source. Offsets are compared as their JSON: each number
    * of the bound with the one in the same place (Kafka: topic and partition; files and rates: the only one).
    */
  def includes(position: Position, bound: Position): Boolean =
    position.offsets.length == bound.offsets.length &&
      position.offsets.zip(bound.offsets).forall {
        case (_, None) => true
        case (None, Some(_)) => false
        case (Some(reached), Some(wanted)) =>
          reached == wanted || covers(json(reached), json(wanted))
      }

  private def covers(reached: JValue, wanted: JValue): Boolean = (reached, wanted) match {
    case (JObject(there), JObject(fields)) =>
      val values = there.toMap
      fields.forall { case (name, value) => values.get(name).exists(covers(_, value)) }
    case _ => (number(reached), number(wanted)) match {
        case (Some(a), Some(b)) => a >= b
        case _ => reached == wanted
      }
  }

  private def number(value: JValue): Option[BigDecimal] = value match {
    case JInt(n) => Some(BigDecimal(n))
    case JLong(n) => Some(BigDecimal(n))
    case JDouble(n) => Some(BigDecimal(n))
    case JDecimal(n) => Some(n)
    case _ => None
  }

  private def json(offset: String): JValue = Try(parse(offset)).getOrElse(JString(offset))
}
