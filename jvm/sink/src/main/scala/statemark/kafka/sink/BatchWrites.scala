package statemark.kafka.sink

import java.util.{Locale, UUID}
import java.util.concurrent.ConcurrentHashMap
import org.apache.spark.SparkContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{DataFrame, SaveMode, SparkSession}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic.Dataset
import org.slf4j.LoggerFactory
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkSettings}
import statemark.kafka.decision.BatchStart
import statemark.kafka.driver.{BatchCoordinator, BatchPlan, CheckpointMarker, SinkContext}
import statemark.kafka.executor.WriterSpec
import statemark.kafka.rows.AttemptMessage
import statemark.kafka.sink.conf.Refusals
import statemark.kafka.sink.driver.{OpenSink, OpenSinks}
import statemark.kafka.sink.executor.{RowColumns, RowsTask}

/** Whose a batch write is, and which: Delta's names for it.
  *
  * @param appId option `txnAppId`; by default the query in whose `foreachBatch` it is
  * @param version option `txnVersion`: a write of a number that was decided is skipped
  */
private[sink] final case class BatchNumber(appId: String, version: Long)

/** `df.write`, in `foreachBatch` or anywhere else: one batch, decided once for its `txnAppId` and `txnVersion`.
  *
  * ''Thread:'' any; writes of one identity come one after another.
  */
private[sink] object BatchWrites {
  private val log = LoggerFactory.getLogger(BatchWrites.getClass)
  private val AppId = "txnAppId"
  private val Version = "txnVersion"

  /** What Spark calls the query that runs on a thread. */
  private val QueryProperty = "sql.streaming.queryId"

  /** Sinks of writes outside of queries are closed after each, and would not know that the next one repeats it. */
  private val written = new ConcurrentHashMap[BatchNumber, Set[String]]()
  private val MostWritten = 10000

  /** Writes the rows.
    * @throws SinkException where they cannot, or must not, be written
    */
  def write(mode: SaveMode, options: Map[String, String], data: DataFrame): Unit = {
    val spark = data.sparkSession
    Refusals.checkMode(mode, options)
    val settings = SinkSettings.of(options)
    val columns = RowColumns.of(data.schema, settings.topic)
    val queryId = Option(spark.sparkContext.getLocalProperty(QueryProperty))
    numberOf(options, queryId) match {
      case Some(number) => writeOnce(spark, settings, columns, number, queryId, data)
      case None => writeUnnumbered(spark, settings, columns, data)
    }
  }

  /** @param queryId of the query whose `foreachBatch` this thread runs */
  private[sink] def numberOf(
      options: Map[String, String],
      queryId: Option[String]
  ): Option[BatchNumber] = {
    val lower = options.map { case (name, value) => name.toLowerCase(Locale.ROOT) -> value }
    def option(name: String) = lower.get(name.toLowerCase(Locale.ROOT)).map(_.trim)
    def refused(name: String, value: String, reason: String, allowed: String) =
      throw SinkSettings.refused(name, value, reason, allowed)
    (option(AppId), option(Version)) match {
      case (None, None) => None
      case (Some(""), _) => refused(AppId, "", "it must not be empty", "any text but blanks")
      case (Some(app), None) =>
        refused(AppId, app, s"it says nothing without '$Version'", s"both, or neither")
      case (app, Some(text)) =>
        val version = text.toLongOption.filter(_ >= 0).getOrElse(
          refused(Version, text, "it has to ascend from write to write", "0 to 2⁶³ - 1")
        )
        val id = app.orElse(queryId).getOrElse(refused(
          Version,
          text,
          "outside of foreachBatch nobody knows whose number it is",
          s"with '$AppId', a name of the job that stays the same when it runs again"
        ))
        Some(BatchNumber(id, version))
    }
  }

  private def writeOnce(
      spark: SparkSession,
      settings: SinkSettings,
      columns: RowColumns,
      number: BatchNumber,
      queryId: Option[String],
      data: DataFrame
  ): Unit = {
    val identity = SinkIdentity(number.appId, settings.sink)
    if (Option(written.get(number)).exists(_.contains(settings.sink)))
      throw BatchCoordinator.repeated(identity, number.version)
    // Of a job without a query, its name is all that is the same when it runs again.
    val owner = queryId.getOrElse(number.appId)
    val sink = OpenSinks.find(identity).filter(_.settings == settings).getOrElse(
      open(spark, identity, settings, owner)
    )
    try {
      sink.begin(BatchStart(number.version, owner, fingerprint = None, isRerun = false)) match {
        case BatchPlan.Discard(_, _) =>
          log.info(
            s"Version ${number.version} of sink $identity is decided already: nothing is written."
          )
          sink.commit(number.version, Nil): Unit
        case BatchPlan.Write(spec) => write(spark, sink, spec, number.version, columns, data)
      }
      if (queryId.isEmpty) note(number, settings.sink)
    } finally if (queryId.isEmpty) OpenSinks.close(sink)
  }

  /** Nobody can repeat it, so nothing of it is kept (K11). */
  private def writeUnnumbered(
      spark: SparkSession,
      settings: SinkSettings,
      columns: RowColumns,
      data: DataFrame
  ): Unit = {
    val identity = SinkIdentity(s"write-${UUID.randomUUID}", settings.sink)
    val sink = open(spark, identity, settings, identity.appId)
    try
      sink.begin(BatchStart(0, identity.appId, fingerprint = None, isRerun = false)) match {
        case BatchPlan.Write(spec) =>
          write(spark, sink, spec, 0, columns, data)
          sink.forget()
        case BatchPlan.Discard(_, _) =>
          throw new SinkException.IllegalCall("A write cannot begin", s"$identity is not new")
      }
    finally OpenSinks.close(sink)
  }

  private def open(
      spark: SparkSession,
      identity: SinkIdentity,
      settings: SinkSettings,
      owner: String
  ): OpenSink = {
    val context = SinkContext(identity, settings, owner, queryName = "")
    OpenSinks.open(spark, context, CheckpointMarker.none, _ => ())(_.id.toString == owner)
  }

  private def write(
      spark: SparkSession,
      sink: OpenSink,
      spec: WriterSpec,
      version: Long,
      columns: RowColumns,
      data: DataFrame
  ): Unit =
    try sink.commit(version, run(spark.sparkContext, rowsOf(data), RowsTask(spec, columns))): Unit
    catch {
      case e: Throwable =>
        sink.abort()
        throw e
    }

  private def rowsOf(data: DataFrame): RDD[InternalRow] = data match {
    case rows: Dataset[_] => rows.queryExecution.toRdd
    case _ => throw new SinkException.IllegalCall("A write cannot begin", "its rows are elsewhere")
  }

  private def run(context: SparkContext, rows: RDD[InternalRow], task: RowsTask) = {
    val messages = new Array[Option[AttemptMessage]](rows.partitions.length)
    context.runJob(
      rows,
      task,
      rows.partitions.indices,
      (partition: Int, message: AttemptMessage) => messages(partition) = Some(message)
    )
    messages.toSeq.flatten
  }

  private def note(number: BatchNumber, sink: String): Unit = {
    if (written.size >= MostWritten) written.clear()
    written.merge(number, Set(sink), _ ++ _): Unit
  }
}
