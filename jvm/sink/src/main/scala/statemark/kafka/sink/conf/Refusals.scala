package statemark.kafka.sink.conf

import java.util.Locale
import org.apache.spark.sql.SaveMode
import org.apache.spark.sql.execution.streaming.state.OutputQuery

/** Ways to run a query in which a batch is not fixed before it runs: what a number of a batch stands for could change, and
  * so could not be decided once. Spark refuses some of them for sinks that it does not know; options switch that off.
  */
private[sink] object Refusals {

  /** How Spark hands the columns of `partitionBy` over. */
  private val PartitionedBy = "__partition_columns"
  private val AsyncOption = "asyncProgressTrackingEnabled"

  def checkOptions(options: Map[String, String]): Unit =
    options.find { case (name, value) =>
      name.equalsIgnoreCase(AsyncOption) && value.trim.toLowerCase(Locale.ROOT) == "true"
    }.foreach(_ => throw asynchronous)

  /** @throws SinkException.RefusedSetting where the query runs in such a way */
  def check(query: OutputQuery): Unit =
    if (query.execution.contains("Continuous") || query.trigger.contains("Continuous"))
      throw refused(
        "The continuous trigger",
        "it has no batches that could be decided",
        "Trigger.Continuous"
      )
    else if (query.trigger.contains("RealTime"))
      throw refused(
        "Real-time mode",
        "it notes what a batch has read after the batch has run",
        "Trigger.RealTime"
      )
    else if (query.execution.contains("AsyncProgress")) throw asynchronous

  /** @throws SinkException.RefusedSetting where `df.write` asks for what a topic cannot do */
  def checkMode(mode: SaveMode, options: Map[String, String]): Unit = {
    if (mode == SaveMode.Overwrite || mode == SaveMode.Ignore) throw SinkFormat.refused(
      s"Mode '${mode.toString.toLowerCase(Locale.ROOT)}'",
      "rows can only be appended to a topic",
      "Use mode 'append', or none",
      mode.toString
    )
    options.keys.find(_.equalsIgnoreCase(PartitionedBy)).foreach { name =>
      throw SinkFormat.refused(
        "partitionBy",
        "a row's partition is what its column 'partition' says, or Kafka's partitioner",
        "Leave it out",
        options(name)
      )
    }
  }

  private def asynchronous = refused(
    "Asynchronous progress tracking",
    "it notes what a batch reads while the batch runs already",
    AsyncOption
  )

  private def refused(what: String, why: String, value: String) = SinkFormat.refused(
    what,
    s"$why, so a crash could repeat rows",
    "Use Trigger.ProcessingTime or Trigger.AvailableNow; or Spark's own sink, which may write rows twice",
    value
  )
}
