package statemark.kafka.sink.compaction

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, render}
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal
import statemark.kafka.compaction.{NotedRules, RuleNote}
import statemark.kafka.log.RuleRecord
import statemark.kafka.sink.driver.FramePlans
import statemark.kafka.sink.driver.KafkaSources
import statemark.kafka.tools.BrokerAnswers

/** Rules by which `topic compact` repairs the topics that a frame reads. ''Thread:'' any. */
object SourceRules {
  // Somebody waits for a query to be defined.
  private val MostMs = 15000L
  private val Timeouts =
    Map("request.timeout.ms" -> "10000", "default.api.timeout.ms" -> MostMs.toString)

  /** Looks which rules are noted of the topics that a streaming frame reads with Spark's Kafka source. Python calls it over
    * py4j.
    * @return JSON: `rules`, each with `topic`, `strategy`, a `header` of that strategy and a `text`; and `notLooked`, why
    *   some may be missing, where they may
    */
  def of(frame: DataFrame): String = {
    val sources = FramePlans.planOf(frame).analyzed.collectWithSubqueries {
      case source: StreamingRelationV2 if source.sourceName == "kafka" =>
        source.extraOptions.asCaseSensitiveMap.asScala.toMap
    }.distinct
    val found = sources.map(noted)
    val notLooked =
      if (sources.isEmpty) Some("its table is not a stream of Spark's Kafka source")
      else found.flatMap(_.left.toOption).headOption
    compact(render(
      ("rules" -> found.flatMap(_.getOrElse(Nil)).map(r =>
        ("topic" -> r.topic) ~ ("strategy" -> r.header.fold("timestamp")(_ => "header")) ~
          ("header" -> r.header) ~ ("text" -> RuleNote.text(r))
      )) ~ ("notLooked" -> notLooked)
    ))
  }

  private def noted(options: Map[String, String]): Either[String, Seq[RuleRecord]] =
    try {
      val settings = KafkaSources.settings(options, Timeouts)
      BrokerAnswers.asking(settings, "the commit topic cannot be read")(
        NotedRules
          .of(settings, KafkaSources.names(options), MostMs)(KafkaSources.topics(options)).read()
      ).map(_.values.toSeq.sortBy(_.topic))
    } catch { case e @ (NonFatal(_) | _: LinkageError) => Left(e.getMessage) }
}
