package statemark.kafka.sink

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.locks.ReentrantLock
import org.apache.spark.SparkContext
import org.apache.spark.scheduler.{
  SparkListener,
  SparkListenerApplicationEnd,
  SparkListenerEvent,
  SparkListenerExecutorRemoved
}
import org.apache.spark.sql.execution.streaming.state.{OutputQuery, PlannedBatch, StatemarkBridge}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryTerminatedEvent
import org.slf4j.LoggerFactory
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal
import statemark.common.Interrupts
import statemark.kafka.clients.KafkaFailures
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkSettings}
import statemark.kafka.decision.{BatchFingerprint, BatchStart, RecoveryReport}
import statemark.kafka.driver.{BatchCoordinator, BatchPlan, DriverSeams, SinkContext}
import statemark.kafka.executor.{CommitOrders, WriterSpec}
import statemark.kafka.rows.AttemptMessage

/** One run of a query, on the driver. ''Thread:'' the query's, and another that closes it. */
private[sink] final class SinkRun(
    val query: OutputQuery,
    identity: SinkIdentity,
    coordinator: BatchCoordinator,
    isLocal: Boolean,
    startedAtMs: Long,
    figures: SinkFigures
) {
  import SinkRun.log

  private val lock = new ReentrantLock
  private val lost = ConcurrentHashMap.newKeySet[String]()
  private var seen = Option.empty[RecoveryReport]
  @volatile private var isClosed = false

  /** Begins the batch whose plan this thread runs. */
  def begin(): WriterSpec = exclusively {
    val spark = SparkSession.active
    val batch = StatemarkBridge.currentBatch(spark).getOrElse(
      throw new SinkException.IllegalCall("A batch cannot begin", "its number is not known")
    )
    val planned = query.planned(batch).getOrElse(throw new SinkException.WrongHistory(
      s"Batch $batch cannot be decided",
      "the query's offset log has no entry of it, so nobody could tell it from another",
      "Is the checkpoint's folder 'offsets' still there? Start the query again",
      Map("batch" -> batch.toString)
    ))
    val start = BatchStart(
      batch,
      query.id.toString,
      Some(fingerprintOf(planned)),
      // Spark does not say it, but a batch that runs again keeps the time of its first plan.
      isRerun = planned.atMs.exists(_ < startedAtMs),
      earlier = query.planned(_).map(fingerprintOf)
    )
    try {
      val plan = coordinator.begin(start)
      plan match {
        case BatchPlan.Discard(_, true) => log.warn(
            s"Batch $batch of sink $identity and later ones are decided already: was the checkpoint restored " +
              "from a backup? Its rows are dropped."
          )
        case BatchPlan.Discard(_, false) =>
          log.info(s"Batch $batch of sink $identity is decided already: its rows are dropped.")
        case BatchPlan.Write(_) => ()
      }
      plan.writers
    } finally report()
  }

  private def fingerprintOf(planned: PlannedBatch): BatchFingerprint =
    SourceOffsets.fingerprint(planned.ends, planned.atMs)

  def commit(batch: Long, messages: Seq[AttemptMessage]): Unit = exclusively {
    try figures.add(coordinator.commit(batch, messages))
    finally report()
    endLost()
  }

  /** Notes that an executor is gone. What it has left open is ended after the batch, whose decision may need it. */
  def lose(executorId: String): Unit = lost.add(executorId): Unit

  private def endLost(): Unit = {
    val gone = lost.asScala.toSet
    if (gone.nonEmpty)
      try {
        coordinator.fenceExecutors(gone)
        gone.foreach(lost.remove)
      } catch {
        case NonFatal(e) if !KafkaFailures.isInterrupt(e) =>
          log.warn(s"Transactions of lost executors of sink $identity are not ended yet.", e)
      }
  }

  /** Ends what is open, at once. */
  def abort(): Unit =
    try coordinator.abort()
    catch { case NonFatal(e) => log.warn(s"Sink $identity could not abort a batch.", e) }

  /** Ends what is open, at once, and then the run. */
  def end(): Unit = {
    // What is open in a run that is closed already would be the next one's.
    if (!isClosed) abort()
    close()
  }

  /** Ends the run, once no call of it is inside. */
  def close(): Unit =
    try exclusively {
        if (!isClosed) {
          isClosed = true
          endLost()
          coordinator.close()
          if (!isLocal) ExecutorOrders.close(identity, coordinator.lastRun)
        }
      }
    catch { case NonFatal(e) => log.warn(s"Sink $identity could not be closed.", e) }

  private def report(): Unit =
    coordinator.lastRecovery.filterNot(r => seen.exists(_ eq r)).foreach { recovery =>
      seen = Some(recovery)
      figures.add(recovery)
      log.info(recovery.line)
      recovery.notes.foreach(note => log.warn(s"Sink $identity: $note"))
    }

  private def exclusively[A](body: => A): A = {
    lock.lockInterruptibly()
    try body
    catch {
      // A query that is stopped ends well only with an exception that Spark knows as an interrupt.
      case NonFatal(e) if KafkaFailures.isInterrupt(e) => throw Interrupts.exceptionOf(e)
    } finally lock.unlock()
  }
}

