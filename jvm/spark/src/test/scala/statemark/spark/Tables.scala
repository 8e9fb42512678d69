package statemark.spark

import org.json4s.{JArray, JNull, JObject, JString, JValue}
import org.json4s.jackson.JsonMethods.{compact, parse, render}
import org.json4s.JsonDSL._
import scala.io.{Codec, Source}
import scala.util.Try
import statemark.spark.conf.{Setting, StoreSettings}
import statemark.spark.metrics.StoreMetrics
import statemark.spark.offline.Requests

/** Prints the tables of settings and metrics as JSON, for tests in Python that compare their own with them, and
  * says what it makes of values and of requests: input is an object of `values` by the name of a setting, and of
  * `requests`, each as text.
  */
object Tables {
  def main(args: Array[String]): Unit = {
    val asked = parse(Source.fromInputStream(System.in)(Codec.UTF8).mkString)
    println(compact(render(
      ("settings" -> StoreSettings.all.map(row)) ~
        ("metrics" -> StoreMetrics.labels.map(m =>
          ("name" -> m.name) ~ ("unit" -> m.kind.unit) ~ ("text" -> m.text)
        )) ~
        ("gauges" -> StoreMetrics.gauges.map(g =>
          ("name" -> g.name) ~ ("unit" -> g.unit) ~ ("kafka" -> g.kafka)
        )) ~
        ("values" -> JObject(StoreSettings.all.toList.map(s =>
          s.name -> JArray(texts(asked \ "values" \ s.name).map(taken(s, _)))
        ))) ~
        ("requests" -> JArray(texts(asked \ "requests").map(r => JString(Requests.shown(r)))))
    )))
  }

  private def row(setting: Setting[_]): JObject =
    ("name" -> setting.name) ~ ("unit" -> setting.unit.name) ~ ("default" -> setting.default) ~
      ("allowed" -> setting.allowed) ~ ("text" -> setting.text)

  private def texts(values: JValue): List[String] = values.children.collect { case JString(s) => s }

  /** What a store would go by, null where it refuses the value. */
  private def taken(setting: Setting[_], value: String): JValue =
    Try(StoreSettings.from(Map(setting.key -> value), heapBytes = 1L << 30)).toOption
      .fold[JValue](JNull)(settings => JString(settings.toString))
}
