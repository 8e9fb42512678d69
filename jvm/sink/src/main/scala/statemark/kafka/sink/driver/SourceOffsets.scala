package statemark.kafka.sink.driver

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import scala.jdk.CollectionConverters._
import scala.util.Try
import statemark.kafka.decision.{BatchFingerprint, SourceFingerprint}

/** What a batch's end offsets are, as the offset log has them: JSON of each source's own shape. */
private[sink] object SourceOffsets {
  private val mapper = new ObjectMapper

  /** @param atMs when the batch was planned, in milliseconds since the epoch: a batch that runs again keeps it, and one
    *   that is planned anew has another, which tells them apart where offsets are only counters
    * @param dependsOnTime whether the rows of the same input are others at another time: timers and time to live of
    *   processing time
    */
  def fingerprint(
      ends: Vector[(String, Option[String])],
      atMs: Option[Long],
      dependsOnTime: Boolean = false
  ): BatchFingerprint =
    BatchFingerprint(ends.map { case (name, end) =>
      val json = end.getOrElse("")
      val tree = Try(Option(mapper.readTree(json))).toOption.flatten
      val kind = tree.flatMap(kindOf)
      // A source that has no offset yet has given no rows.
      val namesContent = !dependsOnTime && (end.isEmpty || kind.isDefined)
      SourceFingerprint.of(
        s"source $name${kind.fold("")(k => s" ($k)")}",
        tree.fold(json)(canonical) + (if (namesContent) "" else atMs.fold("")(ms => s" at $ms")),
        namesContent
      )
    })

  /** Sources whose equal offsets are equal rows. The others count: files in the order in which they were found, rows since
    * a start.
    */
  private def kindOf(offset: JsonNode): Option[String] =
    if (isKafka(offset)) Some("Kafka")
    else if (offset.has("reservoirId") && offset.has("reservoirVersion")) Some("Delta")
    else None

  /** `{"topic":{"0":12}}` */
  private def isKafka(offset: JsonNode): Boolean =
    offset.isObject && !offset.isEmpty && offset.properties.asScala.forall { topic =>
      topic.getValue.isObject && topic.getValue.properties.asScala.forall { partition =>
        partition.getKey.toIntOption.isDefined && partition.getValue.isIntegralNumber
      }
    }

  /** Keys sorted, no blanks. */
  private def canonical(node: JsonNode): String =
    if (node.isObject)
      node.properties.asScala.toSeq.sortBy(_.getKey).map { field =>
        s"${mapper.writeValueAsString(field.getKey)}:${canonical(field.getValue)}"
      }.mkString("{", ",", "}")
    else if (node.isArray) node.elements.asScala.map(canonical).mkString("[", ",", "]")
    else mapper.writeValueAsString(node)
}
