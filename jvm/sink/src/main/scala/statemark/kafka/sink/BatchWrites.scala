package statemark.kafka.sink

import java.util.{Locale, UUID}
import java.util.concurrent.{ConcurrentHashMap, TimeUnit}
import java.util.concurrent.locks.ReentrantLock
import org.apache.spark.SparkContext
import org.apache.spark.sql.{DataFrame, SaveMode, SparkSession}
import org.apache.spark.sql.execution.streaming.state.{OutputQuery, StatemarkBridge}
import org.slf4j.LoggerFactory
import scala.util.control.NonFatal
import statemark.common.Clock
import statemark.kafka.clients.{KafkaFailures, TopicLookup}
import statemark.kafka.conf.{OnLostRows, SinkException, SinkIdentity, SinkSettings}
import statemark.kafka.decision.{BatchStart, Outcome, Verdict}
import statemark.kafka.driver.{BatchPlan, CheckpointMarker, SinkContext}
import statemark.kafka.rows.AttemptMessage
import statemark.kafka.sink.conf.Refusals
import statemark.kafka.sink.driver.{
  FramePlans,
  InputSources,
  MarkerFile,
  OpenSink,
  OpenSinks,
  Recent,
  SourceOffsets
}
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

  /** Two writes of one identity at once would each take the sink from the other. */
  private val turns = new ConcurrentHashMap[SinkIdentity, Turn]

  /** A lock, and how many hold it or wait for it. */
  private final case class Turn(lock: ReentrantLock, users: Int)

  /** What was written, and by which run of a query. */
  private val written = new Recent[(SinkIdentity, Long, UUID)]

  /** Behind it no other try begins to complete a write that has failed. */
  private val LongestSettlingNanos = TimeUnit.MINUTES.toNanos(3)

  /** Runs of queries that were warned. */
  private val repeatable = new Recent[UUID]

  /** Writes the rows.
    * @throws SinkException where they cannot, or must not, be written
    */
  def write(mode: SaveMode, options: Map[String, String], data: DataFrame): Unit = {
    val spark = data.sparkSession
    Refusals.checkMode(mode, options)
    val settings = SinkSettings.of(options)
    val columns = RowColumns.of(data.schema, settings.topic)
    val query = StatemarkBridge.ownQuery(spark)
    query.foreach(Refusals.check)
    val number = numberOf(options, query.map(_.id.toString))
    if (query.isEmpty || number.isEmpty) InputSources.refuse(settings)
    number match {
      case Some(number) => writeOnce(spark, settings, columns, number, query, data)
      case None =>
        query.filter(of => repeatable.add(of.runId)).foreach { of =>
          log.warn(
            s"Query ${of.name.getOrElse(of.id)} writes a batch without option '$Version': a batch that runs again is written " +
              "again. Give the number of the batch, and it is written once."
          )
        }
        writeUnnumbered(spark, settings, columns, data)
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
    (option(AppId).map(SinkSettings.nonEmpty(AppId, _)), option(Version)) match {
      case (None, None) => None
      case (Some(app), None) =>
        refused(AppId, app, s"it says nothing without '$Version'", "both, or neither")
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
      query: Option[OutputQuery],
      data: DataFrame
  ): Unit = alone(SinkIdentity(number.appId, settings.sink)) { identity =>
    val runId = query.map(_.runId)
    // Also where the options have changed, and with them the sink that would know it.
    runId.map((identity, number.version, _)).filter(written.contains).foreach { _ =>
      throw Verdict.repeated(identity, number.version)
    }
    // Of a job without a query, its name is all that is the same when it runs again.
    val owner = query.fold(number.appId)(_.id.toString)
    val sink = OpenSinks.find(identity, settings, runId).getOrElse {
      val context = SinkContext(identity, settings, owner, query.flatMap(_.name).getOrElse(""))
      open(spark, context, runId, markerOf(spark, identity, query))
    }
    // A thread of the query may come here when it has ended, and who closes its sinks may have been here before.
    if (query.exists(!_.isActive())) {
      OpenSinks.close(sink)
      throw new SinkException.IllegalCall("A batch cannot begin", "its query has ended")
    }
    try {
      sink.begin(startOf(number, owner, query, data, sink)) match {
        case BatchPlan.Discard(spec, _) =>
          log.warn(
            s"Version ${number.version} of sink $identity is decided already: nothing is written."
          )
          // Spark commits state, watermark and metrics with the batch: they have to be there.
          if (query.exists(_.isObserved()) || FramePlans.writesState(data))
            run(spark.sparkContext, sink, data, RowsTask(spec, columns)): Unit
          sink.commit(number.version, Nil): Unit
        case BatchPlan.Write(spec) =>
          val messages = run(spark.sparkContext, sink, data, RowsTask(spec, columns))
          commit(sink, number.version, messages)
      }
      runId.foreach(id => written.add((identity, number.version, id)))
    } finally if (query.isEmpty) OpenSinks.close(sink) else rest(sink)
  }

  private def startOf(
      number: BatchNumber,
      owner: String,
      query: Option[OutputQuery],
      data: DataFrame,
      sink: OpenSink
  ): BatchStart = BatchStart(
    number.version,
    owner,
    for (of <- query; batch <- of.batch())
      yield SourceOffsets.batchOf(of, batch, SourceOffsets.plannedOf(of, batch), sink.input),
    isRerun = false,
    earlier = batch => query.flatMap(SourceOffsets.batchOf(_, batch)),
    isWrite = true,
    placement = () => FramePlans.placementOf(data, query)
  )

  /** Leaves a sink open for its next write, and closes others of its query that were not used for longer, where they are
    * too many. What they have written stays in [[written]] (K2).
    */
  private def rest(sink: OpenSink): Unit =
    OpenSinks.rest(sink).foreach(other => ifFree(other.identity)(OpenSinks.close(other)))

  /** Nobody can repeat it, so nothing of it is kept (K11). */
  private def writeUnnumbered(
      spark: SparkSession,
      settings: SinkSettings,
      columns: RowColumns,
      data: DataFrame
  ): Unit = {
    val identity = SinkIdentity(s"write-${UUID.randomUUID}", settings.sink)
    val context =
      SinkContext(identity, settings, identity.appId, queryName = "", isRandom = true)
    val sink = open(spark, context, None)
    try
      sink.begin(startOf(BatchNumber(identity.appId, 0), identity.appId, None, data, sink)) match {
        case BatchPlan.Write(spec) =>
          val messages =
            try run(spark.sparkContext, sink, data, RowsTask(spec, columns))
            catch {
              case e: Throwable =>
                forget(sink)
                throw e
            }
          try commit(sink, 0, messages)
          catch { case e: Throwable => settle(sink, e) }
          forget(sink)
        case BatchPlan.Discard(_, _) =>
          throw new SinkException.IllegalCall("A write cannot begin", s"$identity is not new")
      }
    finally OpenSinks.close(sink)
  }

  /** What became of the rows is certain by now: a record that stays behind changes nothing of it. */
  private def forget(sink: OpenSink): Unit =
    try KafkaFailures.uninterrupted(sink.forget())
    catch {
      case NonFatal(e) =>
        log.warn(s"What is known of ${sink.identity}, which has ended, could not be removed.", e)
    }

  /** Completes a write that failed behind its decision, at once and also where it was interrupted: nobody else would, and
    * whoever repeats it writes all of it again. Returns where all of it is with the readers.
    */
  private def settle(sink: OpenSink, failure: Throwable): Unit = {
    val beganNanos = Clock.system.nanos()
    def isWorthAnother(e: Throwable) = e match {
      case sinks: SinkException =>
        sinks.isRetryable && Clock.system.nanos() - beganNanos < LongestSettlingNanos
      case _ => false
    }
    val outcome =
      try KafkaFailures.uninterrupted(TopicLookup.again(isWorthAnother)(sink.recover()))
      catch {
        case NonFatal(e) =>
          failure.addSuppressed(e)
          throw unsettled(
            sink,
            "it is not known whether it was decided, or it could not be completed",
            "If it was decided, parts of it may show already: `statemark topic finish` completes it",
            failure
          )
      }
    outcome match {
      case Outcome.Complete =>
        // Kafka's clients take the note off that the thread was to end.
        if (KafkaFailures.isInterrupt(failure)) Thread.currentThread.interrupt()
      case Outcome.Undecided =>
        forget(sink)
        throw failure
      case Outcome.Lost =>
        throw unsettled(
          sink,
          "it was decided, and rows of it are not in the log any more",
          s"With onLostRows=${OnLostRows.Rerun.name} the others of it may show",
          failure
        )
    }
  }

  private def unsettled(sink: OpenSink, reason: String, parts: String, failure: Throwable) =
    new SinkException.UnfinishedWrite(
      s"A write without '$Version' is not known to be whole",
      s"$reason: ${SinkException.sentence(failure.getMessage)}",
      s"$parts. Whoever repeats it writes all of its rows again",
      Map("sink" -> sink.identity.toString),
      Some(failure)
    )

  private def open(
      spark: SparkSession,
      context: SinkContext,
      runId: Option[UUID],
      marker: CheckpointMarker = CheckpointMarker.none
  ): OpenSink = OpenSinks.open(spark, context, marker, runId, _ => ())

  /** In the checkpoint of a query, whose histories are its own. */
  private def markerOf(
      spark: SparkSession,
      identity: SinkIdentity,
      query: Option[OutputQuery]
  ): CheckpointMarker =
    query.filter(_.id.toString == identity.appId).fold(CheckpointMarker.none)(of =>
      new MarkerFile(of.checkpoint, identity, StatemarkBridge.hadoopConf(spark))
    )

  private def alone[A](identity: SinkIdentity)(body: SinkIdentity => A): A =
    withTurn(identity) { lock =>
      lock.lockInterruptibly()
      try body(identity)
      finally lock.unlock()
    }

  /** Runs `body` where no write of the identity is on its way: none then finds a sink that is being closed. */
  private def ifFree(identity: SinkIdentity)(body: => Unit): Unit = withTurn(identity) { lock =>
    if (lock.tryLock())
      try body
      finally lock.unlock()
  }

  private def withTurn[A](identity: SinkIdentity)(body: ReentrantLock => A): A = {
    def count(change: Int)(known: Turn) =
      Some(known.copy(users = known.users + change)).filter(_.users > 0)
    val turn = turns.compute(
      identity,
      (_, known) => count(1)(Option(known).getOrElse(Turn(new ReentrantLock, 0))).orNull
    )
    try body(turn.lock)
    finally turns.computeIfPresent(identity, (_, known) => count(-1)(known).orNull): Unit
  }

  private def commit(sink: OpenSink, version: Long, messages: Seq[AttemptMessage]): Unit =
    aborting(sink)(sink.commit(version, messages): Unit)

  private def aborting[A](sink: OpenSink)(body: => A): A =
    try body
    catch {
      case e: Throwable =>
        sink.abort()
        throw e
    }

  private def run(context: SparkContext, sink: OpenSink, data: DataFrame, task: RowsTask) =
    aborting(sink)(context.runJob(FramePlans.planOf(data).toRdd, task).toSeq)
}
