package statemark.kafka.sink

import java.util.Locale
import org.apache.spark.sql.execution.streaming.state.OutputQuery

/** Ways to run a query in which a batch is not fixed before it runs: what a number of a batch stands for could change, and
  * so could not be decided once. Spark refuses some of them for sinks that it does not know; options switch that off.
  */
private[sink] object Refusals {
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

  private def asynchronous = refused(
    "Asynchronous progress tracking",
    "it notes what a batch reads while the batch runs already",
    AsyncOption
  )

  private def refused(what: String, why: String, value: String) = SinkFormat.refused(
    what,
    s"$why, so a crash could repeat rows",
    "Use Trigger.ProcessingTime or Trigger.AvailableNow and none of these; or Spark's own sink, which " +
      "may write rows twice",
    value
  )
}