/** The runs of this application: one for each identity, the last. */
private[sink] object SinkRun {
  private val log = LoggerFactory.getLogger(classOf[SinkRun])
  private val runs = new ConcurrentHashMap[SinkIdentity, SinkRun]()
  private var watched = Option.empty[SparkContext]

  /** Begins a run of a query that is running. One before it of the same identity ends first: what it would close later
    * could be this one's.
    * @param startedAtMs when the query was started, in milliseconds since the epoch
    * @throws SinkException where the query runs in a way that is refused
    */
  def open(
      settings: SinkSettings,
      queryId: String,
      startedAtMs: Long,
      figures: SinkFigures
  ): SinkRun = {
    val spark = SparkSession.active
    val context = spark.sparkContext
    val query = StatemarkBridge.outputOf(spark, queryId).getOrElse(
      throw new SinkException.IllegalCall("A run cannot begin", s"no query $queryId is running")
    )
    Refusals.check(query)
    val identity = SinkIdentity(queryId, settings.sink)
    runs.computeIfPresent(
      identity,
      (_, before) => {
        before.close()
        None.orNull
      }
    ): Unit
    watch(context)
    val isLocal = context.isLocal
    if (!isLocal) ExecutorOrders.serve()
    val coordinator = new BatchCoordinator(
      SinkContext(identity, settings, queryId, query.name.getOrElse("")),
      if (isLocal) CommitOrders.none else ExecutorOrders,
      new MarkerFile(query.checkpoint, identity, StatemarkBridge.hadoopConf(spark)),
      Option.when(isLocal)(SinkProcess.sinks),
      DriverSeams(observer = SinkProbe.observer)
    )
    val run = new SinkRun(query, identity, coordinator, isLocal, startedAtMs, figures)
    runs.put(identity, run): Unit
    run
  }

  private def watch(context: SparkContext): Unit = synchronized {
    if (!watched.contains(context)) {
      // Closing waits for brokers.
      StatemarkBridge.listen(context, "statemark-kafka", new Ends)
      watched = Some(context)
    }
  }

  /** Closes runs whose query, or application, has ended. */
  private final class Ends extends SparkListener {
    override def onOtherEvent(event: SparkListenerEvent): Unit = event match {
      case ended: QueryTerminatedEvent => close(_.runId == ended.runId)
      case _ => ()
    }

    override def onExecutorRemoved(removed: SparkListenerExecutorRemoved): Unit =
      runs.values.forEach(_.lose(removed.executorId))

    override def onApplicationEnd(end: SparkListenerApplicationEnd): Unit = close(_ => true)

    private def close(isMeant: OutputQuery => Boolean): Unit = runs.forEach { (identity, run) =>
      if (isMeant(run.query)) {
        run.end()
        runs.remove(identity, run): Unit
      }
    }
  }
}
