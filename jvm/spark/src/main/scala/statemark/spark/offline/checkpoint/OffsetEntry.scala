package statemark.spark.offline.checkpoint

import org.apache.spark.sql.internal.SQLConf
import org.json4s.jackson.JsonMethods.{compact, parse, render}
import org.json4s.{JObject, JString, JValue}
import scala.util.Try
import statemark.spark.conf.ProviderClass
import statemark.spark.offline.cli.UserError

/** One entry of a query's offset log: a version line, a line of JSON with the confs that Spark pins,
  * and a line for each source.
  *
  * ''Source:'' Spark 4.2 `OffsetSeqLog`, `OffsetSeqMetadata`
  */
final case class OffsetEntry(batch: Long, text: String, metadata: JObject) {

  /** Settings that Spark pins for the query, by key. */
  lazy val confs: Map[String, String] = metadata \ "conf" match {
    case JObject(fields) => fields.collect { case (key, JString(value)) => key -> value }.toMap
    case _ => Map.empty
  }

  /** The state store provider; None in an entry of a Spark that did not pin it. */
  def provider: Option[ProviderClass] =
    confs.get(SQLConf.STATE_STORE_PROVIDER_CLASS.key).map(ProviderClass.of)

  /** The number of partitions of the state; None in entries of version 2 before the first restart of their query. */
  def partitions: Option[Int] =
    confs.get(SQLConf.SHUFFLE_PARTITIONS.key).flatMap(_.toIntOption)

  /** The entry with other values for settings that it pins; everything else stays byte for byte. */
  def pinning(changed: (String, String)*): OffsetEntry = {
    val values = changed.toMap
    val json = metadata.mapField {
      case ("conf", JObject(fields)) =>
        ("conf", JObject(fields.map { case (k, v) => (k, values.get(k).fold(v)(JString(_))) }))
      case other => other
    }
    val lines = text.split("\n", -1)
    val changedText = lines.updated(1, compact(render(json))).mkString("\n")
    OffsetEntry.parsed(batch, changedText, s"entry $batch")
  }
}

object OffsetEntry {
  private val Versions = Set("v1", "v2")

  /** @param where names the file in errors
    * @throws statemark.common.InvalidInputException where the text is no entry that this Spark reads
    */
  def parsed(batch: Long, text: String, where: String): OffsetEntry = {
    def bad(reason: String, remedy: String): Nothing =
      throw UserError(s"the offset entry $where cannot be read", reason, remedy)
    val lines = text.split("\n", -1)
    val version = lines.head.trim
    if (!Versions(version)) {
      bad(
        s"its first line is '${version.take(40)}', and ${Versions.toSeq.sorted.mkString(" or ")} are known",
        "use the Statemark of the Spark that wrote it; if the file is damaged, bring it back"
      )
    }
    val json: Try[JValue] = Try(parse(lines.lift(1).getOrElse("")))
    json.getOrElse(JString("")) match {
      case metadata: JObject => OffsetEntry(batch, text, metadata)
      case _ =>
        bad(
          "its second line is no JSON object",
          "bring the file back; nothing else holds its settings"
        )
    }
  }
}
