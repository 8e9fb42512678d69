package statemark.kafka.sink.driver

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.execution.streaming.state.{OutputQuery, StatemarkBridge}
import org.slf4j.LoggerFactory
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkSettings}
import statemark.kafka.decision.BatchStart
import statemark.kafka.driver.{BatchPlan, SinkContext}
import statemark.kafka.executor.WriterSpec
import statemark.kafka.rows.AttemptMessage
import statemark.kafka.sink.conf.Refusals

/** One run of a query, on the driver: its batches are those of its offset log. ''Thread:'' the query's. */
private[sink] final class SinkRun(
    query: OutputQuery,
    sink: OpenSink,
    startedAtMs: Long,
    figures: SinkFigures
) {
  import SinkRun.log

  /** Begins the batch whose plan this thread runs. */
  def begin(): WriterSpec = {
    val spark = SparkSession.active
    val batch = StatemarkBridge.currentBatch(spark).getOrElse(
      throw new SinkException.IllegalCall("A batch cannot begin", "its number is not known")
    )
    val planned = SourceOffsets.plannedOf(query, batch)
    val start = BatchStart(
      batch,
      query.id.toString,
      Some(SourceOffsets.batchOf(query, batch, planned, sink.input)),
      // Spark does not say it, but a batch that runs again keeps the time of its first plan.
      isRerun = planned.atMs.exists(_ < startedAtMs),
      earlier = SourceOffsets.batchOf(query, _),
      placement = () => FramePlans.placementOf(query)
    )
    val plan = sink.begin(start)
    plan match {
      case BatchPlan.Discard(_, true) => log.warn(
          s"Batch $batch of sink ${sink.identity} and later ones are decided already: was the checkpoint " +
            "restored from a backup? Its rows are dropped."
        )
      case BatchPlan.Discard(_, false) =>
        log.info(s"Batch $batch of sink ${sink.identity} is decided already: its rows are dropped.")
      case BatchPlan.Write(_) => ()
    }
    plan.writers
  }

  def commit(batch: Long, messages: Seq[AttemptMessage]): Unit =
    figures.add(sink.commit(batch, messages))

  /** Ends what is open, at once. */
  def abort(): Unit = sink.abort()
}

private[sink] object SinkRun {
  private val log = LoggerFactory.getLogger(classOf[SinkRun])

  /** Begins a run of a query that is running.
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
    val query = StatemarkBridge.outputOf(spark, queryId).getOrElse(
      throw new SinkException.IllegalCall("A run cannot begin", s"no query $queryId is running")
    )
    Refusals.check(query)
    val identity = SinkIdentity(queryId, settings.sink)
    val context = SinkContext(identity, settings, queryId, query.name.getOrElse(""))
    val marker = new MarkerFile(query.checkpoint, identity, StatemarkBridge.hadoopConf(spark))
    val sink = OpenSinks.open(spark, context, marker, Some(query.runId), figures.add)
    new SinkRun(query, sink, startedAtMs, figures)
  }
}
