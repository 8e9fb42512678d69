package statemark.spark.live

import java.util.concurrent.TimeUnit
import java.util.{HashMap => JHashMap, Locale}
import org.apache.hadoop.fs.Path
import org.apache.spark.network.util.JavaUtils
import org.apache.spark.sql.connector.read.streaming.SparkDataStream
import org.apache.spark.sql.execution.datasources.v2.state.StateDataSource
import org.apache.spark.sql.execution.streaming.state.ActiveQuery
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import scala.jdk.CollectionConverters._
import scala.util.Try
import statemark.common.{Clock, NearNames, Position, ViewClosedException}
import statemark.IsolationLevel
import statemark.spark.cluster.BatchOffsets
import statemark.spark.conf.StoreSettings
import statemark.spark.errors.FormatRefusedException

/** The content that a read shows. */
private[live] sealed trait LiveContent

private[live] object LiveContent {
  import LiveQueries.wrong

  case object State extends LiveContent
  case object Position extends LiveContent

  /** The source offsets that one store holds. */
  case object CommittedOffset extends LiveContent

  /** The stateful operators, each with what a read may name of it. */
  case object Operators extends LiveContent

  /** The processes of the application, and which parts of the plugin each has. No query needs to run. */
  case object Installation extends LiveContent

  /** The rows of some keys.
    *
    * @param keys the keys in the JSON that [[KeyJson]] reads
    */
  final case class Lookup(keys: String) extends LiveContent

  /** Reads options `what` and `keys`. The second belongs to a lookup alone: any other read would show all rows. */
  def of(what: Option[String], keys: Option[String]): LiveContent =
    (what.fold("state")(_.trim.toLowerCase(Locale.ROOT)), keys) match {
      case ("lookup", Some(asked)) => Lookup(asked)
      case ("lookup", None) => throw wrong(
          "Option what is 'lookup', and option keys is missing.",
          "Set it to a JSON array with an object for each key."
        )
      case ("state" | "position" | "committedoffset" | "operators" | "installation", Some(_)) =>
        throw wrong(
          "Option keys is set, and option what is not 'lookup'.",
          "Set it to 'lookup' for the rows of the keys, or filter the rows."
        )
      case ("state", None) => State
      case ("position", None) => Position
      case ("committedoffset", None) => CommittedOffset
      case ("operators", None) => Operators
      case ("installation", None) => Installation
      case _ => throw wrong(
          s"Option what is '${what.mkString}'.",
          "Set it to state, position, committedOffset, operators, installation or lookup."
        )
    }
}

/** The options of a read. */
private[live] final case class LiveOptions(
    all: CaseInsensitiveStringMap,
    what: LiveContent,
    level: IsolationLevel,
    bound: Option[Position],
    timeoutMs: Long,
    asOf: Option[String],
    partition: Option[Int]
) {
  private def spark = SparkSession.active

  /** The options of Spark's own format, which name the state of an operator. */
  val state: CaseInsensitiveStringMap = {
    val theirs = new JHashMap[String, String](all.asCaseSensitiveMap)
    theirs.keySet.removeIf(key => LiveOptions.Own.exists(_.equalsIgnoreCase(key)))
    new CaseInsensitiveStringMap(theirs)
  }

  /** Options as plans and errors show them. Keys are left out: they may be thousands, and they are data. */
  def shown: String = LiveOptions.shown(all)

  /** The operator whose state is read. */
  def operator: Long = state.getLong("operatorId", 0)

  /** Returns the columns of the rows. They are those of any batch, so that a bound is not waited for. */
  def schema(): StructType = {
    val (pin, theirs) = copy(bound = None).pinned()
    schemaOf(pin, theirs)
  }

  /** Returns the columns of the rows of a batch that is pinned. */
  def schemaOf(pin: PinnedBatch, theirs: CaseInsensitiveStringMap): StructType =
    new LiveOperators(spark, pin).explained(theirs)(
      pin.bySpark(new StateDataSource().inferSchema(theirs))
    )

  /** Returns the sources of the query of a batch; none where it has ended while it started. */
  def sourcesOf(pin: PinnedBatch): Seq[SparkDataStream] =
    new LiveQueries(spark, Clock.system).awaited(pin.query, timeoutMs)(pin.query.sources())
      .getOrElse(Nil)

  /** A batch that runs has rows to show, and no offsets that are committed. */
  private def levelOfPin: IsolationLevel = what match {
    case LiveContent.State | _: LiveContent.Lookup => level
    case _ => IsolationLevel.ReadCommitted
  }

  /** Waits until the batch that the bound is met by has begun in partitions that are read, where it runs yet. */
  def begun(pin: PinnedBatch, partitions: Seq[Int]): Unit =
    new LiveQueries(spark, Clock.system).begun(pin, operator, partitions.toSet, bound, timeoutMs)

  /** Returns the batch to read now, and the options that make Spark's format read it. */
  def pinned(): (PinnedBatch, CaseInsensitiveStringMap) = {
    val queries = new LiveQueries(spark, Clock.system)
    val query = queries.find(Option(all.get("queryId")), Option(all.get("queryName")))
    LiveOptions.requirePlain(query.checkpoint)
    val pin =
      asOf.fold(queries.pin(query, bound, levelOfPin, timeoutMs))(LiveOptions.pinned(query, _))
    val theirs = new JHashMap[String, String](state.asCaseSensitiveMap)
    theirs.put("path", query.checkpoint)
    theirs.put("batchId", pin.batch.toString)
    (pin, new CaseInsensitiveStringMap(theirs))
  }
}

