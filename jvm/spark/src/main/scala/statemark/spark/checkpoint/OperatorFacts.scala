package statemark.spark.checkpoint

import org.apache.spark.sql.execution.streaming.state.{
  OperatorStateMetadata,
  OperatorStateMetadataV1,
  OperatorStateMetadataV2,
  StateStoreMetadata
}
import org.json4s.{JArray, JString, JValue}
import org.json4s.jackson.JsonMethods.parse
import scala.util.Try
import statemark.common.InvalidInputException

/** A stateful operator, as its metadata in the checkpoint location tells it.
  *
  * @param id its number in the query, counted from the sink
  * @param name Spark's name of it
  * @param stores names of its stores, each once
  * @param variables the state variables of a transformWithState
  */
final case class OperatorFacts(
    id: Long,
    name: String,
    stores: Seq[String],
    partitions: Int,
    variables: Seq[String]
)

object OperatorFacts {
  def of(metadata: OperatorStateMetadata): OperatorFacts = {
    val stores = storesOf(metadata)
    OperatorFacts(
      metadata.operatorInfo.operatorId,
      metadata.operatorInfo.operatorName,
      stores.map(_.storeName).distinct,
      stores.map(_.numPartitions).maxOption.getOrElse(1),
      variablesOf(metadata)
    )
  }

  /** @throws InvalidInputException where the metadata is of a version that no line of Spark has written */
  def storesOf(metadata: OperatorStateMetadata): Seq[StateStoreMetadata] = metadata match {
    case v1: OperatorStateMetadataV1 => v1.stateStoreInfo.toSeq
    case v2: OperatorStateMetadataV2 => v2.stateStoreInfo.toSeq
    case other =>
      throw new InvalidInputException(
        s"the metadata of operator ${other.operatorInfo.operatorId} cannot be read\n" +
          s"  reason: its version ${other.version} is not known\n" +
          "  remedy: use the Statemark of the Spark that wrote the checkpoint"
      )
  }

  private def variablesOf(metadata: OperatorStateMetadata): Seq[String] = metadata match {
    case v2: OperatorStateMetadataV2 =>
      def named(items: Seq[JValue]): Seq[String] =
        items.flatMap(i => (i \ "stateName").toOption).collect { case JString(s) => s }
      Try(parse(v2.operatorPropertiesJson)).toOption.map(_ \ "stateVariables").collect {
        case JArray(items) => named(items)
        case JString(text) => named(Try(parse(text)).toOption.toSeq.flatMap(_.children))
      }.getOrElse(Nil)
    case _ => Nil
  }
}
