package statemark.spark.live

import java.util.{HashMap => JHashMap}
import java.util.concurrent.TimeUnit
import org.apache.spark.network.util.JavaUtils
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import scala.util.Try
import statemark.IsolationLevel
import statemark.common.{Clock, InvalidInputException, Position}
import statemark.spark.{SourcePosition, StoreSettings}

/** What a read shows. */
private[live] sealed abstract class LiveContent(val name: String)

private[live] object LiveContent {
  case object State extends LiveContent("state")
  case object Position extends LiveContent("position")

  val all: Seq[LiveContent] = Seq(State, Position)
}

/** What a read asks for. */
private[live] final case class LiveOptions(
    all: CaseInsensitiveStringMap,
    what: LiveContent,
    level: IsolationLevel,
    bound: Option[Position],
    timeoutMs: Long
) {
  private def spark = SparkSession.active

  /** Those of Spark's format, which name the state of an operator. */
  val state: CaseInsensitiveStringMap = {
    val theirs = new JHashMap[String, String](all.asCaseSensitiveMap)
    theirs.keySet.removeIf(key => LiveOptions.Own.exists(_.equalsIgnoreCase(key)))
    new CaseInsensitiveStringMap(theirs)
  }

  /** The batch to read now, and the options that make Spark's format read it. */
  def pinned(): (PinnedBatch, CaseInsensitiveStringMap) = {
    val queries = new LiveQueries(spark, Clock.system)
    val query = queries.find(Option(all.get("queryId")), Option(all.get("queryName")))
    val pin = queries.pin(query, bound, timeoutMs)
    val theirs = new JHashMap[String, String](state.asCaseSensitiveMap)
    theirs.put("path", query.checkpoint)
    theirs.put("batchId", pin.batch.toString)
    (pin, new CaseInsensitiveStringMap(theirs))
  }
}

private[live] object LiveOptions {
  private val Own =
    Seq("queryId", "queryName", "what", "isolationLevel", "positionBound", "timeout")
  private val Past = Seq(
    "path",
    "batchId",
    "snapshotStartBatchId",
    "snapshotPartitionId",
    "readChangeFeed",
    "changeStartBatchId",
    "changeEndBatchId"
  )
  private val DefaultTimeoutMs = 10000L

  def apply(all: CaseInsensitiveStringMap): LiveOptions = {
    Past.filter(all.containsKey).foreach { key =>
      throw new InvalidInputException(
        s"Option $key has no meaning for format 'statemark', which reads a running query as it is now; for the past of a " +
          "checkpoint use format 'statestore'."
      )
    }
    def parsed[A](key: String, allowed: String)(parse: String => A): Option[A] =
      Option(all.get(key)).map(v =>
        Try(parse(v.trim)).getOrElse(throw new InvalidInputException(
          s"Option $key is '$v', but it must be $allowed."
        ))
      )
    LiveOptions(
      all,
      parsed("what", LiveContent.all.map(_.name).mkString(" or "))(name =>
        LiveContent.all.find(_.name.equalsIgnoreCase(name)).get
      ).getOrElse(LiveContent.State),
      parsed(
        "isolationLevel",
        "READ_COMMITTED or READ_UNCOMMITTED"
      )(IsolationLevel.of).getOrElse(default),
      parsed(
        "positionBound",
        "a position as the query's `position` gives it"
      )(SourcePosition.decode),
      parsed("timeout", "a duration such as 10s")(JavaUtils.timeStringAs(_, TimeUnit.MILLISECONDS))
        .getOrElse(DefaultTimeoutMs)
    )
  }

  private def default: IsolationLevel =
    StoreSettings.from(SparkSession.active.conf.getAll, Runtime.getRuntime.maxMemory).isolationLevel
}
