package org.apache.spark.sql.execution.streaming.state

import java.io.{File, IOException}
import java.util.UUID
import java.util.concurrent.TimeoutException
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.{SparkConf, SparkContext, SparkEnv}
import org.apache.spark.io.CompressionCodec
import org.apache.spark.rpc.{
  IsolatedRpcEndpoint,
  RpcCallContext,
  RpcEndpointRef,
  RpcEnv,
  ThreadSafeRpcEndpoint
}
import org.apache.spark.scheduler.SparkListenerInterface
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.{
  CollectMetrics,
  EventTimeWatermark,
  LogicalPlan,
  ProcessingTime,
  ProcessingTimeTimeout
}
import org.apache.spark.sql.connector.read.streaming.SparkDataStream
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.datasources.v2.state.metadata.StateMetadataPartitionReader
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.util.{RpcUtils, SerializableConfiguration, ShutdownHookManager}
import scala.jdk.CollectionConverters._
import scala.util.Try
import statemark.common.{Causes, Position, SourceEnd, SourceOffset}

/** The members of Spark that Statemark needs and that Spark keeps to its own packages. Nothing else
  * lives in a package of Spark's.
  */
object StatemarkBridge extends BridgeShims {
  def runId(hadoopConf: Configuration): UUID = UUID.fromString(runIdOf(hadoopConf))

  /** A new directory in the executor's local directories, gone with the executor. */
  def newLocalDirectory(prefix: String): File =
    temporaryDirectory(Option(SparkEnv.get).map(_.conf).getOrElse(new SparkConf), prefix)

  /** The file system settings of a session, its SQL settings included. */
  def hadoopConf(spark: SparkSession): Configuration = spark.sessionState.newHadoopConf()

  /** A copy of a session's settings. */
  def settings(spark: SparkSession): SQLConf = spark.sessionState.conf.clone()

  /** The stateful operators of a checkpoint as of a batch; empty where they have no metadata. */
  def operatorMetadata(
      checkpoint: String,
      hadoopConf: Configuration,
      batch: Long
  ): Seq[OperatorStateMetadata] =
    new StateMetadataPartitionReader(checkpoint, new SerializableConfiguration(hadoopConf), batch)
      .allOperatorStateMetadata.toSeq

  /** The batch that the stream thread is about to run, None in any other thread. Its offsets come from
    * the memory of the query's offset log, but for those that an earlier run has planned.
    */
  def beforeBatch(): Option[BatchAhead] = for {
    spark <- SparkSession.getActiveSession
    queryId <- queryOfThread(spark)
    batch <- currentBatch(spark)
    query <- Option(classic(spark).sharedState.activeStreamingQueries.get(UUID.fromString(queryId)))
  } yield {
    def ends(of: Long) = query.offsetLog.get(of).map(log => positionOf(endOffsets(log)))
    BatchAhead(
      spark,
      queryId,
      Option(query.name),
      batch,
      ends(batch - 1),
      ends(batch),
      isTemporary(query.resolvedCheckpointRoot),
      spark.sparkContext.setLocalProperty
    )
  }

  /** Returns the source offsets that a batch of an offset log ends at; None where it has no such batch. */
  def loggedEnd(spark: SparkSession, directory: Path, batch: Long): Option[Position] =
    offsetLog(spark, directory.toString).get(batch).map(log => positionOf(endOffsets(log)))

  private[state] def positionOf(ends: Vector[(String, Option[String])]): Position =
    Position(ends.map { case (source, json) => SourceOffset(source, SourceEnd.of(json)) })

  /** Whether Spark made a checkpoint location for a query that was given none, and deletes it when this process ends. */
  private def isTemporary(checkpoint: String): Boolean = {
    val path = new Path(checkpoint)
    path.getName.startsWith("temporary-") &&
    ShutdownHookManager.hasShutdownDeleteDir(new File(path.toUri.getPath))
  }

  /** Runs a step of Spark's format `statestore`, whatever the session has for what the checkpoint does not say.
    * @param hasIds whether the checkpoint is of format v2
    * @param partitions the number of partitions of the state, where the batch's offset entry does not name it
    */
  def readingCheckpoint[A](spark: SparkSession, hasIds: => Boolean, partitions: Option[Int])(
      step: => A
  ): A = {
    val formatKey = SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key
    lazy val format = if (hasIds) "2" else "1"
    val needed = Option.when(hasOldStateSource)(formatKey -> format).toSeq ++
      partitions.map(StatePartitions -> _.toString)
    val missing = needed.filterNot { case (key, value) =>
      spark.conf.getOption(key).contains(value)
    }
    if (missing.isEmpty) step
    else {
      val own = classic(spark).cloneSession()
      missing.foreach { case (key, value) => own.conf.set(key, value) }
      own.withActive(step)
    }
  }

