package statemark.spark.cluster

import java.util.UUID
import org.apache.spark.TaskContext
import org.json4s.{DefaultFormats, Formats, JArray, JNull, JString, JValue}
import org.json4s.jackson.JsonMethods.{compact, parse}
import org.json4s.JsonDSL._
import statemark.common.{Position, SourceEnd, SourceOffset}
import statemark.spark.process.{JvmState, RecentlyUsed}

/** The source offsets at which a batch begins and ends, as the driver hands them to the tasks of the batch: as a local
  * property, so that no task reads a file for them.
  *
  * @param runId the run of the query
  * @param batch the number of the batch, which is the version of the stores on which it builds
  * @param start None for the first batch
  * @param end None where it is known only once the batch is through, as of real-time queries
  */
final case class BatchOffsets(
    runId: UUID,
    batch: Long,
    start: Option[Position],
    end: Option[Position]
) {
  import BatchOffsets._

  /** Returns what tasks are told. An offset that is too long for that is told by its digest: it would travel with each
    * task, and each store records it with each version: the offsets of 5,000 partitions of Kafka are 98 KB, 20 MB in 200
    * tasks of each batch. Of a start the stores know the offsets nearly always, and compare them only.
    */
  def property: String = compact(
    ("run" -> runId.toString) ~ ("batch" -> batch) ~
      ("start" -> start.map(p => json(p.shortened(MaxStartChars)))) ~
      ("end" -> end.map(p => json(p.shortened(MaxEndChars))))
  )
}

object BatchOffsets {

  /** Local property of a batch's jobs. */
  val Property: String = "statemark.offsets"

  private val MaxEndChars = 16 * 1024

  /** The most of offsets that are compared only, and shown where they differ. */
  val MaxStartChars: Int = 1024

  // All tasks of a batch are told the same, and each of their stores asks twice.
  private val told = JvmState.value(new RecentlyUsed[String, BatchOffsets](16))

  private implicit val formats: Formats = DefaultFormats

  def decode(property: String): BatchOffsets = {
    val told = parse(property)
    BatchOffsets(
      UUID.fromString((told \ "run").extract[String]),
      (told \ "batch").extract[Long],
      position(told \ "start"),
      position(told \ "end")
    )
  }

  /** Returns what the driver said to the running task of a batch; None where no task runs, or it was told of another
    * batch: a thread that was begun in a batch has that one's properties for ever, and hands them to the tasks of whatever
    * it runs later.
    */
  def ofTask(runId: UUID, batch: Long): Option[BatchOffsets] =
    Option(TaskContext.get()).flatMap(t => Option(t.getLocalProperty(Property))).map { property =>
      told().get(property).getOrElse {
        val read = decode(property)
        told().put(property, read)
        read
      }
    }.filter(of => of.runId == runId && of.batch == batch)

  /** Returns a position as users write it: a JSON array with the end offset of each source, null for none. */
  def written(position: Position): String =
    compact(JArray(position.sources.map(_.end.text.fold[JValue](JNull)(JString(_))).toList))

  /** Returns a position that a user has written, of which sources have no names. */
  def read(text: String): Position = Position.ofPlaces(parse(text).extract[List[Option[String]]])

  private def json(position: Position): JValue =
    position.sources.map { of =>
      ("source" -> of.source) ~ (of.end match {
        case SourceEnd.Nothing => ("offset" -> Option.empty[String])
        case SourceEnd.Offset(text) => ("offset" -> Some(text))
        case SourceEnd.Digest(hex) => ("digest" -> Some(hex))
      })
    }

  private def position(told: JValue): Option[Position] =
    told.toOption.map(all =>
      Position(all.children.toVector.map { of =>
        val end = (of \ "digest").extractOpt[String].map(SourceEnd.Digest(_))
        SourceOffset(
          (of \ "source").extract[String],
          end.getOrElse(SourceEnd.of((of \ "offset").extractOpt[String]))
        )
      })
    )
}
