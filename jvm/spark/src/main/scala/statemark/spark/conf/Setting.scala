package statemark.spark.conf

import scala.util.Try
import statemark.common.InvalidInputException

/** What the value of a setting is, and how documents call it. */
sealed abstract class SettingUnit(val name: String)

object SettingUnit {
  case object Level extends SettingUnit("level")
  case object Bytes extends SettingUnit("bytes")
  case object Time extends SettingUnit("time")
  case object Count extends SettingUnit("count")
  case object Path extends SettingUnit("path")
  case object Word extends SettingUnit("word")
  case object Truth extends SettingUnit("truth")
  case object Version extends SettingUnit("version")
}

/** A setting of Statemark: a row of the table [[StoreSettings.all]], which `settings.py` has as well.
  *
  * @param name what follows the prefix in its key
  * @param default as a user would write it; None where the setting is unset unless somebody sets it
  * @param allowed which values it takes, as it ends the sentence "it must be …"
  * @param text what it decides
  * @param parser reads a value, and throws where it is not allowed
  */
final case class Setting[A](
    name: String,
    unit: SettingUnit,
    default: Option[String],
    allowed: String,
    text: String
)(parser: String => A) {

  def key: String = StoreSettings.Prefix + name

  /** Reads a value; blanks around it do not count.
    *
    * @throws InvalidInputException where it is not allowed
    */
  def parse(value: String): A = Try(parser(value.trim)).getOrElse {
    throw new InvalidInputException(s"$key is '$value', but it must be $allowed.")
  }

  /** The value that is given, else the default, else None.
    *
    * @param values by name; names count in either case
    * @throws InvalidInputException where the value is not allowed
    */
  def in(values: Map[String, String]): Option[A] =
    values.collectFirst { case (n, value) if isNamed(n) => value }.orElse(default).map(parse)

  /** Whether `other` is this setting's name, in either case. */
  def isNamed(other: String): Boolean = name.equalsIgnoreCase(other)
}
