package statemark.kafka.sink.driver

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import org.apache.spark.sql.execution.streaming.state.{OutputQuery, PlannedBatch}
import scala.jdk.CollectionConverters._
import scala.util.Try
import statemark.kafka.conf.SinkException
import statemark.kafka.decision.{
  BatchFingerprint,
  PlanKind,
  QueryBatch,
  SourceEnds,
  SourceFingerprint
}

/** What a batch's end offsets are, as the offset log has them: JSON of each source's own shape. */
private[sink] object SourceOffsets {
  private val mapper = new ObjectMapper

  /** Returns a batch of a query's offset log; None where the log does not have it.
    * @param batch its number there
    */
  def batchOf(query: OutputQuery, batch: Long): Option[QueryBatch] =
    query.planned(batch).map(batchOf(query, batch, _, Vector.empty))

  /** Returns the batch that a query runs, as the offset log has it, with the input that its decision names. */
  def batchOf(
      query: OutputQuery,
      batch: Long,
      planned: PlannedBatch,
      input: InputSources
  ): QueryBatch =
    batchOf(query, batch, planned, input.grouped(endsOf(planned.ends), KafkaSources.of(query)))

  private def batchOf(
      query: OutputQuery,
      batch: Long,
      planned: PlannedBatch,
      ends: Vector[SourceEnds]
  ): QueryBatch = {
    val kind = if (query.dependsOnTime()) PlanKind.OfTime else PlanKind.OfInput
    QueryBatch(batch, kind, fingerprint(planned.ends, planned.atMs, _), ends)
  }

  /** Returns where the Kafka sources end, of no group. */
  def endsOf(ends: Vector[(String, Option[String])]): Vector[SourceEnds] = for {
    (name, end) <- ends
    topics <- end.flatMap(ofKafka)
  } yield SourceEnds(name, "", topics)

  /** Returns the offsets of a position, as `statemark.position` gives them: an array of texts, each JSON, and of nulls for
    * sources that have given nothing yet. None where it is no such array.
    */
  def ofPosition(text: String): Option[Vector[String]] =
    Try(Option(mapper.readTree(text))).toOption.flatten.filter(_.isArray)
      .map(_.elements.asScala.filterNot(_.isNull).toVector).filter(_.forall(_.isTextual))
      .map(_.map(_.asText))

  /** Returns the next offset of each partition, by topic, both ascending; None where an offset is not of Kafka's source. */
  def ofKafka(offset: String): Option[Vector[(String, Vector[(Int, Long)])]] =
    Try(Option(mapper.readTree(offset))).toOption.flatten.filter(isKafka).map { tree =>
      tree.properties.asScala.toVector.map { topic =>
        topic.getKey -> topic.getValue.properties.asScala.toVector
          .map(partition => partition.getKey.toInt -> partition.getValue.asLong).sorted
      }.sortBy(_._1)
    }

  /** Returns what the offset log has of the batch that a query runs.
    * @throws SinkException.WrongHistory where it has nothing
    */
  def plannedOf(query: OutputQuery, batch: Long): PlannedBatch =
    query.planned(batch).getOrElse(throw new SinkException.WrongHistory(
      s"Batch $batch cannot be decided",
      "the query's offset log has no entry of it, so nobody could tell it from another",
      "Is the checkpoint's folder 'offsets' still there? Start the query again",
      Map("batch" -> batch.toString)
    ))

  /** @param atMs when the batch was planned, in milliseconds since the epoch: a batch that runs again keeps it, and one
    *   that is planned anew has another, which tells them apart where offsets are only counters
    * @param kind what the rows depend on
    */
  def fingerprint(
      ends: Vector[(String, Option[String])],
      atMs: Option[Long],
      kind: PlanKind = PlanKind.OfInput
  ): BatchFingerprint =
    BatchFingerprint(ends.map { case (name, end) =>
      val json = end.getOrElse("")
      val tree = Try(Option(mapper.readTree(json))).toOption.flatten
      val system = tree.flatMap(systemOf)
      // A source that has no offset yet has given no rows.
      val namesContent = kind == PlanKind.OfInput && (end.isEmpty || system.isDefined)
      SourceFingerprint.of(
        s"source $name${system.fold("")(s => s" ($s)")}",
        tree.fold(json)(canonical) + (if (namesContent) "" else atMs.fold("")(ms => s" at $ms")),
        namesContent
      )
    })

  /** Sources whose equal offsets are equal rows. The others count: files in the order in which they were found, rows since
    * a start.
    */
  private def systemOf(offset: JsonNode): Option[String] =
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