  /** The queries that run in this application, of all its sessions. */
  def activeQueries(spark: SparkSession): Seq[ActiveQuery] =
    classic(spark).sharedState.activeStreamingQueries.values.asScala.toSeq.map { query =>
      val commits = query.commitLog
      // The log has in memory which batches it wrote last, where that is not switched off.
      def written() = commits.batchCache.synchronized(commits.batchCache.keySet.asScala.maxOption)
      ActiveQuery(
        query.id,
        query.runId,
        Option(query.name),
        query.resolvedCheckpointRoot,
        new Path(new Path(query.resolvedCheckpointRoot), "state").toString,
        () => query.isActive,
        () => written().orElse(commits.getLatestBatchId()),
        // Of the session that runs the batches: a checkpoint that was begun before the setting goes on without it.
        () =>
          Option(query.lastExecution).exists(
            _.sparkSession.sessionState.conf
              .getConf(SQLConf.STATEFUL_OPERATOR_USE_STRICT_DISTRIBUTION)
          ),
        query.offsetLog.get(_).map(endOffsets),
        () => Option(query.lastExecution).map(_.currentBatchId),
        // Spark makes the plan in the query's own thread, and fails an assertion on any other until it has.
        () => Try(query.logicalPlan).toOption.map(_.collectLeaves().flatMap(sourceOf)),
        unnamedPartitions(query, _),
        (batch, operator) =>
          commits.get(batch).flatMap(_.stateUniqueIds).flatMap(_.get(operator))
      )
    }

  /** A query that runs, as a sink of it sees it. */
  def outputOf(spark: SparkSession, queryId: String): Option[OutputQuery] = {
    val active = classic(spark).sharedState.activeStreamingQueries
    Option(active.get(UUID.fromString(queryId))).map { query =>
      OutputQuery(
        query.id,
        query.runId,
        Option(query.name),
        query.resolvedCheckpointRoot,
        query.getClass.getSimpleName,
        query.trigger.getClass.getSimpleName,
        () => Option(query.lastExecution).map(_.currentBatchId),
        query.offsetLog.get(_).map(log => PlannedBatch(endOffsets(log), plannedAtMs(log))),
        () => Option(query.lastExecution).exists(e => e.logical.exists(dependsOnTime)),
        () => Option(query.lastExecution).exists(e => e.logical.exists(isObserved)),
        () => Option(query.lastExecution).map(_.executedPlan),
        () => query.logicalPlan,
        () => Option(active.get(query.id)).exists(_ eq query)
      )
    }
  }

  /** The query in whose batch a frame of the session was made, or else whose own thread asks. What Spark notes of a thread
    * does not say it: a thread that was begun in a batch keeps that for ever, whatever it does then.
    */
  def ownQuery(spark: SparkSession): Option[OutputQuery] = {
    val active = classic(spark).sharedState.activeStreamingQueries.values.asScala
    active.find(query => Option(query.lastExecution).exists(_.sparkSession eq spark))
      .orElse(active.find(_.queryExecutionThread eq Thread.currentThread))
      .flatMap(query => outputOf(spark, query.id.toString))
  }

  /** Returns the query whose own thread asks, from its start on; None on any other thread. The session is the query's:
    * Spark makes a copy of the user's for each run.
    */
  def queryOfOwnThread(): Option[OwnThreadQuery] = for {
    spark <- SparkSession.getActiveSession
    query <- classic(spark).sharedState.activeStreamingQueries.values.asScala
      .find(_.queryExecutionThread eq Thread.currentThread)
  } yield OwnThreadQuery(query.id, spark, query.trigger.getClass.getSimpleName == "RealTimeTrigger")

  /** What Spark calls the query that runs on a thread, and on threads that it begins. */
  private def queryOfThread(spark: SparkSession): Option[String] =
    Option(spark.sparkContext.getLocalProperty("sql.streaming.queryId"))

  private def sourceOf(leaf: LogicalPlan): Option[SparkDataStream] =
    leaf.productIterator.collectFirst { case stream: SparkDataStream => stream }

  private def dependsOnTime(plan: LogicalPlan): Boolean = plan.productIterator.exists {
    case ProcessingTimeTimeout | ProcessingTime => true
    case _ => false
  }