private[live] object LiveOptions {
  import LiveQueries.wrong

  /** Returns options, right or wrong, as plans and errors show them. */
  def shown(all: CaseInsensitiveStringMap): String =
    all.asCaseSensitiveMap.asScala.toSeq
      .filterNot { case (name, _) => name.equalsIgnoreCase(Keys) }
      .sorted.map { case (name, value) => s"$name=$value" }.mkString(", ")

  /** Runs a step of the planning of a read with these options. */
  def refusing[A](all: CaseInsensitiveStringMap)(step: => A): A =
    FormatRefusedException.where {
      val options = shown(all)
      s"Format 'statemark'${if (options.isEmpty) "" else s" with $options"} cannot be read"
    }(step)

  /** Tells whether options, right or wrong, are those of a lookup. */
  def isLookup(all: CaseInsensitiveStringMap): Boolean =
    Option(all.get("what")).exists(_.trim.equalsIgnoreCase("lookup"))

  /** Refuses a location that Spark's format `statestore` does not find: it looks for the directory by the text of its URI,
    * in which a blank is `%20`.
    *
    * ''Source:'' Spark 4.2 `StateSourceOptions.resolvedCpLocation`.
    * @throws statemark.common.InvalidInputException where the text of the URI is another one
    */
  def requirePlain(checkpoint: String): Unit = {
    val encoded = new Path(checkpoint).toUri.toString
    if (encoded != new Path(checkpoint).toString) throw wrong(
      s"The state of a query with the checkpoint location '$checkpoint' cannot be read while it runs: Spark's format " +
        s"'statestore', which reads it, looks for '$encoded'.",
      "Stop the query, move the directory to a name without blanks and special characters, and start the query there."
    )
  }

  private val Keys = "keys"
  private val AsOf = "asOf"

  /** Returns what option `asOf` takes to read a pinned batch. */
  def asOf(pin: PinnedBatch): String = s"${pin.query.runId}/${pin.batch}"

  /** Returns the batch that `asOf` names.
    * @throws ViewClosedException where the query has been started again since
    */
  private def pinned(query: ActiveQuery, asOf: String): PinnedBatch = asOf.split('/') match {
    case Array(run, batch) if run == query.runId.toString =>
      PinnedBatch(query, batch.toLong)
    case _ => throw new ViewClosedException(
        s"Query ${query.id} has been started again since the first keys were looked up. Look all keys up again."
      )
  }

  private val Partition = "partition"

  private val Own = Seq(
    "queryId",
    "queryName",
    "what",
    Keys,
    "isolationLevel",
    "positionBound",
    "timeout",
    AsOf,
    Partition
  )
  private val Theirs = Seq(
    "operatorId",
    "storeName",
    "joinSide",
    "stateVarName",
    "readRegisteredTimers",
    "flattenCollectionTypes"
  )
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

  /** Time after which a read waits no longer: nanoseconds of more have no room in 64 bits. */
  private val LongestTimeoutMs = TimeUnit.DAYS.toMillis(366)

  def apply(all: CaseInsensitiveStringMap): LiveOptions = {
    Past.filter(all.containsKey).foreach { key =>
      throw wrong(
        s"Option $key has no meaning for format 'statemark', which reads a running query as it is now.",
        "Leave it out; the past of a checkpoint is read with format 'statestore'."
      )
    }
    if (all.containsKey("checkpointLocation")) throw wrong(
      "Format 'statemark' cannot be written, not as a stream either.",
      "Write rows to another format."
    )
    val known = Own ++ Theirs
    // A misspelt level or bound would change what is read, and say nothing.
    all.keySet.asScala.find(key => !known.exists(_.equalsIgnoreCase(key))).foreach { key =>
      throw wrong(
        s"Format 'statemark' has no option $key.",
        NearNames.of(key, known).fold(s"Use one of ${known.mkString(", ")}.")(meant =>
          s"Did you mean $meant?"
        )
      )
    }
    def parsed[A](key: String, allowed: String)(parse: String => A): Option[A] =
      Option(all.get(key)).map(v =>
        Try(parse(v.trim)).getOrElse(throw wrong(s"Option $key is '$v'.", s"Set it to $allowed."))
      )
    val what = LiveContent.of(Option(all.get("what")), Option(all.get(Keys)))
    val ofPartitions = Set[LiveContent](LiveContent.State, LiveContent.CommittedOffset)
    if (!ofPartitions(what) && all.containsKey(Partition)) throw wrong(
      s"Option $Partition is set, and option what is neither 'state' nor 'committedOffset'.",
      "Leave it out: only stores have partitions."
    )
    LiveOptions(
      all,
      what,
      parsed(
        "isolationLevel",
        "READ_COMMITTED or READ_UNCOMMITTED"
      )(IsolationLevel.of).getOrElse(default),
      parsed(
        "positionBound",
        "a position as the query's `position` gives it"
      )(BatchOffsets.read),
      parsed("timeout", "a duration such as 10s")(JavaUtils.timeStringAs(_, TimeUnit.MILLISECONDS))
        .fold(DefaultTimeoutMs)(math.min(_, LongestTimeoutMs)),
      Option(all.get(AsOf)),
      parsed(Partition, "the number of a partition, from 0")(_.toInt)
    )
  }

  private def default: IsolationLevel =
    StoreSettings.from(SparkSession.active.conf.getAll, Runtime.getRuntime.maxMemory).isolationLevel
}
