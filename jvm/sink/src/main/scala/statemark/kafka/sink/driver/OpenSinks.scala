package statemark.kafka.sink.driver

import java.util.concurrent.ConcurrentHashMap
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
import statemark.kafka.conf.SinkIdentity
import statemark.kafka.decision.RecoveryReport
import statemark.kafka.driver.{BatchCoordinator, CheckpointMarker, DriverSeams, SinkContext}
import statemark.kafka.executor.CommitOrders
import statemark.kafka.sink.executor.{SinkProbe, SinkProcess}

/** The open sinks of this application: one for each identity. ''Thread:'' any. */
private[sink] object OpenSinks {
  private val sinks = new ConcurrentHashMap[SinkIdentity, Owned]()
  private var watched = Option.empty[SparkContext]

  /** @param endsWith whether the end of a query is the sink's end */
  private final class Owned(val sink: OpenSink, val endsWith: QueryTerminatedEvent => Boolean)

  /** Opens a sink. One before it of the same identity ends first: what it would close later could be this one's. */
  def open(
      spark: SparkSession,
      context: SinkContext,
      marker: CheckpointMarker,
      recovered: RecoveryReport => Unit
  )(endsWith: QueryTerminatedEvent => Boolean): OpenSink = {
    val identity = context.identity
    Option(sinks.remove(identity)).foreach(_.sink.close())
    watch(spark.sparkContext)
    val isLocal = spark.sparkContext.isLocal
    if (!isLocal) ExecutorOrders.serve()
    val coordinator = new BatchCoordinator(
      context,
      if (isLocal) CommitOrders.none else ExecutorOrders,
      marker,
      Option.when(isLocal)(SinkProcess.sinks),
      DriverSeams(observer = SinkProbe.observer)
    )
    val sink = new OpenSink(identity, context.settings, coordinator, isLocal, recovered)
    sinks.put(identity, new Owned(sink, endsWith)): Unit
    sink
  }

  def find(identity: SinkIdentity): Option[OpenSink] = Option(sinks.get(identity)).map(_.sink)

  /** Closes a sink whose last batch was written. */
  def close(sink: OpenSink): Unit = {
    sink.close()
    sinks.computeIfPresent(
      sink.identity,
      (_, owned) => Option(owned).filter(_.sink ne sink).orNull
    ): Unit
  }

  private def watch(context: SparkContext): Unit = synchronized {
    if (!watched.contains(context)) {
      // Closing waits for brokers.
      StatemarkBridge.listen(context, "statemark-kafka", new Ends)
      watched = Some(context)
    }
  }

  /** Closes sinks whose query, or application, has ended. */
  private final class Ends extends SparkListener {
    override def onOtherEvent(event: SparkListenerEvent): Unit = event match {
      case ended: QueryTerminatedEvent => close(_.endsWith(ended))
      case _ => ()
    }

    override def onExecutorRemoved(removed: SparkListenerExecutorRemoved): Unit =
      sinks.values.forEach(_.sink.lose(removed.executorId))

    override def onApplicationEnd(end: SparkListenerApplicationEnd): Unit = close(_ => true)

    private def close(isMeant: Owned => Boolean): Unit = sinks.forEach { (identity, owned) =>
      if (isMeant(owned)) {
        owned.sink.end()
        sinks.remove(identity, owned): Unit
      }
    }
  }
}