  private def isObserved(plan: LogicalPlan): Boolean = plan match {
    case _: EventTimeWatermark | _: CollectMetrics => true
    case _ => false
  }

  /** Has a listener told of events in a thread of its own, in which it may wait without delaying others. */
  def listen(context: SparkContext, thread: String, listener: SparkListenerInterface): Unit =
    context.listenerBus.addToQueue(listener, thread)

  /** The batch whose plan this thread makes or runs. */
  def currentBatch(spark: SparkSession): Option[Long] =
    Option(spark.sparkContext.getLocalProperty("streaming.sql.batchId")).flatMap(_.toLongOption)

  /** As [[serve]], for who says where it can be asked itself. */
  def serveIntroductions(name: String)(answer: (Array[Byte], ReadEndpoint) => Unit): Unit = {
    val env = SparkEnv.get.rpcEnv
    val endpoint = new ThreadSafeRpcEndpoint {
      override val rpcEnv: RpcEnv = env
      override def receiveAndReply(context: RpcCallContext): PartialFunction[Any, Unit] = {
        case (who: Array[Byte], where: RpcEndpointRef) =>
          answer(who, ReadEndpoint(where))
          context.reply(who)
      }
    }
    env.setupEndpoint(name, endpoint): Unit
  }

  /** Has `answer` serve requests under `name` in this JVM, over the connections that Spark has. */
  def serve(name: String, answer: Array[Byte] => Array[Byte]): ReadEndpoint = {
    val env = SparkEnv.get.rpcEnv
    val endpoint = new IsolatedRpcEndpoint {
      override val rpcEnv: RpcEnv = env
      override def threadCount(): Int = ServingThreads
      override def receiveAndReply(context: RpcCallContext): PartialFunction[Any, Unit] = {
        case request: Array[Byte] => context.reply(answer(request))
      }
      override def receive: PartialFunction[Any, Unit] = {
        case request: Array[Byte] => answer(request): Unit
      }
    }
    ReadEndpoint(env.setupEndpoint(name, endpoint))
  }

  /** What serves `name` in the driver. */
  def driversEndpoint(name: String): ReadEndpoint =
    ReadEndpoint(RpcUtils.makeDriverRef(name, SparkEnv.get.conf, SparkEnv.get.rpcEnv))

  private val ServingThreads = 4

  /** Tells the coordinator where a store is. */
  def reportLocation(
      spark: SparkSession,
      store: StateStoreProviderId,
      host: String,
      executorId: String
  ): Unit =
    classic(spark).streams.stateStoreCoordinator
      .reportActiveInstance(store, host, executorId, Seq.empty): Unit

  /** Where the coordinator takes a store to be. */
  def locationOf(spark: SparkSession, store: StateStoreProviderId): Option[String] =
    classic(spark).streams.stateStoreCoordinator.getLocation(store)

  private def classic(spark: SparkSession) =
    spark.asInstanceOf[org.apache.spark.sql.classic.SparkSession]

  /** Whether a call failed because nothing answers under the name that was called: there is no coordinator where the
    * session never had a streaming query. The class of the failure is private to Spark's package of remote calls.
    */
  def lacksEndpoint(failure: Throwable): Boolean =
    Causes.of(failure).exists(_.getClass.getSimpleName == "RpcEndpointNotFoundException")

  /** Whether a call to another JVM failed because that JVM is gone, and not because it is slow: what it fails with itself
    * has to come in its answer.
    */
  def isGone(failure: Throwable): Boolean =
    !Causes.of(failure).exists(_.isInstanceOf[TimeoutException]) &&
      (lacksEndpoint(failure) || Causes.of(failure).exists(_.isInstanceOf[IOException]))

  /** Whether a call to another JVM failed because this one's application is ending. The class of the failure is private
    * to Spark's package of remote calls.
    */
  def isEnding(failure: Throwable): Boolean =
    Causes.of(failure).exists(_.getClass.getSimpleName == "RpcEnvStoppedException")

  /** The codec of changelogs. */
  def codec(name: String): CompressionCodec =
    CompressionCodec.createCodec(Option(SparkEnv.get).fold(new SparkConf)(_.conf), name)

  def unexpectedVersion(version: Long): Throwable =
    QueryExecutionErrors.unexpectedStateStoreVersion(version)

  def outOfMemory(storeId: String, cause: Throwable): Throwable =
    QueryExecutionErrors.notEnoughMemoryToLoadStore(storeId, "ROCKSDB_STORE_PROVIDER", cause)

  def commitFailed(store: String, cause: Throwable): Throwable =
    QueryExecutionErrors.failedToCommitStateFileError(store, cause)
}

