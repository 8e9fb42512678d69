package statemark.kafka.sink

import java.util.{Set => JavaSet}
import java.util.concurrent.TimeUnit
import org.apache.kafka.common.TopicPartition
import org.apache.spark.network.util.JavaUtils
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.{SupportsRead, Table, TableCapability}
import org.apache.spark.sql.connector.read.{LocalScan, ScanBuilder}
import org.apache.spark.sql.types.{LongType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import scala.jdk.CollectionConverters._
import scala.util.{Try, Using}
import statemark.kafka.conf.SinkSettings
import statemark.kafka.decision.SourceEnds
import statemark.kafka.sink.conf.SinkFormat
import statemark.kafka.sink.driver.SourceOffsets
import statemark.kafka.tools.{OutputWait, SinkTools}
import statemark.spark.errors.{FormatRefusedException, PositionBoundException}

/** A read of format `statemark-kafka`, which waits until the output of a sink covers a position of its input. It has one
  * row, with the number of the batch that does. Options: `positionBound`, what `position` of a query gives; `sink`, the
  * sink, its query's id or its query's name; `timeout`, a duration; and the sink's `kafka.…` and `commitTopic`.
  */
private[sink] final class OutputTable(options: CaseInsensitiveStringMap)
    extends Table
    with SupportsRead {
  import OutputTable._

  override def name(): String = s"${SinkFormat.Name}(${options.get(Sink)})"

  override def schema(): StructType = OutputTable.schema

  override def capabilities(): JavaSet[TableCapability] = Set(TableCapability.BATCH_READ).asJava

  override def newScanBuilder(scan: CaseInsensitiveStringMap): ScanBuilder = () =>
    new LocalScan {
      override def readSchema(): StructType = OutputTable.schema
      override def description(): String = name()
      override def rows(): Array[InternalRow] =
        FormatRefusedException.where("The output was not waited for")(Array(InternalRow(await())))
    }

  private def await(): Long = {
    val text = required(Bound, "what `position` of a query gives")
    val bound = SourceOffsets.ofPosition(text)
      .getOrElse(throw unread(Bound, text, "what `position` of a query gives"))
    val timeout = options.getOrDefault(Timeout, DefaultTimeout)
    val timeoutMs = Try(JavaUtils.timeStringAs(timeout, TimeUnit.MILLISECONDS)).filter(_ >= 0)
      .getOrElse(throw unread(Timeout, timeout, "a duration such as 10s"))
    val theirs = options.asCaseSensitiveMap.asScala.toMap.filterNot { case (name, _) =>
      Own.exists(_.equalsIgnoreCase(name))
    }
    val waits = SinkTools.Timeouts.map { case (name, value) => s"kafka.$name" -> value }
    val settings =
      SinkSettings.of(if (waits.keys.exists(options.containsKey)) theirs else waits ++ theirs)
    val sink = required(Sink, "a query's id or name, or <query id or txnAppId>/<sink name>")
    Using.resource(OutputWait.open(settings, sink))(_.await(offsetsOf(bound), timeoutMs)) match {
      case Right(batch) => batch
      case Left(state) => throw new PositionBoundException(
          s"The output of $sink",
          Some(state),
          Some(text),
          timeoutMs
        )
    }
  }

  private def required(name: String, allowed: String): String = SinkSettings.nonEmpty(
    name,
    Option(options.get(name)).getOrElse(
      throw SinkSettings.refused(name, "", "it is missing", allowed)
    )
  )

  private def unread(name: String, text: String, allowed: String) =
    SinkSettings.refused(name, text, "it cannot be read", allowed)
}

private[sink] object OutputTable {
  private val Bound = "positionBound"
  private val Sink = "sink"
  private val Timeout = "timeout"
  private val Own = Seq(Bound, Sink, Timeout)
  private val DefaultTimeout = "10s"
  private val schema = new StructType().add("batch_id", LongType, nullable = false)

  /** Tells whether options are those of a read. */
  def isMeant(options: Map[String, String]): Boolean =
    options.keys.exists(_.equalsIgnoreCase(Bound))

  /** @throws SinkException.RefusedSetting where an offset is of another source than Kafka's */
  private[sink] def offsetsOf(bound: Vector[String]): Vector[Map[TopicPartition, Long]] =
    bound.map { offset =>
      val topics = SourceOffsets.ofKafka(offset).getOrElse(throw SinkSettings.refused(
        Bound,
        offset,
        "it is no offset of Kafka's, and of others a sink does not note how far its query has read",
        """offsets of Kafka's source, as {"orders":{"0":7}}"""
      ))
      SourceEnds("", "", topics).offsets.toMap
    }
}
