package statemark.kafka.sink.driver

import java.util.UUID
import java.util.concurrent.{ConcurrentHashMap, Future, TimeUnit, TimeoutException}
import org.apache.spark.SparkContext
import org.apache.spark.scheduler.{
  SparkListener,
  SparkListenerApplicationEnd,
  SparkListenerEvent,
  SparkListenerExecutorRemoved
}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.execution.streaming.state.StatemarkBridge
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryTerminatedEvent
import org.slf4j.LoggerFactory
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import statemark.common.Clock
import statemark.kafka.conf.{SinkIdentity, SinkSettings}
import statemark.kafka.decision.RecoveryReport
import statemark.kafka.driver.{BatchCoordinator, CheckpointMarker, DriverSeams, SinkContext}
import statemark.kafka.executor.CommitOrders
import statemark.kafka.sink.executor.{SinkProbe, SinkProcess}
import statemark.spark.process.BackgroundThreads

/** The open sinks of this application: one for each identity. ''Thread:'' any. */
private[sink] object OpenSinks {
  private val sinks = new ConcurrentHashMap[SinkIdentity, OpenSink]()
  private lazy val threads = BackgroundThreads.pool("statemark-kafka-ends", threads = 8)
  private val LongestEndS = 60L
  private val log = LoggerFactory.getLogger(OpenSinks.getClass)
  private var watched = Option.empty[SparkContext]

  /** Sinks of batch writes between two writes, the one first that was not used for longest. */
  private val resting = mutable.LinkedHashSet.empty[OpenSink]

  /** Opens a sink. One before it of the same identity ends first: what it would close later could be this one's.
    * @param runId of the query's run with which it ends
    */
  def open(
      spark: SparkSession,
      context: SinkContext,
      marker: CheckpointMarker,
      runId: Option[UUID],
      recovered: RecoveryReport => Unit
  ): OpenSink = {
    val identity = context.identity
    Option(sinks.get(identity)).foreach(close)
    watch(spark.sparkContext)
    val isLocal = spark.sparkContext.isLocal
    if (!isLocal) ExecutorOrders.serve()
    val counts = SinkCounts.of(context)
    val coordinator = new BatchCoordinator(
      context,
      if (isLocal) CommitOrders.none else ExecutorOrders,
      marker,
      Option.when(isLocal)(SinkProcess.sinks),
      DriverSeams(observer = counts.observing(SinkProbe.observer))
    )
    val sink =
      new OpenSink(identity, context.settings, coordinator, isLocal, runId, counts, recovered)
    sinks.put(identity, sink): Unit
    sink
  }

  /** The sink of a run, or of none, with these settings. */
  def find(
      identity: SinkIdentity,
      settings: SinkSettings,
      runId: Option[UUID]
  ): Option[OpenSink] =
    Option(sinks.get(identity)).filter(s => s.settings == settings && s.runId == runId)

  /** Closes a sink whose last batch was written. */
  def close(sink: OpenSink): Unit = {
    sink.close()
    forget(sink)
  }

  /** Notes that a sink has written.
    * @return the sinks of the same run of a query that are above what option `openSinks` lets rest, to be closed by the
    *   caller where they do not write
    */
  def rest(sink: OpenSink): Seq[OpenSink] = resting.synchronized {
    resting.remove(sink): Unit
    // Where the query has ended, its sinks are closed already.
    if (sinks.get(sink.identity) eq sink) resting.add(sink): Unit
    resting.filter(_.runId == sink.runId).toSeq.dropRight(sink.settings.openSinks)
  }

  private def forget(sink: OpenSink): Unit = {
    sinks.remove(sink.identity, sink): Unit
    resting.synchronized(resting.remove(sink)): Unit
  }

  private def watch(context: SparkContext): Unit = synchronized {
    if (!watched.contains(context)) {
      StatemarkBridge.listen(context, "statemark-kafka", new Ends)
      watched = Some(context)
    }
  }

  /** Closes sinks whose query, or application, has ended. Spark drops events where a listener is slow, and closing waits
    * for brokers: the listener only says what is to be done.
    */
  private final class Ends extends SparkListener {
    override def onOtherEvent(event: SparkListenerEvent): Unit = event match {
      case ended: QueryTerminatedEvent => close(_.runId.contains(ended.runId)): Unit
      case _ => ()
    }

    override def onExecutorRemoved(removed: SparkListenerExecutorRemoved): Unit = {
      ExecutorOrders.forget(removed.executorId)
      sinks.values.forEach { sink =>
        sink.lose(removed.executorId)
        threads.execute(() => sink.endLostIfIdle())
      }
    }

    /** The process may end behind it: what is open is ended before, unless the brokers do not answer. */
    override def onApplicationEnd(end: SparkListenerApplicationEnd): Unit = {
      val untilNanos = Clock.system.nanos() + TimeUnit.SECONDS.toNanos(LongestEndS)
      close(_ => true).foreach { closing =>
        try closing.get(untilNanos - Clock.system.nanos(), TimeUnit.NANOSECONDS): Unit
        catch {
          case _: TimeoutException =>
            log.warn(
              s"A sink was not closed in $LongestEndS seconds: the brokers end what it has open."
            )
        }
      }
    }

    private def close(isMeant: OpenSink => Boolean): Seq[Future[_]] =
      sinks.values.asScala.filter(isMeant).toSeq.map { sink =>
        val closes: Runnable = () => {
          sink.end()
          forget(sink)
        }
        threads.submit(closes)
      }
  }
}