/** What serves requests in another JVM. It may be sent to others. */
final case class ReadEndpoint(private[state] val ref: RpcEndpointRef) {
  def ask(request: Array[Byte]): Array[Byte] = ref.askSync[Array[Byte]](request)

  /** Sends a request to which no answer is waited for; what serves it may be gone. */
  def tell(request: Array[Byte]): Unit = ref.send(request)

  /** Says where `who` can be asked; returns once that is known. An endpoint travels apart from the bytes: only Spark's
    * own reading of messages makes it usable.
    */
  def introduce(who: Array[Byte], where: ReadEndpoint): Unit =
    ref.askSync[Array[Byte]]((who, where.ref)): Unit
}

/** A query that runs, as a sink of it sees it.
  *
  * @param execution name of the class that runs it
  * @param trigger name of its trigger's class
  * @param batch the number of the batch that runs, on whatever thread; None before the first is planned
  * @param planned a batch of the offset log
  * @param dependsOnTime whether the batch that runs gives other rows at another time: it has timers, or time to live, of
  *   processing time
  * @param isObserved whether computing a batch moves a watermark, or counts metrics that the user observes
  * @param batchPlan the plan of the batch that runs; None before the first is planned
  * @param plan its sources and its sink, the same for all batches of a run; it is there once a batch is planned
  * @param isActive whether this run of it goes on: an event of its end comes later
  */
final case class OutputQuery(
    id: UUID,
    runId: UUID,
    name: Option[String],
    checkpoint: String,
    execution: String,
    trigger: String,
    batch: () => Option[Long],
    planned: Long => Option[PlannedBatch],
    dependsOnTime: () => Boolean,
    isObserved: () => Boolean,
    batchPlan: () => Option[SparkPlan],
    plan: () => LogicalPlan,
    isActive: () => Boolean
)

/** A batch as the offset log has it.
  *
  * @param ends where each source stands at its end, by what the log calls the source
  * @param atMs when it was planned for the first time, in milliseconds since the epoch; a batch that runs again keeps it
  */
final case class PlannedBatch(ends: Vector[(String, Option[String])], atMs: Option[Long])

/** A query that runs.
  *
  * @param checkpoint its checkpoint location
  * @param stateRoot where the state of its operators lies, as they name it
  * @param lastCommitted the last batch in its commit log
  * @param placesByWholeKey whether its operators' rows are known to be in the partition that all columns of the key
  *   give. Queries from before Spark 3.3 may be placed by some of the columns, as their input was
  * @param endsOf where each source stands at the end of a batch, by what the offset log calls the source
  * @param running the batch that runs, or was the last to
  * @param sources its sources in the order of its plan, which is that of offsets that have no names in the log; None for
  *   a moment after its start
  * @param unnamedPartitions the number of partitions of its state, where the offset entry of a batch does not name it
  * @param idsOf checkpoint ids that a batch committed for an operator, by partition and store, in checkpoint
  *   format v2
  */
final case class ActiveQuery(
    id: UUID,
    runId: UUID,
    name: Option[String],
    checkpoint: String,
    stateRoot: String,
    isActive: () => Boolean,
    lastCommitted: () => Option[Long],
    placesByWholeKey: () => Boolean,
    endsOf: Long => Option[Vector[(String, Option[String])]],
    running: () => Option[Long],
    sources: () => Option[Seq[SparkDataStream]],
    unnamedPartitions: Long => Option[Int],
    idsOf: (Long, Long) => Option[Array[Array[String]]]
) {

  /** Source offsets that a batch ends at. */
  def positionOf(batch: Long): Option[Position] =
    endsOf(batch).map(StatemarkBridge.positionOf)
}

/** A query, as its own thread sees it.
  *
  * @param session the query's own copy of the session that started it
  * @param isRealTime whether the query runs in Spark's real-time mode
  */
final case class OwnThreadQuery(id: UUID, session: SparkSession, isRealTime: Boolean)

/** A batch that is planned and not scheduled yet.
  *
  * @param start source offsets that it begins at; None for the first batch
  * @param end source offsets that it ends at; None where the log has them only once it is through
  * @param hasTemporaryCheckpoint whether the query's checkpoint location is deleted when this process ends
  * @param setProperty hands a property to its tasks
  */
final case class BatchAhead(
    spark: SparkSession,
    queryId: String,
    queryName: Option[String],
    batch: Long,
    start: Option[Position],
    end: Option[Position],
    hasTemporaryCheckpoint: Boolean,
    setProperty: (String, String) => Unit
)
