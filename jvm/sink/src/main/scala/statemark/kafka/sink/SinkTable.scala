package statemark.kafka.sink

import java.util.{Map => JavaMap, Set => JavaSet}
import org.apache.spark.sql.connector.catalog.{SupportsWrite, Table, TableCapability}
import org.apache.spark.sql.connector.read.streaming.ReportsSinkMetrics
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.connector.write.streaming.StreamingWrite
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend
import org.apache.spark.sql.types.StructType
import scala.jdk.CollectionConverters._
import statemark.common.Clock
import statemark.kafka.conf.SinkSettings
import statemark.kafka.sink.conf.{Refusals, SinkFormat}
import statemark.kafka.sink.driver.{SinkFigures, SinkRun}
import statemark.kafka.sink.executor.RowColumns

/** What a query writes to: one of these is made for each `start()`, and lives as long as the run. Spark asks it for a
  * write at each batch, so what a run knows is kept here.
  */
private[sink] final class SinkTable(settings: SinkSettings, madeAtMs: Long)
    extends Table
    with SupportsWrite
    with ReportsSinkMetrics {
  private val figures = new SinkFigures
  @volatile private var opened = Option.empty[SinkRun]

  override def name(): String = SinkFormat.Name

  override def schema(): StructType = new StructType

  override def capabilities(): JavaSet[TableCapability] = Set(
    TableCapability.STREAMING_WRITE,
    TableCapability.ACCEPT_ANY_SCHEMA
  ).asJava

  override def metrics(): JavaMap[String, String] = figures.toMap.asJava

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = {
    val columns = RowColumns.of(info.schema, settings.topic)
    val ofBatch = new StreamingSink(queryId => runOf(queryId), info.queryId, columns)
    new SinkWriteBuilder(ofBatch, toString)
  }

  /** What progress and the UI call it. */
  override def toString: String =
    s"${SinkFormat.Name}[${settings.topic.getOrElse("topic of each row")}]"

  private def runOf(queryId: String): SinkRun = synchronized {
    opened.getOrElse {
      val run = SinkRun.open(settings, queryId, madeAtMs, figures)
      opened = Some(run)
      run
    }
  }
}

private[sink] object SinkTable {

  /** Reads the options and the columns of a query before it starts.
    * @param columns none where it is a table of a catalog, or one that is read
    * @throws statemark.kafka.SinkException where one is refused
    */
  def of(options: Map[String, String], columns: StructType): SinkTable = {
    Refusals.checkOptions(options)
    val settings = SinkSettings.of(options)
    if (columns.nonEmpty) RowColumns.of(columns, settings.topic): Unit
    new SinkTable(settings, Clock.system.epochMs())
  }
}

/** Spark says `truncate` for complete mode, whose batches hold the whole result: to a topic they are appended, as Spark's
  * own sink does.
  */
private final class SinkWriteBuilder(sink: => StreamingWrite, text: String)
    extends WriteBuilder
    with SupportsTruncate
    with SupportsStreamingUpdateAsAppend {

  override def truncate(): WriteBuilder = this

  override def build(): Write = new Write {
    override def description(): String = text
    override def toStreaming: StreamingWrite = sink
  }
}
