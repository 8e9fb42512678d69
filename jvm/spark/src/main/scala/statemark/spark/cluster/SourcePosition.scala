package statemark.spark.cluster

import org.apache.spark.TaskContext
import org.json4s.{DefaultFormats, Formats, JArray, JNull, JString}
import org.json4s.jackson.JsonMethods.{compact, parse}
import statemark.common.Position

/** The source offsets that a batch ends at, as the driver hands them to the tasks of the batch: as a local
  * property, so that no task reads a file for them.
  */
object SourcePosition {

  /** Local property of a batch's jobs: a JSON array with the end offset of each source, null for none. */
  val Property: String = "statemark.position"

  /** The longest property. It travels with each task, and each store records it with each version: the offsets of 5,000
    * partitions of Kafka are 98 KB, 20 MB in 200 tasks of each batch.
    */
  val MaxChars: Int = 16 * 1024

  private implicit val formats: Formats = DefaultFormats

  def encode(position: Position): String =
    compact(JArray(position.offsets.map(_.fold[org.json4s.JValue](JNull)(JString(_))).toList))

  /** Returns what tasks are told of a position; None where it is too long for them, and the driver alone knows it. */
  def property(position: Position): Option[String] =
    Some(encode(position)).filter(_.length <= MaxChars)

  def decode(text: String): Position =
    Position(parse(text).extract[List[Option[String]]].toVector)

  /** What the driver said to the running task; None where no task runs or nobody said anything. */
  def ofTask(): Option[Position] =
    Option(TaskContext.get()).flatMap(t => Option(t.getLocalProperty(Property))).map(decode)
}
